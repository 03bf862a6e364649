"""Tests consumer groups of foreign clients and of oncelog's own client on a live broker: members join, leave, die and
return.

Every member is a separate process (`group_member.py`) that reports its partitions and the records that it reads. The
reports show for each record who has read it, and whether that member owned the partition at that time.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from broker_process import INTERNAL_PARTITIONS, BrokerProcess
from confluent_kafka import Producer
from foreign_clients import BROKERS
from librdkafka_client import Librdkafka
from raw_client import PRODUCE_VERSION, RawClient, produce_request
from warm_commands import CLIENT, Child, Program

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.describe_groups import DescribeGroupsRequest
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.list_groups import ListGroupsRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

LIBRARIES = ("kafka-python", "aiokafka", "confluent", "oncelog")
PARTITIONS = 12
SESSION_MS, SHORT_SESSION_MS = 30_000, 1_500
"""Session timeouts in milliseconds. Only members that a test kills have the short timeout, because no other member may
time out on a busy machine.
"""
TIMEOUT_SECONDS = 60.0
SETTINGS = {"group.min.session.timeout.ms": "500", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", SETTINGS)
    with process:
        yield process
    assert "Traceback" not in process.log.read_text()


def eventually(what: str, condition: Callable[[], bool], state: Callable[[], object] = str) -> None:
    """Wait until `condition` is true; `state` describes the last state for the error message."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {TIMEOUT_SECONDS} s: {what}; {state()}"
        time.sleep(0.02)


def port_of(address: str) -> int:
    """Return the port in the last of these broker addresses."""
    return int(address.rpartition(":")[2])


LIBRARIES = {
    "kafka-python": ("kafka",),
    "aiokafka": ("aiokafka",),
    "confluent": ("confluent_kafka",),
    "oncelog": CLIENT,
}


def member(library: str) -> Program:
    return Program((str(Path(__file__).parents[1] / "programs" / "group_member.py"),), LIBRARIES[library])


class GroupMember:
    """A running process of `group_member.py`."""

    def __init__(self, **wanted: Any) -> None:
        self.wanted = wanted
        self.events: list[dict[str, Any]] = []
        self.ended_at: float | None = None
        self.was_killed = False
        self.child = Child(member(wanted["library"]), json.dumps(wanted))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.child.stdout:
            self.events.append(json.loads(line))

    @property
    def owned(self) -> set[int]:
        owned: set[int] = set()
        for event in list(self.events):
            if event["event"] == "gained":
                owned |= set(event["partitions"])
            elif event["event"] == "lost":
                owned -= set(event["partitions"])
        return owned if self.ended_at is None else set()

    def spans(self) -> Iterator[tuple[int, float, float]]:
        """Yield (partition, from, to) for each period in which the member owned a partition."""
        since: dict[int, float] = {}
        for event in self.events:
            if event["event"] == "gained":
                since.update((partition, event["at"]) for partition in event["partitions"] if partition not in since)
            elif event["event"] == "lost":
                for partition in event["partitions"]:
                    if partition in since:
                        yield partition, since.pop(partition), event["at"]
            elif event["event"] == "closing":  # some libraries do not report a revocation on closing
                yield from ((partition, since.pop(partition), event["at"]) for partition in list(since))
        for partition, started in since.items():
            yield partition, started, self.ended_at or time.monotonic()

    def records(self) -> list[tuple[int, int]]:
        return [(e["partition"], offset) for e in list(self.events) if e["event"] == "read" for offset in e["offsets"]]

    def kill(self) -> None:
        self.was_killed = True
        self.child.process.send_signal(signal.SIGKILL)
        self._end()

    def stop(self) -> None:
        self.child.stdin.write("stop\n")
        self.child.stdin.flush()
        self._end()
        assert self.events[-1]["event"] == "closed", self.events[-3:]

    def _end(self) -> None:
        self.child.process.wait(TIMEOUT_SECONDS)
        self.ended_at = time.monotonic()
        self._reader.join(TIMEOUT_SECONDS)
        self.child.close()


