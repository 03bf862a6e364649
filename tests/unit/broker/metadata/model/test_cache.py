"""The current image follows the metadata store through watches."""

import asyncio
from types import SimpleNamespace

import pytest

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model import cache as cache_module
from oncelog_broker.metadata.model import reader
from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.metadata.model.payloads import (
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    encode_broker,
    encode_cluster_id,
    encode_config,
    encode_controller,
    encode_partition_state,
    encode_topic,
)
from oncelog_broker.metadata.stores.store import (
    AccessDenied,
    ConnectionLost,
    Create,
    Delete,
    NoNode,
    Set,
    StoreUnavailable,
)

ID = b"i" * 16

NODES = [
    paths.topic("bad"),
    paths.topic_config("bad"),
    paths.broker_config(7),
    paths.broker_id(7),
    paths.CONTROLLER,
    paths.partition_state("old", 0),
]


def topic_operations(name, partitions=1, topic_id=ID, with_states=True):
    assignment = TopicAssignment(topic_id, {p: ReplicaAssignment((1,)) for p in range(partitions)})
    yield Create(paths.topic(name), encode_topic(assignment))
    yield Create(paths.partitions(name))
    for p in range(partitions if with_states else 0):
        yield Create(paths.partition(name, p))
        yield Create(paths.partition_state(name, p), encode_partition_state(PartitionState(1, 0, (1,), 1)))


@pytest.fixture
async def cluster(embedded_store):
    """A metadata store in which a cluster has been created."""
    operations = [Create(path) for path in paths.PERSISTENT]
    await embedded_store.multi([*operations, Create(paths.CLUSTER_ID, encode_cluster_id("cluster"))])
    return embedded_store


@pytest.fixture
async def cache(cluster):
    cache = await MetadataCache.start(cluster)
    yield cache
    await cache.close()


async def settled(cache):
    """Return the image after all changes so far."""
    if cache._refreshing is not None:
        await asyncio.gather(cache._refreshing, return_exceptions=True)
    return cache.image


async def test_a_start_reads_the_whole_store(cluster):
    registration = BrokerRegistration((Endpoint("A", "h", 1),), rack="r")
    stat = await cluster.create(paths.broker_id(1), encode_broker(registration), ephemeral=True)
    await cluster.create(paths.CONTROLLER, encode_controller(ControllerRegistration(1, 0)), ephemeral=True)
    await cluster.multi([*topic_operations("t", 2), Create(paths.topic_config("t"), encode_config({"a": "1"}))])
    await cluster.create(paths.broker_config(None), encode_config({"b": "2"}))
    await cluster.create(paths.broker_config(1), encode_config({"c": "3"}))
    cache = await MetadataCache.start(cluster)
    image = cache.image
    assert image.cluster_id == "cluster"
    assert image.controller_id == 1
    assert (image.brokers[1].epoch, image.brokers[1].rack) == (stat.czxid, "r")
    assert list(image.topics["t"].partitions) == [0, 1]
    assert image.partition("t", 1).leader == 1
    assert image.topic_by_id(ID).name == "t"
    assert image.config_of_topic("t") == {"a": "1"}
    assert image.config_of_broker(1) == {"b": "2", "c": "3"}
    await cache.close()


async def test_an_unfounded_store_is_no_cluster(embedded_store):
    with pytest.raises(NoNode):
        await MetadataCache.start(embedded_store)


@pytest.mark.parametrize("path", NODES)
async def test_nonsense_in_one_node_keeps_no_start_away(cluster, caplog, path):
    await cluster.multi([*topic_operations("old", topic_id=b"o" * 16), *topic_operations("t")])
    await cluster.multi([Set(path, b"{") if "old" in path else Create(path, b"{")])
    cache = await MetadataCache.start(cluster)
    assert cache.image.topics["t"].partitions[0].leader == 1
    assert cache.image.unreadable_topics == ({"bad"} if path == paths.topic("bad") else set())
    assert f"{path} holds no valid metadata" in caplog.text
    await cache.close()


@pytest.mark.parametrize("path", [paths.topic("old"), paths.partition_state("old", 0), paths.topic_config("old")])
async def test_a_corrupted_node_keeps_its_last_value_even_after_a_full_read(cluster, cache, path):
    """A topic whose node is unreadable must stay in the image, because the broker would otherwise delete the topic's
    logs.
    """
    await cluster.multi([*topic_operations("old"), Create(paths.topic_config("old"), encode_config({"a": "1"}))])
    before = await settled(cache)
    await cluster.multi([Set(path, b"{"), *topic_operations("t", topic_id=b"o" * 16)])
    cache._on_change(paths.BROKERS)
    image = await settled(cache)
    assert "t" in image.topics
    assert image.topics["old"] is before.topics["old"]
    assert image.config_of_topic("old") == {"a": "1"}


