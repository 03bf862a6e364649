"""Target and current assignments of members, and how they are encoded in responses and in the log. Pure.

A target is the assignment that a member must reach: topic id -> partitions. A current assignment also has an epoch for
each partition (KIP-1251): topic id -> partition -> the member epoch in which the partition was assigned to the member.
Target assignments and current assignments are immutable by convention.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from oncelog_protocol.coordinator_records.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupTargetAssignmentMemberValue,
)
from oncelog_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

Target = Mapping[bytes, frozenset[int]]
Current = Mapping[bytes, Mapping[int, int]]
Owned = Mapping[bytes, Collection[int]]
"""The partitions that a member claims to own: topic id -> partitions."""

NO_TARGET: Final[Target] = MappingProxyType({})
NO_PARTITIONS: Final[Current] = MappingProxyType({})
EMPTY: Final[frozenset[int]] = frozenset()

CurrentTopic = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
TargetTopic = ConsumerGroupTargetAssignmentMemberValue.TopicPartition
Assignment = ConsumerGroupHeartbeatResponse.Assignment


class TopicPartitions(Protocol):
    """The topic id and partitions of one topic; protocol messages and records with these two fields match this type."""

    topic_id: bytes
    partitions: list[int]


def target_of(topics: Iterable[TopicPartitions]) -> Target:
    """Return the target assignment in a log record."""
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}


def target_value(target: Target) -> ConsumerGroupTargetAssignmentMemberValue:
    """Return the record value for a target assignment."""
    return ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TargetTopic(topic_id=topic_id, partitions=sorted(partitions)) for topic_id, partitions in target.items()
        ]
    )


def current_of(topics: Iterable[CurrentTopic], member_epoch: int) -> Current:
    """Return the current assignment in a log record. If the record has no epochs of partitions, all partitions get
    `member_epoch`.
    """
    return {
        topic.topic_id: dict(
            zip(topic.partitions, topic.assignment_epochs, strict=False)
            if topic.assignment_epochs is not None
            else ((partition, member_epoch) for partition in topic.partitions)
        )
        for topic in topics
        if topic.partitions
    }


def current_topics(current: Current) -> list[CurrentTopic]:
    """Return the current assignment in the form of a record."""
    return [
        CurrentTopic(topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values()))
        for topic_id, epochs in current.items()
    ]


def as_target(current: Current) -> Target:
    """Return the partitions of `current`, without their epochs."""
    return {topic_id: frozenset(epochs) for topic_id, epochs in current.items()}


def at_epoch(target: Owned, epoch: int) -> Current:
    """Return a current assignment of these partitions, each assigned in `epoch`."""
    return {topic_id: dict.fromkeys(sorted(partitions), epoch) for topic_id, partitions in target.items() if partitions}


def answered(current: Current) -> Assignment:
    """Return the current assignment in the form of a heartbeat response."""
    return Assignment(
        topic_partitions=[
            Assignment.TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
            for topic_id, epochs in current.items()
        ]
    )


def owned_of(topics: Sequence[TopicPartitions] | None) -> Owned | None:
    """Return the partitions that the member claims to own in a heartbeat; None if the heartbeat does not list
    partitions.
    """
    return None if topics is None else {topic.topic_id: frozenset(topic.partitions) for topic in topics}


def is_within(owned: Owned | None, current: Current) -> bool:
    """Whether the member lists its partitions in the heartbeat and all listed partitions are in `current`."""
    if owned is None:
        return False
    return all(
        partition in current.get(topic_id, EMPTY) for topic_id, partitions in owned.items() for partition in partitions
    )


def has_same_partitions(one: Current, other: Current) -> bool:
    """Whether both assignments have the same partitions, regardless of epochs."""
    return one is other or (one.keys() == other.keys() and all(one[id].keys() == other[id].keys() for id in one))
