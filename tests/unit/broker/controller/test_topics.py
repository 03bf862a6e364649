"""Creating, deleting and changing topics is atomic, has Kafka's errors, and is correct even if replies are lost."""

import asyncio

import pytest

from oncelog_broker.controller.configs import ConfigController
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model import reader
from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.payloads import ReplicaAssignment, TopicAssignment, encode_topic
from oncelog_broker.metadata.stores.store import Create, Set
from oncelog_protocol.errors import ErrorCode, KafkaError


class Admin(ConfigController, TopicController):
    """All administrative operations in one class."""

    def __init__(self, store, term):
        ConfigController.__init__(self, store)
        TopicController.__init__(self, store, lambda: term)


@pytest.fixture
def topics(store, term):
    return Admin(store, term)


async def image(store):
    return await reader.read_image(store)


class fails_with:  # noqa: N801
    """A context manager: its block must raise a KafkaError with this code."""

    def __init__(self, code):
        self._raises = pytest.raises(KafkaError)
        self._code = code

    def __enter__(self):
        self._raised = self._raises.__enter__()

    def __exit__(self, *exception):
        handled = self._raises.__exit__(*exception)
        assert self._raised.value.code is self._code
        return handled


async def test_only_one_of_two_colliding_topics_is_created(topics, store):
    made = await asyncio.gather(*(topics.create_topic(name, 1, 1) for name in ("a.b", "a_b")), return_exceptions=True)
    assert [getattr(each, "code", None) for each in made] == [None, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert await store.children(paths.TOPICS) == ["a.b"]


async def test_a_topic_is_created_with_leaders_and_settings_in_one_image(topics, store):
    cache = await MetadataCache.start(store)
    seen = []
    cache.subscribe(lambda _, new: seen.append(new))
    created = await topics.create_topic("t", 3, 1, {"retention.ms": "1"})
    shown = await cache.wait_for(lambda image: image.topic_by_id(created.topic_id) is not None)
    assert seen == [shown]
    partitions = shown.topics["t"].partitions.values()
    assert [(p.leader, p.leader_epoch, p.isr) for p in partitions] == [(1, 0, (1,))] * 3
    assert shown.config_of_topic("t") == {"retention.ms": "1"}
    await cache.close()


async def test_validate_only_changes_nothing(topics, store):
    await topics.create_topic("kept", 1, 1)
    before = await image(store)
    would = await topics.create_topic("t", 2, 1, validate_only=True)
    assert list(would.partitions) == [0, 1]
    assert list((await topics.create_partitions("kept", 3, validate_only=True)).partitions) == [0, 1, 2]
    assert await topics.alter_topic_config("kept", lambda _: {"a": "1"}, validate_only=True) == {"a": "1"}
    assert await topics.alter_broker_config(1, lambda _: {"a": "1"}, validate_only=True) == {"a": "1"}
    assert await image(store) == before


async def test_a_topic_by_hand_lies_where_it_is_said(topics, store, term):
    await store.create(paths.broker_id(2), (await store.get(paths.broker_id(1)))[0], ephemeral=True)
    await term.brokers_changed()
    await topics.create_topic("t", -1, -1, assignment={0: [2, 1], 1: [1, 2]})
    partitions = (await image(store)).topics["t"].partitions
    assert [(p.replicas, p.leader) for p in partitions.values()] == [((2, 1), 2), ((1, 2), 1)]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("bad name", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (("a_b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (("a.b", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (("t", -1, -1, {}, {0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
async def test_a_topic_that_cannot_be_is_refused(topics, store, arguments, code, validate_only):
    await topics.create_topic("a.b", 1, 1)
    with fails_with(code):
        await topics.create_topic(*arguments, validate_only=validate_only)
    assert list((await image(store)).topics) == ["a.b"]


async def test_one_of_several_racing_creations_wins(topics, store):
    outcomes = await asyncio.gather(*(topics.create_topic("t", 1, 1) for _ in range(3)), return_exceptions=True)
    won = [outcome for outcome in outcomes if isinstance(outcome, TopicAssignment)]
    assert [topic.topic_id for topic in won] == [(await image(store)).topics["t"].topic_id]
    assert {o.code for o in outcomes if isinstance(o, KafkaError)} == {ErrorCode.TOPIC_ALREADY_EXISTS}


async def test_a_deleted_topic_is_gone_with_all_its_nodes(topics, store):
    created = await topics.create_topic("t", 3, 1, {"a": "1"})
    assert await topics.delete_topic("t") == created.topic_id
    assert await store.children(paths.TOPICS) == []
    assert await store.children(paths.TOPIC_CONFIGS) == []
    again = await topics.create_topic("t", 1, 1)
    assert again.topic_id != created.topic_id


async def test_a_topic_without_partition_nodes_is_deleted_too(topics, store):
    await store.create(paths.topic("t"), encode_topic(TopicAssignment(None, {0: ReplicaAssignment((1,))})))
    assert await topics.delete_topic("t") is None
    assert await store.children(paths.TOPICS) == []


@pytest.mark.parametrize("name", ["none", "", "..", "a/b"])
async def test_changes_of_a_missing_topic_are_refused_as_unknown(topics, name):
    with fails_with(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        await topics.delete_topic(name)
    with fails_with(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        await topics.create_partitions(name, 2)
    with fails_with(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        await topics.alter_topic_config(name, lambda overrides: overrides)


async def test_settings_left_by_an_earlier_topic_do_not_reach_a_new_one(topics, store):
    await store.create(paths.topic_config("t"), b'{"version":1,"config":{"old":"1"}}')
    await store.create(paths.topic_config("u"), b'{"version":1,"config":{"old":"1"}}')
    await topics.create_topic("t", 1, 1, {"new": "2"})
    await topics.create_topic("u", 1, 1)
    assert (await image(store)).topic_configs == {"t": {"new": "2"}}


async def test_partitions_are_added(topics, store):
    created = await topics.create_topic("t", 1, 1)
    after = await topics.create_partitions("t", 3)
    assert after.topic_id == created.topic_id
    partitions = (await image(store)).topics["t"].partitions.values()
    assert [(p.replicas, p.leader, p.leader_epoch) for p in partitions] == [((1,), 1, 0)] * 3
    await topics.create_partitions("t", 4, [[1]])
    assert len((await image(store)).topics["t"].partitions) == 4


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((1,), ErrorCode.INVALID_PARTITIONS),
        ((2,), ErrorCode.INVALID_PARTITIONS),
        ((-1,), ErrorCode.INVALID_PARTITIONS),
        ((2**31 - 1,), ErrorCode.INVALID_PARTITIONS),
        ((4, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((3, [[9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_partitions_that_cannot_be_added_are_refused(topics, store, arguments, code):
    await topics.create_topic("t", 2, 1)
    with fails_with(code):
        await topics.create_partitions("t", *arguments)
    assert len((await image(store)).topics["t"].partitions) == 2


async def test_partitions_are_not_added_during_a_reassignment(topics, store):
    moving = TopicAssignment(None, {0: ReplicaAssignment((1, 2), adding_replicas=(2,))})
    await store.create(paths.topic("t"), encode_topic(moving))
    with fails_with(ErrorCode.REASSIGNMENT_IN_PROGRESS):
        await topics.create_partitions("t", 2)


async def test_settings_are_changed_from_what_they_are(topics, store):
    await topics.create_topic("t", 1, 1)
    for key in "abc":
        await topics.alter_topic_config("t", lambda before, key=key: {**before, key: "1"})
    assert await topics.alter_topic_config("t", lambda before: {"b": before["b"]}) == {"b": "1"}
    await topics.alter_broker_config(1, lambda _: {"x": "1"})
    await topics.alter_broker_config(None, lambda _: {"y": "2"})
    shown = await image(store)
    assert shown.topic_configs == {"t": {"b": "1"}}
    assert shown.config_of_broker(1) == {"x": "1", "y": "2"}


async def test_racing_changes_of_settings_are_all_kept(topics, store):
    await topics.create_topic("t", 1, 1)
    changes = (topics.alter_topic_config("t", lambda before, n=n: {**before, str(n): "x"}) for n in range(5))
    await asyncio.gather(*changes)
    assert (await image(store)).config_of_topic("t") == {str(n): "x" for n in range(5)}


async def test_a_change_of_settings_that_is_refused_changes_nothing(topics, store):
    def refuse(_):
        raise KafkaError(ErrorCode.INVALID_CONFIG, "no")

    await topics.create_topic("t", 1, 1)
    with fails_with(ErrorCode.INVALID_CONFIG):
        await topics.alter_topic_config("t", refuse)
    assert (await image(store)).topic_configs == {}


async def test_settings_do_not_outlive_a_topic_that_is_deleted_meanwhile(topics, store, term):
    await topics.create_topic("t", 1, 1)
    store.before_write = lambda: TopicController(store.reliable, lambda: term).delete_topic("t")
    with fails_with(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        await topics.alter_topic_config("t", lambda _: {"a": "1"})
    assert await store.children(paths.TOPIC_CONFIGS) == []


async def test_a_deletion_takes_partitions_that_are_added_meanwhile(topics, store, term):
    await topics.create_topic("t", 1, 1)
    store.before_write = lambda: TopicController(store.reliable, lambda: term).create_partitions("t", 3)
    await topics.delete_topic("t")
    assert await store.children(paths.TOPICS) == []


CHANGES = {
    "create": lambda topics: topics.create_topic("new", 2, 1, {"a": "1"}),
    "delete": lambda topics: topics.delete_topic("t"),
    "partitions": lambda topics: topics.create_partitions("t", 3),
    "topic config": lambda topics: topics.alter_topic_config("t", lambda _: {"a": "1"}),
    "broker config": lambda topics: topics.alter_broker_config(1, lambda _: {"a": "1"}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_change_whose_reply_was_lost_is_done(topics, store, change):
    await topics.create_topic("t", 1, 1)
    before = await image(store)
    store.lose_replies = 1
    await change(topics)
    assert await image(store) != before


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_change_whose_request_was_lost_times_out_and_was_not_done(topics, store, change):
    await topics.create_topic("t", 1, 1)
    before = await image(store)
    store.lose_requests = 1
    with fails_with(ErrorCode.REQUEST_TIMED_OUT):
        await change(topics)
    assert await image(store) == before


@pytest.mark.parametrize("change", [CHANGES[name] for name in ("create", "delete", "partitions")])
async def test_a_deposed_controller_is_fenced(topics, store, change):
    await topics.create_topic("t", 1, 1)
    before = await image(store)
    await store.set(paths.CONTROLLER_EPOCH, b"2")
    with fails_with(ErrorCode.NOT_CONTROLLER):
        await change(topics)
    assert await image(store) == before


async def test_a_write_that_loses_every_race_is_given_up(topics, store):
    await topics.create_topic("t", 1, 1)
    path = paths.topic_config("t")
    await store.reliable.multi([Create(path, b'{"config":{}}')])

    async def interfere():
        await store.reliable.multi([Set(path, b'{"config":{}}')])
        store.before_write = interfere

    store.before_write = interfere
    with fails_with(ErrorCode.REQUEST_TIMED_OUT):
        await topics.alter_topic_config("t", lambda _: {"a": "1"})