async def test_a_topic_that_nobody_could_read_is_known_when_it_can_be_read(cluster):
    await cluster.create(paths.topic("bad"), b"{")
    cache = await MetadataCache.start(cluster)
    assert cache.image.unreadable_topics == {"bad"}
    await cluster.delete(paths.topic("bad"))
    await cluster.multi(list(topic_operations("bad")))
    image = await settled(cache)
    assert "bad" in image.topics
    assert not image.unreadable_topics
    await cache.close()


async def test_a_multi_comes_as_one_new_image_to_every_subscriber(cluster, cache):
    seen = []
    cache.subscribe(lambda old, new: seen.append((old, new)))
    before = cache.image
    await cluster.multi([*topic_operations("t", 3), Create(paths.topic_config("t"), encode_config({"a": "1"}))])
    image = await settled(cache)
    assert seen == [(before, image)]
    assert len(image.topics["t"].partitions) == 3
    assert image.config_of_topic("t") == {"a": "1"}


async def test_a_partition_state_changes_one_partition_only(cluster, cache):
    await cluster.multi(list(topic_operations("t", 2)))
    before = await settled(cache)
    state = encode_partition_state(PartitionState(1, 5, (1,), 1))
    await cluster.set(paths.partition_state("t", 1), state)
    after = await settled(cache)
    assert (after.partition("t", 1).leader_epoch, after.partition("t", 1).partition_epoch) == (5, 1)
    assert after.partition("t", 0) is before.partition("t", 0)


async def test_partitions_without_a_state_have_no_leader_until_it_comes(cluster, cache):
    await cluster.multi(list(topic_operations("t", 1, with_states=False)))
    assert (await settled(cache)).partition("t", 0).leader == -1
    state = encode_partition_state(PartitionState(1, 0, (1,), 1))
    await cluster.create(paths.partition_state("t", 0), state, make_parents=True)
    assert (await settled(cache)).partition("t", 0).leader == 1


class MakesAgain:
    """A store in which a topic is deleted, and perhaps made again, when its node was read and its states were not."""

    def __init__(self, store, *, is_made_again):
        self._store = store
        self._is_made_again = is_made_again

    async def get_many(self, wanted):
        found = await self._store.get_many(wanted)
        if wanted == [paths.topic("t")] and found[0] is not None and found[0][0] == encode_topic(OLD):
            await self._store.multi([Delete(path) for path in PATHS_OF_T])
            if self._is_made_again:
                await self._store.multi(list(topic_operations("t", topic_id=b"j" * 16)))
        return found


PATHS_OF_T = [paths.partition_state("t", 0), paths.partition("t", 0), paths.partitions("t"), paths.topic("t")]
OLD = TopicAssignment(ID, {0: ReplicaAssignment((1,))})


@pytest.mark.parametrize("is_made_again", [True, False])
async def test_a_topic_made_again_while_it_is_read_never_has_its_old_id_with_its_new_states(cluster, is_made_again):
    """Simulated seed 420064 (short): the broker led the deleted topic in an epoch of the new one."""
    await cluster.multi(list(topic_operations("t")))
    store = MakesAgain(cluster, is_made_again=is_made_again)
    read = await reader.read_topics(store, reader.NOTHING_KNOWN, ["t"])
    if is_made_again:
        assert [(topic.topic_id, topic.partitions[0].leader) for topic in read.found] == [(b"j" * 16, 1)]
    else:
        assert [topic.partitions[0].leader for topic in read.found] in ([], [-1])


async def test_the_new_state_of_a_topic_that_was_made_again_comes_with_its_new_id(cluster):
    """A watch has reported the deleted state, and not yet the deleted topic (simulated seed 420064)."""
    await cluster.multi(list(topic_operations("t")))
    image = (await reader.read_topics(cluster, reader.NOTHING_KNOWN, ["t"])).put_into(ClusterImage("cluster"))
    await cluster.multi([Delete(path) for path in PATHS_OF_T])
    await cluster.multi(list(topic_operations("t", topic_id=b"j" * 16)))
    (topic,) = await reader.read_partitions(cluster, image, [reader.PartitionKey("t", 0)])
    assert (topic.topic_id, topic.partitions[0].leader) == (b"j" * 16, 1)


