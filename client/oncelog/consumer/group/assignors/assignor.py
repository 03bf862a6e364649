"""What an assignor is: who reads which partition, decided by the leader of a generation for all members. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from oncelog.cluster import TopicPartition
from oncelog.consumer.group.subscription import Member

Topics = Mapping[str, Sequence[frozenset[str]]]
"""The partitions of each topic that exists: for each one the racks that have a replica of it (none where unknown)."""
Assignment = dict[str, list[TopicPartition]]
"""Partitions by member id; every member is there."""


class Assignor(Protocol):
    """A strategy by its name in the group. Invariant of `assign`: each partition of a topic that somebody subscribes to
    goes to exactly one of its subscribers (cooperative ones hold back what is still being given up, until next time).
    """

    @property
    def name(self) -> str: ...

    @property
    def is_cooperative(self) -> bool:
        """Whether members may keep what they have while the group rebalances (KIP-429)."""
        ...

    def user_data(self, assigned: Sequence[TopicPartition], generation_id: int) -> bytes | None:
        """What a member that was `assigned` these in that generation tells the next leader."""
        ...

    def assign(self, topics: Topics, members: Sequence[Member]) -> Assignment: ...


def subscribers(topics: Topics, members: Sequence[Member]) -> dict[str, list[Member]]:
    """Who subscribes to each topic that exists, in the members' order; topics in order too."""
    ordered = sorted(members, key=lambda member: member.order)
    found: dict[str, list[Member]] = {}
    for topic in sorted(topics):
        interested = [member for member in ordered if topic in member.subscription.topics]
        if interested and topics[topic]:
            found[topic] = interested
    return found
