"""Tests oncelog's consumers as members of groups on a live broker. A `Ledger` records which member owns each partition
and which member reads each record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator

import pytest
from broker_process import BrokerFactory, BrokerProcess
from group_members import QUICK, Group, Member, Writer, group_of, until

from oncelog import Admin, Consumer, KafkaError, NewTopic, OffsetAndMetadata, RebalanceListener, TopicPartition
from oncelog.errors import CommitFailed, ErrorCode, FencedInstance, OffsetOutOfRange

PARTITIONS = 6
STRATEGIES = [("range",), ("roundrobin",), ("sticky",), ("cooperative-sticky",), ("range", "cooperative-sticky")]
SETTINGS = {"group.min.session.timeout.ms": "300", "log.segment.bytes": "1048576"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("groups") / "data", SETTINGS)
    with process:
        yield process
    assert "Traceback" not in process.log.read_text()


async def create(address: str, topic: str, partitions: int = PARTITIONS) -> None:
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, partitions)])


@pytest.fixture
async def group(broker: BrokerProcess, topic: str) -> AsyncIterator[Group]:
    await create(broker.address, topic)
    async with group_of(broker.address, f"group-{topic}") as members:
        yield members


@pytest.fixture
async def writer(broker: BrokerProcess, topic: str, group: Group) -> AsyncIterator[Writer]:
    async with Writer(broker.address, topic, PARTITIONS) as running:
        yield running


async def all_read(group: Group, writer: Writer) -> None:
    await until(lambda: len(group.ledger.values) >= writer.written, "all records read")
    group.ledger.assert_each_read_once()
    assert sorted(group.ledger.values) == sorted(b"%d" % number for number in range(writer.written))


@pytest.mark.parametrize("strategy", STRATEGIES, ids="+".join)
async def test_members_share_the_work_as_they_come_and_go(
    group: Group, writer: Writer, topic: str, strategy: tuple[str, ...]
) -> None:
    options = {"partition_assignment_strategy": strategy, "auto_commit_interval_ms": 100}
    writer.start()
    first = await group.join("first", topic, **options)
    await group.balanced(6)
    second = await group.join("second", topic, **options)
    await group.balanced(3, 3)
    third = await group.join("third", topic, **options)
    await group.balanced(2, 2, 2)
    for member in (first, second, third):
        seen = member.count
        await until(lambda member=member, seen=seen: member.count > seen, f"{member.name} reads")
    group.members.remove(first)
    await first.close()
    await group.balanced(3, 3)
    group.members.remove(third)
    await third.close()
    await group.balanced(6)
    await writer.stop()
    await all_read(group, writer)
    assert second.consumer.lag(TopicPartition(topic, 0)) == 0


async def test_cooperative_members_never_let_go_of_what_they_keep(group: Group, writer: Writer, topic: str) -> None:
    options = {"partition_assignment_strategy": ["cooperative-sticky"]}
    first = await group.join("first", topic, **options)
    await group.balanced(6)
    await group.join("second", topic, **options)
    await group.balanced(3, 3)
    moved = [partitions for kind, partitions in first.calls if kind == "revoked"]
    assert len(moved) == 1
    assert len(moved[0]) == 3
    assert first.assignment.isdisjoint(moved[0])
    await writer.write(60)
    await all_read(group, writer)


async def test_cooperative_members_read_on_while_the_group_waits_for_somebody(
    group: Group, writer: Writer, topic: str
) -> None:
    options = {"partition_assignment_strategy": ["cooperative-sticky"], "max_poll_interval_ms": 60_000}
    first = await group.join("first", topic, **options)
    late = await group.join("late", topic, **options)
    await group.balanced(3, 3)
    await until(lambda: first.consumer._group._join_task is None, "the first member is through with it")  # type: ignore[union-attr]
    await late.rest()
    polls = late.polls
    third = await group.join("third", topic, **options)
    await until(lambda: first.consumer._group._join_task is not None, "the first member joins")  # type: ignore[union-attr]
    seen = first.count
    await writer.write(60)
    await until(lambda: first.count >= seen + 30, "the first member reads its three partitions meanwhile")
    assert late.polls == polls
    assert not third.assignment
    late.is_polling = True
    await group.balanced(2, 2, 2)
    await all_read(group, writer)


async def test_a_static_member_comes_back_to_its_partitions(group: Group, writer: Writer, topic: str) -> None:
    options = {"session_timeout_ms": 20_000}
    first = await group.join("first", topic, group_instance_id="one", **options)
    second = await group.join("second", topic, group_instance_id="two", **options)
    await group.balanced(3, 3)
    await writer.write(60)
    await until(lambda: len(group.ledger.values) == 60)
    before, generation = second.assignment, first.generation
    group.members.remove(second)
    await second.close()
    await writer.write(60)
    again = await group.join("second", topic, group_instance_id="two", **options)
    await until(lambda: again.assignment == before, "the same partitions")
    assert first.generation == again.generation == generation
    assert [kind for kind, _ in first.calls].count("revoked") <= 1
    await all_read(group, writer)


async def test_a_new_owner_of_an_instance_id_fences_the_former_one(group: Group, topic: str) -> None:
    first = await group.join("first", topic, group_instance_id="one")
    await group.balanced(6)
    group.ledger.owner.clear()  # The fenced member notices the fencing only after the new member has partitions.
    await group.join("second", topic, group_instance_id="one")
    assert isinstance(await first.outcome(), FencedInstance)
    with pytest.raises(FencedInstance):
        await first.consumer.poll(0)
    group.members.remove(first)
    await first.consumer.close()
    assert first.calls[-1][0] == "lost"
    await group.balanced(6)


async def test_a_member_that_does_not_poll_loses_its_partitions_and_is_notified(
    group: Group, writer: Writer, topic: str
) -> None:
    first = await group.join("first", topic)
    idle = await group.join("idle", topic, max_poll_interval_ms=400)
    await group.balanced(3, 3)
    had = idle.assignment
    await idle.rest()
    # The rebalance does not call the listener of the idle member, so the test removes the member's partitions from the
    # ledger.
    group.ledger.owner = {place: name for place, name in group.ledger.owner.items() if name != "idle"}
    await group.balanced(6)
    with pytest.raises(CommitFailed):
        await idle.consumer.commit({TopicPartition(topic, 0): 0})
    await writer.write(60)
    await until(lambda: first.count == 60)
    idle.is_polling = True
    await group.balanced(3, 3)
    assert ("lost", tuple(sorted(had))) in idle.calls
    await all_read(group, writer)


async def test_a_member_that_is_closed_while_it_joins_leaves_nothing_behind(group: Group, topic: str) -> None:
    first = await group.join("first", topic)
    await group.balanced(6)
    await first.rest()
    second = await group.join("second", topic)
    await until(lambda: second.consumer._group._join_task is not None)  # type: ignore[union-attr]
    group.members.remove(second)
    async with asyncio.timeout(30):
        await second.close()
    first.is_polling = True
    await group.balanced(6)


async def test_a_pattern_follows_topics_as_they_come(broker: BrokerProcess, group: Group, topic: str) -> None:
    member = await group.join("first", pattern=rf"{topic}.*", metadata_max_age_ms=100)
    await until(lambda: len(member.assignment) == PARTITIONS)
    await create(broker.address, f"{topic}-more", 2)
    await until(lambda: len(member.assignment) == PARTITIONS + 2)
    assert not any(partition.topic.startswith("__") for partition in member.assignment)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_a_deleted_topic_delays_no_member(broker: BrokerProcess, group: Group, topic: str, strategy: str) -> None:
    """The offsets of a deleted topic can no longer be committed; no member may wait for such a commit, neither before
    the next rebalance nor after it.
    """
    await create(broker.address, f"{topic}-gone", 2)
    options = {"metadata_max_age_ms": 100, "partition_assignment_strategy": [strategy]}
    for name in ("first", "second"):
        await group.join(name, pattern=rf"{topic}.*", **options)
    await group.balanced(4, 4)
    members = group.members
    await until(lambda: all(member.consumer.lag(at) == 0 for member in members for at in member.assignment))
    async with Admin(broker.address) as admin:
        await admin.delete_topics([f"{topic}-gone"])
    async with asyncio.timeout(30):
        await group.balanced(3, 3)


async def test_the_leader_sees_new_partitions(broker: BrokerProcess, group: Group, topic: str) -> None:
    for name in ("first", "second"):
        await group.join(name, topic, metadata_max_age_ms=100)
    await group.balanced(3, 3)
    async with Admin(broker.address) as admin:
        await admin.create_partitions({topic: 8})
    await group.balanced(4, 4)


async def test_another_subscription_takes_the_place_of_the_first(
    broker: BrokerProcess, group: Group, topic: str
) -> None:
    await create(broker.address, f"{topic}-other", 2)
    member = await group.join("first", topic, partition_assignment_strategy=["cooperative-sticky"])
    await group.balanced(6)
    member.consumer.subscribe([f"{topic}-other"], listener=member)
    await until(lambda: {partition.topic for partition in member.assignment} == {f"{topic}-other"})
    await group.balanced(2)


async def test_committed_offsets_are_those_given(
    broker: BrokerProcess, group: Group, writer: Writer, topic: str
) -> None:
    await writer.write(12)
    place, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(broker.address, group_id=group.name, **{**QUICK, "enable_auto_commit": False}) as consumer:
        consumer.subscribe([topic])
        read = 0
        while read < 12:
            read += sum(map(len, (await consumer.poll(1_000)).values()))
        assert await consumer.committed([place]) == {place: None}
        await consumer.commit({place: OffsetAndMetadata(1, "so far")})
        assert await consumer.committed([place, other]) == {place: OffsetAndMetadata(1, "so far"), other: None}
        await consumer.commit()
        found = await consumer.committed([place, other])
        assert {partition: (told.offset, told.leader_epoch) for partition, told in found.items() if told} == {
            place: (2, 0),
            other: (2, 0),
        }
        with pytest.raises(KafkaError):
            await consumer.commit({place: OffsetAndMetadata(1, "x" * 10_000)})
        with pytest.raises(ValueError):
            await consumer.commit({place: -1})
        consumer.seek(place, 1)
        assert [record.offset for records in (await consumer.poll(1_000)).values() for record in records] == [1]
    # The next consumer begins at the committed offset, although the previous consumer has read further.
    async with Consumer(broker.address, group_id=group.name, **QUICK) as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment():
            await consumer.poll(50)
        assert await consumer.position(place) == 2


async def test_a_manually_assigned_consumer_commits(
    broker: BrokerProcess, group: Group, writer: Writer, topic: str
) -> None:
    await writer.write(12)
    place = TopicPartition(topic, 0)
    async with Consumer(broker.address, group_id=group.name, **QUICK) as consumer:
        consumer.assign([place])
        records = await consumer.poll(5_000)
        assert len(records[place]) == 2
        with pytest.raises(ValueError):
            consumer.subscribe([topic])
        assert consumer.group_metadata().generation_id == -1
    async with Consumer(broker.address, group_id=group.name, **QUICK) as consumer:
        consumer.assign([place])
        assert await consumer.position(place) == 2
        await consumer.unsubscribe()
        assert not consumer.assignment()


@pytest.mark.parametrize(("policy", "start"), [("earliest", 0), ("latest", 2)])
async def test_the_reset_policy_decides_where_to_start_without_a_commit(
    broker: BrokerProcess, group: Group, writer: Writer, topic: str, policy: str, start: int
) -> None:
    await writer.write(12)
    options = {**QUICK, "auto_offset_reset": policy}
    async with Consumer(broker.address, group_id=group.name, **options) as consumer:

        class Pause(RebalanceListener):
            async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
                consumer.pause(*partitions)

        consumer.subscribe([topic], listener=Pause())
        while not consumer.assignment():
            await consumer.poll(50)
        assert await consumer.position(TopicPartition(topic, 0)) == start


async def test_without_a_commit_and_a_policy_there_is_an_error(broker: BrokerProcess, group: Group, topic: str) -> None:
    async with Consumer(broker.address, group_id=group.name, **{**QUICK, "auto_offset_reset": "none"}) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(OffsetOutOfRange):
            while True:
                await consumer.poll(1_000)


async def test_iterating_commits_and_rebalances_too(
    broker: BrokerProcess, group: Group, writer: Writer, topic: str
) -> None:
    options = {**QUICK, "auto_commit_interval_ms": 20}
    await writer.write(60)
    async with Consumer(broker.address, group_id=group.name, **options) as consumer:
        consumer.subscribe([topic])
        taken = []
        other: Member | None = None
        async for record in consumer:
            taken.append((record.partition, record.offset))
            await asyncio.sleep(0.005)
            if len(taken) == 20:
                other = await group.join("other", topic)
            if other is not None and len(consumer.assignment()) == 3 and len(other.assignment) == 3:
                break
            if len(taken) % 10 == 0:
                await writer.write(12)
        assert len(taken) == len(set(taken))
        # During an iteration, auto-commit commits the offsets of the records with which the application has finished.
        found = await consumer.committed([TopicPartition(topic, index) for index in range(PARTITIONS)])
        assert sum(told.offset for told in found.values() if told) > 0
    assert other is not None
    await group.balanced(6)


async def test_a_cancelled_poll_loses_nothing(broker: BrokerProcess, group: Group, writer: Writer, topic: str) -> None:
    async with Consumer(broker.address, group_id=group.name, **QUICK) as consumer:
        consumer.subscribe([topic])
        await writer.write(60)
        taken: list[tuple[int, int]] = []
        delay_s = 0.0
        while len(taken) < 60:
            delay_s += 0.002
            try:
                async with asyncio.timeout(delay_s):
                    for records in (await consumer.poll(5_000, max_records=7)).values():
                        taken += [(record.partition, record.offset) for record in records]
            except TimeoutError:
                continue
        assert sorted(taken) == [(partition, offset) for partition in range(PARTITIONS) for offset in range(10)]


async def test_committed_offsets_are_found_whatever_the_internal_topic_settings(
    broker_factory: BrokerFactory, topic: str
) -> None:
    """If the number of partitions of the internal topics changed, clients would look for each group and each
    transactional id at the wrong coordinator.
    """
    broker = broker_factory({"offsets.topic.num.partitions": "3"}).start()
    await create(broker.address, topic)
    places = {TopicPartition(topic, 0): 0}
    groups = [f"{topic}-{number}" for number in range(5)]
    async with Admin(broker.address) as admin:
        for group_id in groups:
            async with Consumer(broker.address, group_id=group_id, enable_auto_commit=False) as consumer:
                consumer.assign(places)
                await consumer.commit(dict.fromkeys(places, 7))
        with pytest.raises(KafkaError) as raised:
            await admin.create_partitions({"__consumer_offsets": 50})
        assert raised.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        for group_id in groups:
            async with Consumer(broker.address, group_id=group_id, enable_auto_commit=False) as consumer:
                assert [found and found.offset for found in (await consumer.committed(places)).values()] == [7]


async def test_positions_survive_the_broker(broker_factory: BrokerFactory, topic: str) -> None:
    """After a kill -9 of the broker, the member finds its coordinator, its fetch session and its offsets again."""
    broker = broker_factory(SETTINGS).start()
    await create(broker.address, topic)
    async with group_of(broker.address, "survivors") as group, Writer(broker.address, topic, PARTITIONS) as writer:
        options = {"auto_commit_interval_ms": 20, "session_timeout_ms": 10_000}
        member = await group.join("first", topic, **options)
        await writer.write(60)
        await until(lambda: member.count == 60)
        places = [TopicPartition(topic, index) for index in range(PARTITIONS)]

        async def committed() -> int:
            found = await member.consumer.committed(places)
            return sum(told.offset for told in found.values() if told)

        await member.consumer.commit()
        assert await committed() == 60
        broker.kill()
        broker.start()
        assert await committed() == 60
        await writer.write(60)
        await until(lambda: member.count == 120)
        group.ledger.assert_each_read_once()
        group.members.remove(member)
        await member.close()
        again = await group.join("second", topic, **options)
        await group.balanced(6)
        await writer.write(6)
        await until(lambda: again.count == 6)
        group.ledger.assert_each_read_once()
