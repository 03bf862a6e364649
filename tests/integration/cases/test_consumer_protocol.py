"""Tests librdkafka's consumers with `group.protocol=consumer` (KIP-848) on a live broker.

One thread polls all consumers of a test in rotation. So the order in which partitions change hands is known, and the
test detects immediately that a partition has two owners. Members join one after another, because librdkafka reports no
owned partitions until its application has seen its first assignment; the broker would therefore give these partitions
to other members.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from oncelog import Admin
from oncelog import errors as oncelog_errors
from oncelog.admin import AlterConfig, AlterOperation, ConfigResource

PARTITIONS = 6
TIMEOUT_SECONDS = 60.0
QUICK = {"group.consumer.heartbeat.interval.ms": "100", "group.consumer.assignment.interval.ms": "100"}
CLASSIC = {"heartbeat.interval.ms": 100, "session.timeout.ms": 30_000}
MEMBER = Path(__file__).parent.parent / "programs" / "group_member.py"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("consumers") / "data", QUICK)
    with process:
        yield process
    assert "Traceback" not in process.log.read_text()


class Member:
    """One consumer with its partitions, and the partitions that it was assigned and had to revoke."""

    def __init__(self, group: Group, name: str, settings: dict[str, Any], topics: list[str]) -> None:
        self.group = group
        self.name = name
        self.has: set[tuple[str, int]] = set()
        self.errors: list[KafkaError] = []
        self.is_incremental = (
            settings.get("group.protocol") == "consumer"
            or settings.get("partition.assignment.strategy") == "cooperative-sticky"
        )
        self.consumer = Consumer(settings)
        self.consumer.subscribe(topics, on_assign=self._given, on_revoke=self._gives_up, on_lost=self._gives_up)

    def _given(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        given = {(partition.topic, partition.partition) for partition in partitions}
        if not self.is_incremental:
            self.has.clear()
        for other in self.group.members:
            assert other is self or not given & other.has, f"{self.name} is given what {other.name} has: {given}"
        self.has |= given

    def _gives_up(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.has -= {(partition.topic, partition.partition) for partition in partitions}

    def poll(self) -> None:
        message = self.consumer.poll(0.01)
        if message is None:
            return
        if message.error():
            self.errors.append(message.error())
            return
        at = (message.topic(), message.partition())
        assert at in self.has, f"{self.name} reads {at}, but has {self.has}"
        self.group.read.setdefault(at, []).append(message.offset())


class Group:
    """The members of one group, which are polled in rotation."""

    def __init__(self, address: str, name: str) -> None:
        self.address = address
        self.name = name
        self.members: list[Member] = []
        self.read: dict[tuple[str, int], list[int]] = {}
        self.admin = AdminClient({"bootstrap.servers": address})
        self._producer = Producer({"bootstrap.servers": address})
        self.written = 0

    def join(self, *topics: str, protocol: str = "consumer", **settings: Any) -> Member:
        all_settings = {
            "bootstrap.servers": self.address,
            "group.id": self.name,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
            **({} if protocol == "consumer" else CLASSIC),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        member = Member(self, f"member {len(self.members)}", all_settings, list(topics))
        self.members.append(member)
        return member

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        member.consumer.close()
        assert not member.has

    def until(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            assert time.monotonic() < end, f"{what}: {[(m.name, m.has, m.errors) for m in self.members]}"
            for member in self.members:
                member.poll()

    def shared(self, *sizes: int) -> None:
        """Poll until the members own these numbers of partitions, in any order."""
        wanted = sorted(sizes)
        self.until(lambda: sorted(len(member.has) for member in self.members) == wanted, f"shared as {wanted}")

    def write(self, topic: str, count: int = 60, partitions: int = PARTITIONS) -> None:
        for number in range(count):
            self._producer.produce(topic, b"%d" % number, partition=number % partitions)
        assert self._producer.flush(TIMEOUT_SECONDS) == 0
        self.written += count

    def all_read(self) -> None:
        """Wait until every record was read; fail unless each record was read once and in order."""
        self.all_seen()
        for at, offsets in self.read.items():
            assert offsets == list(range(len(offsets))), at

    def all_seen(self) -> None:
        """Wait until every record was read; two members may have read the same record, one after the other."""

        def is_done() -> bool:
            return sum(len(set(offsets)) for offsets in self.read.values()) >= self.written

        self.until(is_done, f"{self.written} records read")

    def commit_the_start(self, topic: str) -> None:
        """Commit offset 0 of each partition. If no offset is committed, librdkafka 2.16 may look up the first offset
        several times and continue from the last response, although it has read records in the meantime
        (docs/guides/clients.md).
        """
        offsets = [TopicPartition(topic, index, 0) for index in range(PARTITIONS)]
        altered = self.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(self.name, offsets)])
        altered[self.name].result(TIMEOUT_SECONDS)

    def described(self) -> Any:
        return self.admin.describe_consumer_groups([self.name])[self.name].result(TIMEOUT_SECONDS)

    def close(self) -> None:
        while self.members:
            self.members.pop().consumer.close()


def create(address: str, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_SECONDS)


@pytest.fixture
def members(broker: BrokerProcess, topic: str, group: str) -> Iterator[Group]:
    create(broker.address, topic)
    members = Group(broker.address, group)
    members.commit_the_start(topic)
    yield members
    members.close()


def test_members_share_the_work_as_they_come_and_go(members: Group, topic: str) -> None:
    first = members.join(topic)
    members.shared(6)
    members.write(topic)
    second = members.join(topic)
    members.shared(3, 3)
    members.write(topic)
    members.join(topic)
    members.shared(2, 2, 2)
    members.write(topic)
    members.all_read()
    described = members.described()
    assert (described.type, described.state) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.STABLE)
    assert {(at.topic, at.partition) for m in described.members for at in m.assignment.topic_partitions} == {
        (topic, index) for index in range(PARTITIONS)
    }
    members.leave(first)
    members.shared(3, 3)
    members.leave(second)
    members.shared(6)
    members.write(topic)
    members.all_read()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_goes_from_one_protocol_to_the_other_and_back(members: Group, topic: str, strategy: str) -> None:
    classic = {"protocol": "classic", "partition_assignment_strategy": strategy}
    old = [members.join(topic, **classic)]
    members.shared(6)
    old.append(members.join(topic, **classic))
    members.shared(3, 3)
    assert members.described().type is ConsumerGroupType.CLASSIC
    members.write(topic)
    new = members.join(topic)
    members.shared(2, 2, 2)
    members.write(topic)
    described = members.described()
    assert (described.type, len(described.members)) == (ConsumerGroupType.CONSUMER, 3)
    late = members.join(topic, **classic)
    members.shared(1, 1, 2, 2)
    members.leave(new)
    members.shared(2, 2, 2)
    members.write(topic)
    assert members.described().type is ConsumerGroupType.CLASSIC
    members.join(topic)
    members.shared(1, 1, 2, 2)
    for member in (*old, late):
        members.leave(member)
    members.shared(6)
    members.write(topic)
    # members of the classic protocol with a cooperative assignor may revoke a partition before their last commit
    members.all_seen()
    assert members.described().type is ConsumerGroupType.CONSUMER


def test_new_partitions_are_given_out_by_the_broker(members: Group, topic: str) -> None:
    members.join(topic)
    members.shared(6)
    members.admin.create_partitions([NewPartitions(topic, 8)])[topic].result(TIMEOUT_SECONDS)
    members.shared(8)
    members.write(topic, 80, 8)
    members.all_read()


def test_a_pattern_is_looked_up_by_the_broker(members: Group, topic: str) -> None:
    create(members.address, f"{topic}-more", 2)
    create(members.address, f"more-{topic}", 2)
    members.join(f"^{topic}.*")
    members.shared(8)


def test_a_malformed_pattern_ends_the_consumer_with_the_reason(members: Group) -> None:
    member = members.join(r"^(a)\1")
    members.until(lambda: member.errors, "the pattern is refused")
    assert "regular expression" in member.errors[0].str()


def test_a_static_member_comes_back_to_its_partitions(members: Group, topic: str) -> None:
    members.join(topic, group_instance_id="one")
    members.shared(6)
    second = members.join(topic, group_instance_id="two")
    members.shared(3, 3)
    had, epoch = set(second.has), group_epoch(members)
    members.leave(second)
    again = members.join(topic, group_instance_id="two")
    members.until(lambda: again.has == had, "the same partitions")
    assert group_epoch(members) == epoch, "nobody else was moved"


def group_epoch(members: Group) -> list[int]:
    """Return how many partitions each member owns, sorted; the test uses these numbers because librdkafka does not
    report the group epoch.
    """
    return sorted(len(member.assignment.topic_partitions) for member in members.described().members)


def test_a_second_member_of_the_same_instance_is_refused(members: Group, topic: str) -> None:
    members.join(topic, group_instance_id="one")
    members.shared(6)
    second = members.join(topic, group_instance_id="one")
    members.until(lambda: second.errors, "it is refused")
    assert "instance ID is still used" in second.errors[0].str()


def test_s46_only_the_owner_commits_offsets_in_a_transaction(members: Group, topic: str) -> None:
    first = members.join(topic, enable_auto_commit=False)
    members.shared(6)
    members.write(topic)
    members.all_read()
    producer = Producer({"bootstrap.servers": members.address, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    metadata = first.consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 10)], metadata, 30)
    producer.commit_transaction(30)
    assert first.consumer.committed([TopicPartition(topic, 0)], 30)[0].offset == 10
    producer.begin_transaction()
    members.leave(first)
    with pytest.raises(KafkaException):
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 20)], metadata, 30)
    producer.abort_transaction(30)


def test_groups_are_listed_by_type_and_deleted(members: Group, topic: str) -> None:
    member = members.join(topic)
    members.shared(6)
    listed = members.admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(TIMEOUT_SECONDS)
    assert members.name in {group.group_id for group in listed.valid}
    listed = members.admin.list_consumer_groups(types={ConsumerGroupType.CLASSIC}).result(TIMEOUT_SECONDS)
    assert members.name not in {group.group_id for group in listed.valid}
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        members.admin.delete_consumer_groups([members.name])[members.name].result(TIMEOUT_SECONDS)
    members.leave(member)
    members.admin.delete_consumer_groups([members.name])[members.name].result(TIMEOUT_SECONDS)


def test_s40_members_continue_when_their_coordinator_was_killed(tmp_path: Path, topic: str) -> None:
    with BrokerProcess(tmp_path / "data", QUICK) as broker:
        create(broker.address, topic)
        members = Group(broker.address, "g")
        members.join(topic)
        members.shared(6)
        members.join(topic)
        members.shared(3, 3)
        members.write(topic)
        members.all_read()
        broker.kill()
        broker.start()
        members.write(topic)
        members.all_read()
        members.shared(3, 3)
        described = members.described()
        assert {member.member_id for member in described.members} and len(described.members) == 2
        members.close()


def test_the_partitions_of_a_member_that_was_killed_go_to_the_others(tmp_path: Path, topic: str) -> None:
    settings = {**QUICK, "group.consumer.session.timeout.ms": "1500"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        create(broker.address, topic)
        members = Group(broker.address, "g")
        wanted = {
            "library": "confluent",
            "address": broker.address,
            "topic": topic,
            "group": "g",
            "protocol": "consumer",
        }
        process = subprocess.Popen(
            [sys.executable, str(MEMBER), json.dumps(wanted)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            line = json.loads(process.stdout.readline())
            assert (line["event"], len(line["partitions"])) == ("gained", PARTITIONS)
            members.join(topic)
            members.shared(3)
            process.send_signal(signal.SIGKILL)
            members.shared(6)
        finally:
            process.kill()
            process.communicate()
            members.close()


async def test_a_group_has_settings_of_its_own(broker: BrokerProcess, members: Group, topic: str) -> None:
    async with Admin(broker.address) as admin:
        resource = ConfigResource.group(members.name)
        interval = "consumer.heartbeat.interval.ms"
        await admin.incremental_alter_configs({resource: [AlterConfig(interval, "6000")]})
        described = (await admin.describe_configs([resource]))[resource]
        found = {name: entry for name, entry in described.items() if not entry.is_default}
        assert found[interval].value == "6000"
        member = members.join(topic)
        members.shared(6)
        with pytest.raises(oncelog_errors.KafkaError, match="must be from 5000 to 15000"):
            await admin.incremental_alter_configs({resource: [AlterConfig(interval, "1")]})
        await admin.incremental_alter_configs({resource: [AlterConfig(interval, None, AlterOperation.DELETE)]})
        described = (await admin.describe_configs([resource]))[resource]
        assert described[interval].value == QUICK["group.consumer.heartbeat.interval.ms"]
        members.leave(member)


async def test_our_admin_shows_what_each_member_has_and_is_to_have(
    broker: BrokerProcess, members: Group, topic: str
) -> None:
    member = members.join(topic)
    members.shared(6)
    async with Admin(broker.address) as admin:
        (listed,) = [group for group in await admin.groups.list() if group.group_id == members.name]
        described = (await admin.groups.describe([members.name]))[members.name]
    assert (listed.group_type, listed.protocol_type, listed.state) == ("consumer", "consumer", "Stable")
    assert (described.group_type, described.state, described.protocol) == ("consumer", "Stable", "uniform")
    assert described.epoch == described.members[0].epoch == 2
    assert described.members[0].assignment == described.members[0].target
    assert len(described.members[0].assignment) == PARTITIONS
    members.leave(member)