async def test_the_first_states_of_a_large_topic_are_read_without_reading_the_topic_each_time(cluster, monkeypatch):
    """The controller creates most states after the topic."""
    await cluster.multi(list(topic_operations("t", 3, with_states=False)))
    image = (await reader.read_topics(cluster, reader.NOTHING_KNOWN, ["t"])).put_into(ClusterImage("cluster"))
    state = Create(paths.partition_state("t", 2), encode_partition_state(PartitionState(1, 0, (1,), 1)))
    await cluster.multi([Create(paths.partition("t", 2)), state])
    monkeypatch.setattr(reader, "read_topics", None)
    (topic,) = await reader.read_partitions(cluster, image, [reader.PartitionKey("t", 2)])
    assert [topic.partitions[index].leader for index in range(3)] == [-1, -1, 1]


async def test_a_topic_deleted_and_made_again_has_its_new_id(cluster, cache):
    await cluster.multi(list(topic_operations("t", with_states=False)))
    await settled(cache)
    again = topic_operations("t", topic_id=b"j" * 16, with_states=False)
    await cluster.multi([Delete(paths.partitions("t")), Delete(paths.topic("t")), *again])
    image = await settled(cache)
    assert (image.topic_by_id(ID), image.topic("t").topic_id) == (None, b"j" * 16)
    await cluster.multi([Delete(paths.partitions("t")), Delete(paths.topic("t"))])
    assert not (await settled(cache)).topics


async def test_brokers_controller_and_settings_come_and_go(cluster, cache):
    registration = encode_broker(BrokerRegistration((Endpoint("A", "h", 1),)))
    controller = encode_controller(ControllerRegistration(1, 0))
    config = encode_config({"a": "1"})
    here = [(paths.broker_id(1), registration), (paths.CONTROLLER, controller)]
    here += [(path, config) for path in (paths.topic_config("t"), paths.broker_config(1), paths.broker_config(None))]
    await cluster.multi([Create(path, data) for path, data in here])
    image = await settled(cache)
    assert (list(image.brokers), image.controller_id) == ([1], 1)
    assert (image.topic_configs, image.broker_configs) == ({"t": {"a": "1"}}, {1: {"a": "1"}, None: {"a": "1"}})
    await cluster.multi([Delete(path) for path, _ in here])
    image = await settled(cache)
    assert (dict(image.brokers), image.controller_id, image.topic_configs, image.broker_configs) == ({}, -1, {}, {})


async def test_wait_for_returns_once_image_and_subscribers_have_the_change(cluster, cache):
    seen = []
    cache.subscribe(lambda _, new: seen.append("t" in new.topics))
    waiting = asyncio.ensure_future(cache.wait_for(lambda image: "t" in image.topics))
    await cluster.multi(list(topic_operations("u", topic_id=b"u" * 16)))
    await settled(cache)
    assert not waiting.done()
    await cluster.multi(list(topic_operations("t")))
    assert "t" in (await waiting).topics
    assert seen == [False, True]
    assert await cache.wait_for(lambda image: "t" in image.topics) is cache.image


async def test_a_wait_that_is_given_up_leaves_nothing_behind(cache):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await cache.wait_for(lambda _: False)
    assert cache._waiting == []


async def test_a_failing_subscriber_stops_nobody(cluster, cache, caplog):
    def fail(_old, _new):
        raise RuntimeError("no good")

    seen = []
    unsubscribe = cache.subscribe(fail)
    cache.subscribe(lambda _, new: seen.append(new))
    await cluster.multi(list(topic_operations("t")))
    assert seen == [await settled(cache)]
    assert "no good" in caplog.text
    unsubscribe()
    unsubscribe()


@pytest.mark.parametrize("path", NODES)
async def test_nonsense_in_one_node_keeps_no_other_change_away(cluster, cache, caplog, path):
    await cluster.multi(list(topic_operations("old", topic_id=b"o" * 16)))
    before = await settled(cache)
    damage = Set(path, b"{") if "old" in path else Create(path, b"{")
    await cluster.multi([damage, *topic_operations("t")])
    image = await settled(cache)
    assert "t" in image.topics
    assert image.topics["old"] is before.topics["old"]
    assert f"{path} holds no valid metadata" in caplog.text


async def test_after_an_outage_the_watched_roots_bring_the_image_up_to_date(unreliable_store, cluster, caplog):
    cache = await MetadataCache.start(unreliable_store)
    unreliable_store.unreachable = True
    await cluster.multi(list(topic_operations("t")))
    assert not (await settled(cache)).topics
    assert "not current" in caplog.text
    unreliable_store.unreachable = False
    cache._on_change(paths.BROKERS)  # the notification that a store sends after a reconnect
    assert "t" in (await settled(cache)).topics
    await cache.close()


