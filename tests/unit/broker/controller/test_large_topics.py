"""Topics that are too large for one write are created and deleted in several writes, even if the controller changes
meanwhile.
"""

import asyncio
from itertools import pairwise

import pytest
from tests.support.controlled_brokers import ControlledBrokers
from tests.support.loop_turns import turns

from oncelog_broker.controller import topics as topics_module
from oncelog_broker.controller import writer
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model import payloads
from oncelog_broker.metadata.model.payloads import ReplicaAssignment, TopicAssignment, encode_topic
from oncelog_protocol.errors import ErrorCode, KafkaError


@pytest.fixture(autouse=True)
def small_writes(monkeypatch):
    monkeypatch.setattr(topics_module, "PARTITIONS_WITH_THE_TOPIC", 3)
    monkeypatch.setattr(topics_module, "MAX_OPERATIONS_PER_MULTI", 6)
    monkeypatch.setattr(writer, "MAX_PARTITIONS_PER_MULTI", 4)


@pytest.fixture
async def cluster():
    cluster = ControlledBrokers()
    for broker in (1, 2):
        await cluster.start(broker)
    return cluster


@pytest.fixture
async def term(cluster):
    return await cluster.control(1)


@pytest.fixture
def topics(cluster, term):
    return TopicController(cluster.sessions[1], lambda: term)


def largest_write(cluster):
    sizes = []
    cluster.sessions[1].on_write = lambda operations: sizes.append(len(operations))
    return sizes


async def test_a_large_topic_gets_its_leaders_in_pieces(cluster, topics):
    sizes = largest_write(cluster)
    await topics.create_topic("t", 10, 2)
    assert len(sizes) == 3
    states = await cluster.states()
    assert len(states) == 10
    assert all(leader in (1, 2) and epoch == 0 and set(isr) == {1, 2} for leader, epoch, isr in states.values())


async def test_other_work_gets_its_turn_while_a_large_topic_is_written(cluster, topics, term, monkeypatch):
    """Other work runs between any two steps, also while the controller reads the outcome of a write whose reply was
    lost.
    """
    done = []

    def watched(steps):
        def run(*arguments):
            running = steps(*arguments)
            while True:
                try:
                    step = next(running)
                except StopIteration as finished:
                    return finished.value
                done.append("step")
                yield step

        return run

    async def pause():
        done.append("pause")

    monkeypatch.setattr(payloads, "PARTITIONS_PER_STEP", 2)
    for name in ("topic_encoded_in_steps", "topic_in_steps"):
        monkeypatch.setattr(topics_module, name, watched(getattr(payloads, name)))
    monkeypatch.setattr(term, "pause", pause)
    cluster.sessions[1].lose_replies = 1
    for change, steps in (
        (topics.create_topic("t", 8, 1), 4 + 5),  # the reply to this write is lost
        (topics.create_partitions("t", 16), 5 + 8),  # the topic is read first
        (topics.delete_topic("t"), 2 * 9),  # the topic is read before and after it is marked
    ):
        done.clear()
        await change
        assert done.count("step") == steps
        assert all(after == "pause" for step, after in pairwise(done) if step == "step")


async def test_the_next_controller_finishes_an_interrupted_topic_creation(cluster, topics):
    await cluster.admin.delete(paths.CONTROLLER)

    def next_one(operations):
        cluster.sessions[1].on_write = None
        cluster.sessions[1].is_cut = True  # cut off after this write, which creates the topic with three partitions

    cluster.sessions[1].on_write = next_one
    with pytest.raises(KafkaError) as raised:
        await topics.create_topic("t", 10, 1)
    assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert sum(leader > 0 for leader, _, _ in (await cluster.states()).values()) == 3
    await cluster.control(2)
    assert all(leader > 0 for leader, _, _ in (await cluster.states()).values())


async def test_a_large_topic_goes_in_pieces_and_is_led_by_nobody_meanwhile(cluster, topics, term):
    created = await topics.create_topic("t", 10, 2)
    seen = []
    cluster.shared.judges.append(lambda path: seen.append(path))
    assert await topics.delete_topic("t") == created.topic_id
    assert seen.index(paths.deletion("t")) < seen.index(paths.partition_state("t", 0))
    assert await cluster.admin.children(paths.TOPICS) == []
    assert await cluster.admin.children(paths.DELETE_TOPICS) == []
    assert await topics.create_topic("t", 1, 1)


@pytest.mark.parametrize("pieces", [0, 1, 2])
async def test_a_deletion_that_was_cut_short_is_finished_by_the_next_controller(cluster, topics, pieces):
    await topics.create_topic("t", 10, 2)
    await topics.create_topic("kept", 1, 2)
    left = [pieces + 2]  # one node is the parent of the deletion mark, the other is the mark itself

    def cut(operations):
        left[0] -= 1
        cluster.sessions[1].is_cut = left[0] <= 0

    cluster.sessions[1].on_write = cut
    with pytest.raises(KafkaError):
        await topics.delete_topic("t")
    await cluster.admin.delete(paths.CONTROLLER)
    second = await cluster.control(2)
    assert "t" in second.view.doomed
    cluster.stop(1)
    await second.brokers_changed()  # elects a leader for the topic that still exists, and none for the deleted topic
    assert not [key for key, known in second.view.states.items() if key.topic == "t" and known.version > 0]
    await TopicController(cluster.sessions[2], lambda: second).finish_deletions(second)
    assert await cluster.admin.children(paths.TOPICS) == ["kept"]
    assert await cluster.admin.children(paths.DELETE_TOPICS) == []
    assert (await cluster.states("kept"))[0][0] == 2


