"""Cooperative sticky: sticky assignment, but members keep their partitions while the group rebalances (KIP-429).

A partition moves in two steps. In the first generation the partition is assigned to no member, so its owner revokes the
partition and rejoins; the
next generation assigns the partition to the new owner. Therefore two members never read a partition at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncelog.cluster import TopicPartition
from oncelog.consumer.group.assignors.assignor import Assignment, Topics
from oncelog.consumer.group.assignors.balance import Claim, balanced
from oncelog.consumer.group.assignors.sticky import read_user_data
from oncelog.consumer.group.subscription import NO_GENERATION, Member
from oncelog_protocol.codec import codec
from oncelog_protocol.consumer_protocol import CooperativeStickyUserData

GENERATION_BYTES: Final = 4


class CooperativeStickyAssignor:
    """The sticky assignor without revocation before joining; members send their owned partitions in the
    subscription."""

    name: Final = "cooperative-sticky"
    is_cooperative: Final = True

    def user_data(self, assigned: Sequence[TopicPartition], generation_id: int) -> bytes:
        return codec(CooperativeStickyUserData, 0).encode(CooperativeStickyUserData(generation=generation_id))

    def assign(self, topics: Topics, members: Sequence[Member]) -> Assignment:
        claims = [Claim(member.member_id, _generation(member), member.subscription.owned) for member in members]
        return _without_held(balanced(topics, members, claims), claims)


def _generation(member: Member) -> int:
    """Return the generation of a member's owned partitions. Before v2 of the subscription, the generation is in the
    user data: Java's clients send only the generation there, and librdkafka sends the generation after other data.
    """
    if member.subscription.generation_id != NO_GENERATION:
        return member.subscription.generation_id
    data = member.subscription.user_data
    if data is not None and len(data) == GENERATION_BYTES:
        return codec(CooperativeStickyUserData, 0).decode(data).generation
    told = read_user_data(data)
    return NO_GENERATION if told is None else told.generation


def _without_held(assignment: Assignment, claims: Sequence[Claim]) -> Assignment:
    """Leave out partitions that another member still claims, however old the claim is: that member reads these
    partitions until it learns that they are revoked.
    """
    holders: dict[TopicPartition, set[str]] = {}
    for claim in claims:
        for partition in claim.partitions:
            holders.setdefault(partition, set()).add(claim.member_id)
    return {
        member_id: [partition for partition in assigned if not holders.get(partition, set()) - {member_id}]
        for member_id, assigned in assignment.items()
    }