async def test_a_reconnect_that_is_told_before_the_failure_is_heard_brings_it_up_to_date_too(
    cluster, cache, monkeypatch
):
    """A read fails with its connection. The reading task learns of the failure some loop turns later, when the store is
    available again.
    """
    get_many = cluster.get_many

    async def fail_late(_paths):
        monkeypatch.setattr(cluster, "get_many", get_many)
        cache._on_change(paths.BROKERS)
        raise ConnectionLost("", "the connection broke")

    monkeypatch.setattr(cluster, "get_many", fail_late)
    await cluster.multi(list(topic_operations("t")))
    assert "t" in (await settled(cache)).topics


class Unreadable:
    """A store on which reads of this node fail with this error until `is_over` is set."""

    def __init__(self, cluster, monkeypatch, path, reason):
        self.is_over = False
        get_many = cluster.get_many

        async def get_others(wanted):
            if path in wanted and not self.is_over:
                raise reason
            return await get_many(wanted)

        monkeypatch.setattr(cluster, "get_many", get_others)


REASONS = [AccessDenied("", "protected"), StoreUnavailable("", "refused"), RuntimeError("unforeseen")]
by_reason = pytest.mark.parametrize("reason", REASONS, ids=repr)


@by_reason
async def test_a_failed_read_is_retried_without_a_notification(cluster, cache, monkeypatch, reason):
    monkeypatch.setattr(cache_module, "AGAIN_SECONDS", 0.0)
    topic = Unreadable(cluster, monkeypatch, paths.topic("t"), reason)
    await cluster.multi(list(topic_operations("t")))
    assert "t" not in (await settled(cache)).topics
    topic.is_over = True
    await cache.wait_for(lambda image: "t" in image.topics)


async def test_an_unreadable_node_is_retried_ever_more_rarely_until_the_cache_closes(cluster, cache, monkeypatch):
    waits = []
    never = SimpleNamespace(cancel=lambda: None)
    loop = SimpleNamespace(
        create_task=asyncio.get_running_loop().create_task,
        call_later=lambda seconds, call: waits.append((seconds, call)) or never,
    )
    monkeypatch.setattr(cache_module, "asyncio", SimpleNamespace(**vars(asyncio) | {"get_running_loop": lambda: loop}))
    Unreadable(cluster, monkeypatch, paths.topic("t"), AccessDenied("", "protected"))
    await cluster.multi(list(topic_operations("t")))
    await settled(cache)
    for _ in range(8):
        waits[-1][1]()
        await settled(cache)
    assert [seconds for seconds, _ in waits] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    await cache.close()
    waits[-1][1]()
    await settled(cache)
    assert len(waits) == 9


@by_reason
async def test_an_unreadable_node_keeps_no_other_change_away(cluster, cache, monkeypatch, reason):
    Unreadable(cluster, monkeypatch, paths.topic("t"), reason)
    await cluster.multi(list(topic_operations("t")))
    await settled(cache)
    await cluster.multi(list(topic_operations("u", topic_id=b"u" * 16)))
    assert list((await settled(cache)).topics) == ["u"]


@by_reason
@pytest.mark.parametrize("again", [60.0, 0.0], ids=["", "while it is read again already"])
async def test_an_image_without_an_unreadable_node_is_not_current(cluster, cache, monkeypatch, reason, again):
    monkeypatch.setattr(cache_module, "AGAIN_SECONDS", again)
    topic = Unreadable(cluster, monkeypatch, paths.topic("t"), reason)
    await cluster.multi(list(topic_operations("t")))
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await cache.synced()
    topic.is_over = True
    assert "t" in (await cache.synced()).topics


async def test_a_wait_whose_condition_raises_fails_alone(cluster, cache):
    def shows(image):
        return image.topics["u"] if image.topics else None  # a mistake

    waiting = [asyncio.ensure_future(cache.wait_for(each)) for each in (shows, lambda image: "t" in image.topics)]
    await asyncio.sleep(0)
    await cluster.multi(list(topic_operations("t")))
    failed, image = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(failed, KeyError)
    assert "t" in image.topics


async def test_changes_during_a_refresh_are_taken_in_the_next_round(cluster, cache):
    def change_once(_old, new):
        if "u" not in new.topics:
            writes.append(asyncio.ensure_future(cluster.multi(list(topic_operations("u", topic_id=b"u" * 16)))))

    writes = []
    cache.subscribe(change_once)
    await cluster.multi(list(topic_operations("t")))
    await cache.wait_for(lambda image: len(image.topics) == 2)
    assert len(writes) == 1