class GroupUnderTest:
    """One group on one topic, its members, and the records that were produced for it."""

    def __init__(self, address: str, topic: str, strategy: str = "range") -> None:
        self.address = address
        self.topic = topic
        self.strategy = strategy
        self.members: list[GroupMember] = []
        self.produced: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self._producer = Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        )
        with closing(Librdkafka(address)) as client:
            # a replication factor of -1 selects the broker's default
            client.create_topic(topic, PARTITIONS, replication_factor=-1)

    def start(self, library: str, instance_id: str | None = None, session_ms: int = SESSION_MS) -> GroupMember:
        member = GroupMember(
            library=library,
            address=self.address,
            topic=self.topic,
            group=f"group-of-{self.topic}",
            strategy=self.strategy,
            session_ms=session_ms,
            instance_id=instance_id,
        )
        self.members.append(member)
        return member

    def produce(self, count: int = 20) -> None:
        """Produce `count` records to each partition."""
        failed: list[object] = []
        for partition in self.produced:
            for number in range(count):
                self._producer.produce(
                    self.topic, b"%d" % number, partition=partition, on_delivery=lambda error, _: failed.append(error)
                )
            self.produced[partition] += count
        assert self._producer.flush(TIMEOUT_SECONDS) == 0
        assert not any(failed)

    def read_by(self) -> dict[tuple[int, int], list[GroupMember]]:
        """Return for each record the members that have read it."""
        readers: dict[tuple[int, int], list[GroupMember]] = {}
        for member in self.members:
            for where in member.records():
                readers.setdefault(where, []).append(member)
        return readers

    def all_read(self) -> bool:
        return len(self.read_by()) == sum(self.produced.values())

    def wait_until_read(self) -> None:
        eventually("all records are read", self.all_read, self.state)

    def wait_until_shared(self, *members: GroupMember) -> None:
        """Wait until all partitions are owned, and the members named in `members` own equal shares."""

        def shared() -> bool:
            owned = [member.owned for member in members]
            return set().union(*owned) == set(range(PARTITIONS)) and all(
                len(share) == PARTITIONS // len(members) for share in owned
            )

        eventually(f"{len(members)} members share all partitions", shared, self.state)

    def state(self) -> str:
        return f"{self.describe()} {[(member.wanted['library'], member.events) for member in self.members]}"

    def describe(self) -> Any:
        request = DescribeGroupsRequest(groups=[f"group-of-{self.topic}"])
        with self.coordinator() as client:
            return client.call(request, ApiKey.DESCRIBE_GROUPS, 4).groups[0]

    def coordinator(self) -> RawClient:
        with RawClient(port_of(self.address)) as client:
            found = client.call(FindCoordinatorRequest(key=f"group-of-{self.topic}"), ApiKey.FIND_COORDINATOR, 2)
        assert found.error_code == 0, found
        return RawClient(found.port)

    def stop_members(self) -> None:
        for member in self.members:
            if member.ended_at is None:
                member.stop()

    def check_paths(self) -> None:
        """Assert that no partition had two owners simultaneously, and that each record was read by an owner of its
        partition. No record was skipped. None was read twice, unless its reader was killed before it could commit.
        """
        spans: dict[int, list[tuple[float, float]]] = {partition: [] for partition in self.produced}
        for member in self.members:
            for partition, start, end in member.spans():
                spans[partition].append((start, end))
            own = list(member.spans())
            for event in member.events:
                if event["event"] == "read":
                    assert any(p == event["partition"] and start <= event["at"] <= end for p, start, end in own), event
        for partition, owners in spans.items():
            for (_, end), (start, _) in pairwise(sorted(owners)):
                assert end <= start, f"partition {partition} had two owners for {end - start:.3f} s"
        readers = self.read_by()
        assert set(readers) == {(p, offset) for p, count in self.produced.items() for offset in range(count)}
        for where, members in readers.items():
            assert sum(not member.was_killed for member in members) <= 1, (where, members)


GroupFactory = Callable[..., GroupUnderTest]


@pytest.fixture
def make_group(broker_factory: Any, topic: str) -> Iterator[GroupFactory]:
    """Yield the function `make_group(address, strategy)`; members that still run at the end of the test are killed
    before the brokers.
    """
    made: list[GroupUnderTest] = []

    def make(address: str, strategy: str = "range") -> GroupUnderTest:
        made.append(GroupUnderTest(address, topic, strategy))
        return made[-1]

    yield make
    for group in made:
        for member in group.members:
            if member.ended_at is None:
                member.kill()


@pytest.fixture
def group(address: str, make_group: GroupFactory) -> GroupUnderTest:
    return make_group(address)


