"""Round robin: assigns all partitions of all topics to members in turn, skipping members that do not subscribe to the
topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncelog.cluster import TopicPartition
from oncelog.consumer.group.assignors.assignor import Assignment, Topics, subscribers
from oncelog.consumer.group.subscription import Member


class RoundRobinAssignor:
    """The assignment is even if all members subscribe to the same topics; with different subscriptions, it may be
    uneven.
    """

    name: Final = "roundrobin"
    is_cooperative: Final = False

    def user_data(self, assigned: Sequence[TopicPartition], generation_id: int) -> None:
        return None

    def assign(self, topics: Topics, members: Sequence[Member]) -> Assignment:
        assignment: Assignment = {member.member_id: [] for member in members}
        circle = sorted(members, key=lambda member: member.order)
        turn = 0
        for topic in subscribers(topics, members):
            for index in range(len(topics[topic])):
                while topic not in circle[turn % len(circle)].subscription.topics:
                    turn += 1
                assignment[circle[turn % len(circle)].member_id].append(TopicPartition(topic, index))
                turn += 1
        return assignment
