"""Range: each member gets a consecutive range of each topic's partitions; the first members get the remainder.

For topics with equal partition counts, members get the same partition numbers, which joins of topics need. With racks
(KIP-881), partitions are assigned first to members in the rack of a replica, but racks never change the number of
partitions that a member gets. Topics with equal subscribers and partition counts are still assigned together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from oncelog.cluster import TopicPartition
from oncelog.consumer.group.assignors.assignor import Assignment, Topics, subscribers
from oncelog.consumer.group.subscription import Member


class _Share:
    """The assignment of one topic's partitions while it is being computed.

    Invariant: each member has at most `quota` partitions; as many members as the remainder may have one more.
    """

    def __init__(self, topic: str, racks: Sequence[frozenset[str]], members: list[Member]) -> None:
        self.topic = topic
        self.racks = racks
        self.members = members
        self.open = list(range(len(racks)))
        self.quota, self._extra = divmod(len(racks), len(members))
        self._counts = {member.member_id: 0 for member in members}
        member_racks = {member.subscription.rack for member in members} - {None}
        all_racks = frozenset[str]().union(*racks)
        # If every partition is in every rack, or no member's rack has a replica, racks do not affect the assignment.
        self.is_rack_aware = bool(member_racks & all_racks) and any(there != all_racks for there in racks)

    def room(self, member: Member) -> int:
        """Return how many more partitions `member` may get."""
        return max(0, self.quota + (self._extra > 0) - self._counts[member.member_id])

    def is_near(self, member: Member, index: int) -> bool:
        rack = member.subscription.rack
        return rack is None or rack in self.racks[index]

    def give(self, member: Member, indexes: Iterable[int], assignment: Assignment) -> None:
        given = list(indexes)
        assignment[member.member_id] += [TopicPartition(self.topic, index) for index in given]
        self._counts[member.member_id] += len(given)
        if given and self._counts[member.member_id] > self.quota:
            self._extra -= 1
        gone = set(given)
        self.open = [index for index in self.open if index not in gone]

    def give_runs(self, assignment: Assignment, may: Callable[[Member, int], bool]) -> None:
        """Assign to each member, in order, the first unassigned partitions for which `may(member,
        partition)` is true.
        """
        for member in self.members:
            candidates = [index for index in self.open if may(member, index)]
            self.give(member, candidates[: self.room(member)], assignment)


class RangeAssignor:
    """Kafka's default assignor."""

    name: Final = "range"
    is_cooperative: Final = False

    def user_data(self, assigned: Sequence[TopicPartition], generation_id: int) -> None:
        return None

    def assign(self, topics: Topics, members: Sequence[Member]) -> Assignment:
        assignment: Assignment = {member.member_id: [] for member in members}
        shares = [_Share(topic, topics[topic], who) for topic, who in subscribers(topics, members).items()]
        if any(share.is_rack_aware for share in shares):
            _give_near(shares, assignment)
        for share in shares:
            share.give_runs(assignment, lambda member, index: True)
        for assigned in assignment.values():
            assigned.sort()
        return assignment


def _give_near(shares: list[_Share], assignment: Assignment) -> None:
    together: dict[tuple[tuple[str, ...], int], list[_Share]] = {}
    for share in shares:
        members = tuple(member.member_id for member in share.members)
        together.setdefault((members, len(share.racks)), []).append(share)
    for part in together.values():
        if len(part) > 1:
            _give_near_together(part, assignment)
        elif part[0].is_rack_aware:
            part[0].give_runs(assignment, part[0].is_near)


def _give_near_together(shares: list[_Share], assignment: Assignment) -> None:
    """Assign each partition number of all these topics to the first member below its quota whose rack has a replica of
    this partition of every topic.
    """
    for index in range(len(shares[0].racks)):
        for member in shares[0].members:
            if all(share.room(member) > 0 and share.is_near(member, index) for share in shares):
                for share in shares:
                    share.give(member, [index], assignment)
                break