@pytest.mark.parametrize("library", LIBRARIES)
def test_members_share_leave_and_die(group: GroupUnderTest, library: str) -> None:
    group.produce()
    first = group.start(library)
    group.wait_until_shared(first)
    second = group.start(library)
    group.wait_until_shared(first, second)
    group.produce()
    group.wait_until_read()
    assert group.describe().group_state == "Stable"
    assert len(group.describe().members) == 2

    second.stop()
    group.wait_until_shared(first)
    group.produce()
    group.wait_until_read()

    third = group.start(library, session_ms=SHORT_SESSION_MS)
    group.wait_until_shared(first, third)
    group.produce()
    third.kill()
    group.produce()
    group.wait_until_shared(first)
    group.wait_until_read()

    first.stop()
    assert group.describe().group_state == "Empty"
    group.check_paths()


def test_members_of_different_clients_share_one_group(group: GroupUnderTest) -> None:
    group.produce()
    members = []
    for library in LIBRARIES:
        members.append(group.start(library, session_ms=SESSION_MS if members else SHORT_SESSION_MS))
        group.wait_until_shared(*members)
        group.produce()
    group.wait_until_read()
    members[0].kill()
    group.produce()
    group.wait_until_shared(*members[1:])
    group.wait_until_read()
    members[2].stop()
    group.wait_until_shared(members[1], members[3])
    group.produce()
    group.wait_until_read()
    group.stop_members()
    group.check_paths()


@pytest.mark.parametrize("libraries", [["confluent"] * 3, ["oncelog"] * 3, ["confluent", "oncelog", "confluent"]])
def test_cooperative_members_keep_what_they_have(address: str, make_group: GroupFactory, libraries: list[str]) -> None:
    group = make_group(address, "cooperative-sticky")
    first = group.start(libraries[0])
    group.wait_until_shared(first)
    second = group.start(libraries[1], session_ms=SHORT_SESSION_MS)
    group.wait_until_shared(first, second)
    third = group.start(libraries[2])
    group.wait_until_shared(first, second, third)
    group.produce()
    group.wait_until_read()
    assert group.describe().protocol_data == "cooperative-sticky"
    # The first member gave up six of its twelve partitions, later two more; it owned the remaining four partitions all
    # the time.
    kept = [span for span in first.spans() if span[0] in first.owned]
    assert len(kept) == 4
    assert {start for _, start, _ in kept} == {min(start for _, start, _ in first.spans())}
    second.kill()
    group.produce()
    group.wait_until_shared(first, third)
    group.wait_until_read()
    group.stop_members()
    group.check_paths()


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_static_member_returns_without_a_rebalance(group: GroupUnderTest, library: str) -> None:
    first = group.start(library, instance_id="one")
    group.wait_until_shared(first)
    second = group.start(library, instance_id="two")
    group.wait_until_shared(first, second)
    group.produce()
    group.wait_until_read()
    share, told = second.owned, len([event for event in first.events if event["event"] in ("gained", "lost")])
    second.kill()
    back = group.start(library, instance_id="two")
    eventually("it has its share again", lambda: back.owned == share, group.state)
    group.produce()
    group.wait_until_read()
    assert len([event for event in first.events if event["event"] in ("gained", "lost")]) == told, (
        "the other one was disturbed"
    )
    assert {member.group_instance_id for member in group.describe().members} == {"one", "two"}
    group.stop_members()
    group.check_paths()


# kafka-python is left out: if a poll of its version 3.0.12 times out at the moment at which SyncGroup gets its
# response, the poll waits for ever. Such a poll is likely if a broker returns while a member joins.
@pytest.mark.parametrize("library", [library for library in LIBRARIES if library != "kafka-python"])
def test_the_group_outlives_the_broker(broker_factory: Any, make_group: GroupFactory, library: str) -> None:
    """After its restart the broker loads members and offsets, and no member begins at the start of the log."""
    broker = broker_factory({**SETTINGS, "group.max.session.timeout.ms": "60000"}).start()
    group = make_group(broker.address)
    member = group.start(library)
    group.wait_until_shared(member)
    group.produce()
    group.wait_until_read()
    eventually("what was read is committed", lambda: member.events[-1]["event"] == "committed", group.state)
    broker.kill()
    broker.start()
    group.produce()
    group.wait_until_read()
    group.stop_members()
    again = group.start(library)
    group.wait_until_shared(again)
    group.produce()
    group.wait_until_read()
    again.stop()
    records = [where for member in group.members for where in member.records()]
    assert len(records) == len(set(records)), "something was read twice"