async def test_a_closed_cache_keeps_its_last_image(cluster, cache):
    await cache.close()
    await cluster.multi(list(topic_operations("t")))
    assert not (await settled(cache)).topics


async def test_a_synced_image_is_not_older_than_the_request(cluster, cache, monkeypatch):
    """The watch has reported the topic, but the topic is not read yet."""
    may_read, get_many = asyncio.Event(), cluster.get_many

    async def slow(paths):
        await may_read.wait()
        return await get_many(paths)

    monkeypatch.setattr(cluster, "get_many", slow)
    await cluster.multi(list(topic_operations("orders")))
    synced = asyncio.ensure_future(cache.synced())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not synced.done()
    may_read.set()
    assert (await synced).has_partition("orders", 0)


async def test_a_failed_sync_yields_no_image(cluster, cache, monkeypatch):
    async def broken(paths):
        raise ConnectionLost("", "the store is not there")

    monkeypatch.setattr(cluster, "get_many", broken)
    await cluster.multi(list(topic_operations("orders")))
    with pytest.raises(StoreUnavailable):
        await cache.synced()


async def test_a_change_during_the_first_read_is_not_overwritten_by_it(cluster, monkeypatch):
    """The initial read must not overwrite a newer change, because a broker that starts while its partitions get leaders
    would then never learn of these leaders.
    """
    await cluster.multi(list(topic_operations("orders")))
    read_image, was_read, may_end = reader.read_image, asyncio.Event(), asyncio.Event()

    async def slow(store, **pause):
        image = await read_image(store, **pause)
        was_read.set()
        await may_end.wait()
        return image

    monkeypatch.setattr(reader, "read_image", slow)
    starting = asyncio.ensure_future(MetadataCache.start(cluster))
    await was_read.wait()
    elected = encode_partition_state(PartitionState(2, 7, (2,), 1))
    await cluster.multi([Set(paths.partition_state("orders", 0), elected)])
    for _ in range(10):
        await asyncio.sleep(0)
    may_end.set()
    cache = await starting
    assert (await settled(cache)).partition("orders", 0).leader_epoch == 7
    await cache.close()


async def test_a_topic_is_never_shown_without_the_settings_that_were_made_with_it(cluster, monkeypatch):
    """ZooKeeper reports each change of a multi-change write separately. In this test, the change of the settings is
    reported late or never.
    """
    watch = cluster.watch
    monkeypatch.setattr(
        cluster, "watch", lambda path, callback: watch(path, callback) if path != paths.CONFIG else lambda: None
    )
    cache = await MetadataCache.start(cluster)
    await cluster.multi([*topic_operations("t"), Create(paths.topic_config("t"), encode_config({"a": "1"}))])
    image = await cache.wait_for(lambda image: image.topic("t") is not None)
    assert image.config_of_topic("t") == {"a": "1"}
    await cache.close()


async def test_s74_a_replaced_store_is_not_read(cluster, caplog):
    """The metadata store was replaced by another one. Topics that the other store lacks would otherwise count as
    deleted, and the broker would delete their logs.
    """
    is_wrong = False

    async def check():
        if is_wrong:
            raise StoreUnavailable("", "another store")

    cache = await MetadataCache.start(cluster, check_store=check)
    await cluster.multi(list(topic_operations("t")))
    assert "t" in (await settled(cache)).topics
    is_wrong = True
    for path in (paths.partition_state("t", 0), paths.partition("t", 0), paths.partitions("t"), paths.topic("t")):
        cache._on_change(paths.BROKERS)  # a session began on the metadata store that replaces the first
        await settled(cache)
        await cluster.delete(path)
        assert "t" in (await settled(cache)).topics
    assert "another store" in caplog.text
    is_wrong = False
    cache._on_change(paths.BROKERS)
    assert "t" not in (await settled(cache)).topics
    await cache.close()


async def test_subscriptions_of_client_metrics_are_followed(cluster, cache):
    path = paths.client_metrics_config("a/b")
    await cluster.create(path, encode_config({"metrics": "*"}), make_parents=True)
    image = await cache.wait_for(lambda image: bool(image.client_metrics))
    assert image.client_metrics == {"a/b": {"metrics": "*"}}
    assert image.config_of_client_metrics("other") == {}
    await cluster.set(path, encode_config({"interval.ms": "100"}))
    await cache.wait_for(lambda image: image.config_of_client_metrics("a/b") == {"interval.ms": "100"})
    assert (await reader.read_image(cluster)).client_metrics == cache.image.client_metrics
    await cluster.delete(path)
    await cache.wait_for(lambda image: not image.client_metrics)
