"""Sticky: the most even assignment with the fewest moves (KIP-54). Members still revoke all partitions during a
rebalance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncelog.cluster import TopicPartition
from oncelog.consumer.group.assignors.assignor import Assignment, Topics
from oncelog.consumer.group.assignors.balance import Claim, balanced
from oncelog.consumer.group.subscription import Member, by_topic
from oncelog_protocol.codec import codec
from oncelog_protocol.consumer_protocol import StickyAssignorUserData
from oncelog_protocol.errors import MalformedMessage

USER_DATA_VERSIONS: Final = (1, 0)
"""Versions of the user data; decoding tries the versions in this order."""


class StickyAssignor:
    """The eager sticky assignor: members revoke all partitions before joining, so they send their former partitions as
    user data (Java's format).
    """

    name: Final = "sticky"
    is_cooperative: Final = False

    def user_data(self, assigned: Sequence[TopicPartition], generation_id: int) -> bytes | None:
        if not assigned:
            return None
        previous = [
            StickyAssignorUserData.TopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(assigned)
        ]
        told = StickyAssignorUserData(previous_assignment=previous, generation=generation_id)
        return codec(StickyAssignorUserData, 1).encode(told)

    def assign(self, topics: Topics, members: Sequence[Member]) -> Assignment:
        return balanced(topics, members, [_claim(member) for member in members])


def read_user_data(data: bytes | None) -> StickyAssignorUserData | None:
    """Return the decoded user data; None if the data are unreadable. A member with unreadable data counts as a member
    without partitions, which only causes additional moves.
    """
    for version in USER_DATA_VERSIONS:
        try:
            return codec(StickyAssignorUserData, version).decode(data or b"")
        except MalformedMessage:
            continue
    return None


def _claim(member: Member) -> Claim:
    told = read_user_data(member.subscription.user_data)
    if told is None:
        return Claim(member.member_id, -1, ())
    owned = [TopicPartition(part.topic, index) for part in told.previous_assignment for index in part.partitions]
    return Claim(member.member_id, told.generation, owned)