class TestAdministration:
    """Tests that the admin clients of librdkafka and kafka-python show groups correctly."""

    @pytest.fixture
    def emptied(self, group: GroupUnderTest) -> str:
        """Return the id of a group that has read all records and has no members left."""
        group.produce()
        member = group.start("confluent")
        group.wait_until_read()
        member.stop()
        return f"group-of-{group.topic}"

    def test_librdkafka_administers_groups(self, group: GroupUnderTest, emptied: str) -> None:
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": group.address})
        listed = {listing.group_id: listing for listing in admin.list_consumer_groups().result(10).valid}
        assert listed[emptied].state.name == "EMPTY"
        described = admin.describe_consumer_groups([emptied])[emptied].result(10)
        assert described.state.name == "EMPTY"
        assert described.members == []

        wanted = ConsumerGroupTopicPartitions(emptied)
        (found,) = [future.result(10) for future in admin.list_consumer_group_offsets([wanted]).values()]
        assert {p.partition: p.offset for p in found.topic_partitions} == dict.fromkeys(range(PARTITIONS), 20)

        moved = ConsumerGroupTopicPartitions(emptied, [TopicPartition(group.topic, 0, 5)])
        for future in admin.alter_consumer_group_offsets([moved]).values():
            future.result(10)
        (found,) = [future.result(10) for future in admin.list_consumer_group_offsets([wanted]).values()]
        assert {p.partition: p.offset for p in found.topic_partitions}[0] == 5

        admin.delete_consumer_groups([emptied])[emptied].result(10)
        listed = {listing.group_id for listing in admin.list_consumer_groups().result(10).valid}
        assert emptied not in listed

    def test_librdkafka_describes_a_group_with_members(self, group: GroupUnderTest) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        member = group.start("confluent")
        group.wait_until_shared(member)
        admin = AdminClient({"bootstrap.servers": group.address})
        group_id = f"group-of-{group.topic}"
        described = admin.describe_consumer_groups([group_id])[group_id].result(10)
        assert described.state.name == "STABLE"
        assert described.partition_assignor == "range"
        (only,) = described.members
        assert only.host == "/127.0.0.1"
        assert {p.partition for p in only.assignment.topic_partitions} == set(range(PARTITIONS))
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([group_id])[group_id].result(10)

    def test_kafka_python_administers_groups(self, group: GroupUnderTest, emptied: str) -> None:
        from kafka import KafkaAdminClient

        admin = KafkaAdminClient(bootstrap_servers=group.address)
        try:
            assert emptied in {listed["group_id"] for listed in admin.list_groups()}
            offsets = admin.list_group_offsets([emptied])[emptied]
            assert {partition.partition: found.offset for partition, found in offsets.items()} == dict.fromkeys(
                range(PARTITIONS), 20
            )
            admin.delete_groups([emptied])
            assert emptied not in {listed["group_id"] for listed in admin.list_groups()}
        finally:
            admin.close()

    def test_groups_are_listed_by_state(self, group: GroupUnderTest, emptied: str) -> None:
        with group.coordinator() as client:
            for state, shown in (("empty", True), ("Stable", False)):
                request = ListGroupsRequest(states_filter=[state], types_filter=["Classic"])
                listed = client.call(request, ApiKey.LIST_GROUPS, 5).groups
                assert (emptied in {group.group_id for group in listed}) is shown
            assert client.call(ListGroupsRequest(types_filter=["share"]), ApiKey.LIST_GROUPS, 5).groups == []


def test_clients_read_the_internal_topic_and_do_not_write_it(group: GroupUnderTest) -> None:
    from confluent_kafka.admin import AdminClient

    member = group.start("confluent")
    group.produce(1)
    group.wait_until_read()
    member.stop()
    batch = build_batch([Record(0, 1, b"k", b"v", [])])
    with RawClient(port_of(group.address)) as client:
        answer = client.call(produce_request("__consumer_offsets", 0, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    admin = AdminClient({"bootstrap.servers": group.address})
    partitions = admin.list_topics(timeout=10).topics["__consumer_offsets"].partitions
    assert len(partitions) == (INTERNAL_PARTITIONS if BROKERS == 1 else 3)
    with closing(Librdkafka(group.address)) as reader:
        ends = [reader.offsets("__consumer_offsets", index)[1] for index in partitions]
        assert any(reader.consume("__consumer_offsets", 1, partition=index) for index in partitions if ends[index])
