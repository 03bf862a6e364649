"""Encodes and decodes subscriptions and assignments of the consumer protocol: in memory, partitions are single objects,
and on the wire, partitions are grouped by topic. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from oncelog.cluster import TopicPartition
from oncelog_protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
    encode_versioned,
)
from oncelog_protocol.wire_writers import Buffer

NO_GENERATION: Final = -1
SUBSCRIPTION_VERSION: Final = 3
ASSIGNMENT_VERSION: Final = 3


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's topics and owned partitions. `generation_id` is the generation of the owned partitions; -1 means
    unknown.
    """

    topics: tuple[str, ...] = ()
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    rack: str | None = None
    user_data: bytes | None = None

    def encode(self) -> bytes:
        owned = [
            ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in by_topic(self.owned)
        ]
        told = ConsumerProtocolSubscription(
            topics=list(self.topics),
            user_data=self.user_data,
            owned_partitions=owned,
            generation_id=self.generation_id,
            rack_id=self.rack,
        )
        return encode_versioned(told, SUBSCRIPTION_VERSION)

    @classmethod
    def decode(cls, data: Buffer) -> Subscription:
        """Decode a subscription. Raises MalformedMessage."""
        told = decode_versioned(ConsumerProtocolSubscription, data)
        owned = (TopicPartition(part.topic, index) for part in told.owned_partitions for index in part.partitions)
        return cls(tuple(told.topics), tuple(owned), told.generation_id, told.rack_id or None, told.user_data)


class Member(NamedTuple):
    """A group member with its subscription, as known to the group's leader."""

    member_id: str
    subscription: Subscription
    group_instance_id: str | None = None

    @property
    def order(self) -> tuple[bool, str]:
        """Sort key by which every leader orders members: static members first, by instance id."""
        if self.group_instance_id is not None:
            return False, self.group_instance_id
        return True, self.member_id


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    assigned = [
        ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=indexes)
        for topic, indexes in by_topic(partitions)
    ]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), ASSIGNMENT_VERSION)


def decode_assignment(data: Buffer) -> tuple[TopicPartition, ...]:
    """Decode an assignment; empty data count as an empty assignment, because some group leaders omit members without
    partitions. Raises
    MalformedMessage."""
    if not len(data):
        return ()
    told = decode_versioned(ConsumerProtocolAssignment, data)
    return tuple(TopicPartition(part.topic, index) for part in told.assigned_partitions for index in part.partitions)


def by_topic(partitions: Iterable[TopicPartition]) -> Sequence[tuple[str, list[int]]]:
    """Return partition numbers by topic, both sorted."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        grouped.setdefault(topic, []).append(partition)
    return list(grouped.items())
