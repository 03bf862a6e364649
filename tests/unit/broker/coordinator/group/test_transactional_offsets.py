"""Offsets that a transaction commits are pending until the marker (S37), and consumers with an old generation may not
commit them (S46).
"""

from __future__ import annotations

from typing import Any

import pytest

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.classic_group import ClassicGroup, Member
from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.offsets import CommittedOffset
from oncelog_protocol.coordinator_records.consumer_offsets import GroupMetadataValue
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.offset_delete import OffsetDeleteRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

PRODUCER = (7, 2)
Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic


def exists(topic: str, partition: int) -> bool:
    return topic == "t" and 0 <= partition < 2


def request(
    topic: str = "t", offset: int = 5, metadata: str | None = "m", index: int = 0, **member: Any
) -> TxnOffsetCommitRequest:
    partition = Topic.TxnOffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, committed_leader_epoch=3, committed_metadata=metadata
    )
    return TxnOffsetCommitRequest(
        transactional_id="txn",
        group_id="g",
        producer_id=PRODUCER[0],
        producer_epoch=PRODUCER[1],
        topics=[Topic(name=topic, partitions=[partition])],
        **member,
    )


@pytest.fixture
def machine() -> GroupMachine:
    return GroupMachine(GroupConfig(offset_metadata_max_bytes=10), lambda: 1000, lambda: "id")


def with_member(machine: GroupMachine, generation: int = 4) -> None:
    """Create a group in `generation` with a member "m", and a static member "s" with instance id "i"."""
    member = GroupMetadataValue.MemberMetadata
    group = ClassicGroup("g")
    group.replay(
        GroupMetadataValue(
            protocol_type="consumer",
            generation=generation,
            protocol="range",
            leader="m",
            members=[
                member(
                    member_id=name, group_instance_id=instance, client_id="", client_host="",
                    session_timeout=1000, subscription=b"", assignment=b"",
                )
                for name, instance in (("m", None), ("s", "i"))
            ],
        )
    )  # fmt: skip
    assert isinstance(group.members["m"], Member)
    machine.groups["g"] = group


def commit(machine: GroupMachine, asked: TxnOffsetCommitRequest, at: int = 9) -> int:
    """Return the error code of the partition, after replaying the records of the commit."""
    answers: list[Any] = []
    effects = machine.commit_in_transaction(asked, exists, answers)
    assert effects.producer == PRODUCER
    for record in effects.records:
        machine.replay(record, at, PRODUCER[0])
    ((_, response),) = effects.replies
    return int(response.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("commits", [True, False])
def test_s37_offsets_are_pending_in_the_group_until_the_marker(machine: GroupMachine, commits: bool) -> None:
    assert commit(machine, request()) == 0
    assert machine.offsets.get("g", "t", 0) is None
    assert machine.offsets.is_pending("g", "t", 0)
    machine.replay_end_transaction(PRODUCER[0], commits)
    expected = CommittedOffset(5, 3, "m", 1000, -1, 9) if commits else None
    assert machine.offsets.get("g", "t", 0) == expected
    assert not machine.offsets.is_pending("g", "t", 0)


def test_s37_each_bad_offset_is_refused_by_itself(machine: GroupMachine) -> None:
    assert commit(machine, request(topic="unknown")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for index in (2, 2**31 - 1, -1):
        assert commit(machine, request(index=index)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(machine, request(metadata="m" * 11)) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert not machine.offsets.has("g")


@pytest.mark.parametrize(
    ("member", "code"),
    [
        ({"generation_id": 4, "member_id": "m"}, None),
        ({"generation_id": 4, "member_id": "s", "group_instance_id": "i"}, None),
        ({}, None),  # requests before v3 contain no member id, so only the transactional id can be fenced
        ({"generation_id": 3, "member_id": "m"}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 5, "member_id": "m"}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 4, "member_id": "gone"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 4, "member_id": "old", "group_instance_id": "i"}, ErrorCode.FENCED_INSTANCE_ID),
        ({"generation_id": -1, "member_id": "gone"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_s46_consumers_that_are_behind_are_fenced(
    machine: GroupMachine, member: dict[str, Any], code: ErrorCode | None
) -> None:
    with_member(machine)
    if code is None:
        assert commit(machine, request(**member)) == 0
        return
    with pytest.raises(KafkaError) as refused:
        machine.commit_in_transaction(request(**member), exists, None)
    assert refused.value.code is code
    assert not machine.offsets.has("g")


def test_s46_a_generation_of_no_group_is_refused(machine: GroupMachine) -> None:
    with pytest.raises(KafkaError) as refused:
        machine.commit_in_transaction(request(generation_id=0, member_id="m"), exists, None)
    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION


def test_s46_a_generation_of_a_group_that_only_keeps_offsets_is_refused(machine: GroupMachine) -> None:
    assert commit(machine, request()) == 0
    with pytest.raises(KafkaError) as refused:
        machine.commit_in_transaction(request(generation_id=0, member_id="m"), exists, None)
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID


def step(machine: GroupMachine, effects: Effects, at: int = 10) -> list[Any]:
    """Replay the records, which belong to no transaction; return them."""
    for offset, record in enumerate(effects.records, at):
        machine.replay(record, offset, -1)
    return effects.records


@pytest.mark.parametrize("has_committed", [True, False])
def test_s37_a_commit_does_not_bring_a_deleted_group_back(machine: GroupMachine, has_committed: bool) -> None:
    if has_committed:
        commit(machine, request(), at=8)
        machine.replay_end_transaction(PRODUCER[0], True)
    commit(machine, request(offset=6))
    assert [group.group_id for group in machine.known()] == ["g"]
    (tombstone,) = step(machine, machine.delete("g"))
    assert tombstone.value is None
    machine.replay_end_transaction(PRODUCER[0], True)
    assert machine.offsets.get("g", "t", 0) is None
    assert list(machine.known()) == []


def test_s37_deleted_offsets_are_not_brought_back_either(machine: GroupMachine) -> None:
    commit(machine, request())
    commit(machine, request(index=1))
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    partition = topic.OffsetDeleteRequestPartition(partition_index=0)
    asked = OffsetDeleteRequest(group_id="g", topics=[topic(name="t", partitions=[partition])])
    step(machine, machine.delete_offsets(asked, lambda topic, index: True, None))
    machine.replay_end_transaction(PRODUCER[0], True)
    assert machine.offsets.get("g", "t", 0) is None
    assert machine.offsets.get("g", "t", 1) is not None


def test_s37_offsets_of_a_deleted_topic_are_not_brought_back(machine: GroupMachine) -> None:
    commit(machine, request(), at=9)
    commit(machine, request(index=1), at=20)
    step(machine, machine.forget_topics("g", frozenset({"t"}), before=20), at=21)
    assert not machine.forget_topics("g", frozenset({"t"}), before=20).records
    machine.replay_end_transaction(PRODUCER[0], True)
    assert machine.offsets.get("g", "t", 0) is None
    assert machine.offsets.get("g", "t", 1) is not None  # this offset belongs to the re-created topic


def test_s37_offsets_committed_after_the_deletion_stand(machine: GroupMachine) -> None:
    commit(machine, request())
    step(machine, machine.delete("g"))
    commit(machine, request(offset=7), at=11)
    machine.replay_end_transaction(PRODUCER[0], True)
    committed = machine.offsets.get("g", "t", 0)
    assert committed is not None
    assert committed.offset == 7
    assert not machine.offsets.is_pending("g", "t", 0)