async def test_a_mark_that_comes_late_dooms_no_other_topic_of_the_name(cluster, topics, term):
    await topics.create_topic("t", 1, 1)
    await cluster.admin.create(paths.deletion("t"), b"id of the one before", make_parents=True)
    await term.read_all()
    assert term.view.doomed == set()
    await topics.finish_deletions(term)
    assert await cluster.admin.children(paths.DELETE_TOPICS) == []
    assert await cluster.admin.children(paths.TOPICS) == ["t"]


async def test_a_topic_on_its_way_out_gets_no_partitions(cluster, topics, term):
    await topics.create_topic("t", 1, 1)
    term.view.doomed.add("t")
    with pytest.raises(KafkaError) as raised:
        await topics.create_partitions("t", 3)
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_partitions_are_added_in_pieces_too(cluster, topics):
    await topics.create_topic("t", 1, 2)
    await topics.create_partitions("t", 12)
    assert all(leader > 0 for leader, _, _ in (await cluster.states()).values())


def test_ten_thousand_partitions_fit_into_the_write_that_makes_the_topic():
    topic = TopicAssignment(b"i" * 16, {p: ReplicaAssignment((1001, 1002, 1003)) for p in range(10_000)})
    assert len(encode_topic(topic)) < writer.MAX_MULTI_BYTES


def before_the_next(cluster, path, interfere):
    """Run `interfere` once, before the controller's session next writes to this path."""
    session = cluster.sessions[1]
    write = session.multi

    async def multi(operations):
        if session.multi is not write and any(operation.path == path for operation in operations):
            session.multi = write
            await interfere()
        return await write(operations)

    session.multi = multi


async def test_a_deletion_in_pieces_is_of_the_topic_that_it_began_with(cluster, topics, term):
    """The client retries its request, and auto-creation creates another topic with the same name as soon as the old
    topic is gone.
    """
    first = await topics.create_topic("t", 10, 2)
    others = []

    async def asked_again_and_made_anew():
        for change in (topics.delete_topic("t", first.topic_id), topics.create_topic("t", 10, 2)):
            others.append(asyncio.create_task(change))
            await turns(100)  # a deletion that takes fewer steps than this is not interrupted

    before_the_next(cluster, paths.partition_state("t", 5), asked_again_and_made_anew)
    assert await topics.delete_topic("t") == first.topic_id
    refused, second = await asyncio.gather(*others, return_exceptions=True)
    assert refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert all(leader > 0 for leader, _, _ in (await cluster.states()).values())
    assert len(second.partitions) == len(await cluster.states()) == 10


async def test_deletions_continue_though_one_of_them_was_ended_by_somebody_else(cluster, topics, term):
    for name in ("a", "b", "c"):
        created = await topics.create_topic(name, 10, 2)
        await cluster.admin.create(paths.deletion(name), payloads.encode_mark(created), make_parents=True)
    await term.read_all()

    async def made_anew():
        await topics.delete_topic("b")
        await topics.create_topic("b", 1, 2)

    before_the_next(cluster, paths.partition_state("a", 5), made_anew)
    await topics.finish_deletions(term)
    assert await cluster.admin.children(paths.TOPICS) == ["b"]
    assert await cluster.admin.children(paths.DELETE_TOPICS) == []


async def test_a_topic_is_doomed_though_everything_is_read_just_then(cluster, topics, term):
    """The controller read the deletion marks before this topic was marked. The controller must not elect leaders for
    this topic's partitions from the outdated view.
    """
    await topics.create_topic("t", 10, 2)
    session, have_been_read, go_on = cluster.sessions[1], asyncio.Event(), asyncio.Event()
    children = session.children

    async def slow_children(path):
        try:
            return await children(path)
        finally:
            if path == paths.DELETE_TOPICS:
                have_been_read.set()
                await go_on.wait()

    session.children = slow_children
    reading = asyncio.create_task(term.read_all())
    await have_been_read.wait()
    doomed, going_on = [], []

    async def has_been_read():
        await reading
        doomed.append("t" in term.view.doomed)

    async def go_on_later():
        await turns()
        go_on.set()

    def judge(path):
        if path == paths.deletion("t"):
            going_on.append(asyncio.create_task(go_on_later()))

    cluster.shared.judges.append(judge)
    before_the_next(cluster, paths.partition_state("t", 0), has_been_read)
    await topics.delete_topic("t")
    assert doomed == [True]
