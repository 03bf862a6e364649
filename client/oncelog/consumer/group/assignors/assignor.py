"""The interface of an assignor; the group leader runs it to assign partitions to the members of a generation. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from oncelog.cluster import TopicPartition
from oncelog.consumer.group.subscription import Member

Topics = Mapping[str, Sequence[frozenset[str]]]
"""Existing topic -> for each partition, the racks of its replicas (empty if unknown)."""
Assignment = dict[str, list[TopicPartition]]
"""Member id -> its partitions; every member has an entry."""


class Assignor(Protocol):
    """An assignment strategy. Invariant of `assign`: each partition of a subscribed topic is assigned to exactly one
    subscriber. Cooperative assignors hold back partitions that another member must revoke first.
    """

    @property
    def name(self) -> str: ...

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions while the group rebalances (KIP-429)."""
        ...

    def user_data(self, assigned: Sequence[TopicPartition], generation_id: int) -> bytes | None:
        """Return the user data of a subscription, which tells the next group leader which partitions the member owned,
        and in which generation.
        """
        ...

    def assign(self, topics: Topics, members: Sequence[Member]) -> Assignment: ...


def subscribers(topics: Topics, members: Sequence[Member]) -> dict[str, list[Member]]:
    """Return existing topic -> its subscribers, in member order; the topics are sorted."""
    ordered = sorted(members, key=lambda member: member.order)
    found: dict[str, list[Member]] = {}
    for topic in sorted(topics):
        interested = [member for member in ordered if topic in member.subscription.topics]
        if interested and topics[topic]:
            found[topic] = interested
    return found
