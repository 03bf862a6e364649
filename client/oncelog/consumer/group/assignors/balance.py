"""Balances partitions with as few moves as possible: the algorithm of both sticky assignors.

Members keep the partitions that they own, and each unowned partition goes to the subscriber that has the fewest
partitions. Then partitions move from members with more partitions to members with fewer, through intermediate members
if the two share no topic, as long as moves even out the counts. If no such chain of moves is left, the assignment is as
even as possible; this is a known property of assigning unit jobs to machines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import NamedTuple

from oncelog.cluster import TopicPartition
from oncelog.consumer.group.assignors.assignor import Assignment, Topics, subscribers
from oncelog.consumer.group.subscription import Member


class Claim(NamedTuple):
    """The partitions that a member owns, and the generation since which it owns them."""

    member_id: str
    generation_id: int
    partitions: Sequence[TopicPartition]


class _Step(NamedTuple):
    """One move in a chain of moves between members: `giver` gives a partition of `topic` to the next member in the
    chain.
    """

    giver: str
    topic: str


class _Board:
    """The assignment while it is computed: `held` has the partitions of each member, `load` their number. `owners` has
    the member that owned each partition before.
    """

    def __init__(self, subscribed: Mapping[str, list[Member]], members: Sequence[Member]) -> None:
        self.subscribed = {topic: [member.member_id for member in who] for topic, who in subscribed.items()}
        self.order = {member.member_id: rank for rank, member in enumerate(sorted(members, key=lambda m: m.order))}
        self.held: dict[str, dict[str, list[TopicPartition]]] = {member.member_id: {} for member in members}
        self.load = dict.fromkeys(self.held, 0)
        self.owners: dict[TopicPartition, str] = {}

    def give(self, member_id: str, partition: TopicPartition) -> None:
        self.held[member_id].setdefault(partition.topic, []).append(partition)
        self.load[member_id] += 1

    def move(self, giver: str, taker: str, topic: str) -> None:
        """Move one partition of `topic`, preferably back to its owner, otherwise a partition that its holder does not
        own, otherwise any partition.
        """
        candidates = self.held[giver][topic]

        def cost(partition: TopicPartition) -> tuple[bool, bool]:
            owner = self.owners.get(partition)
            return owner != taker, owner == giver

        chosen = min(reversed(candidates), key=cost)
        candidates.remove(chosen)
        if not candidates:
            del self.held[giver][topic]
        self.load[giver] -= 1
        self.give(taker, chosen)


def balanced(topics: Topics, members: Sequence[Member], claims: Iterable[Claim]) -> Assignment:
    """Return the most even assignment that takes as few partitions as possible from their present owners.

    If two members claim a partition, the member with the later generation owns it; if the generations are equal,
    neither member owns it.
    """
    subscribed = subscribers(topics, members)
    board = _Board(subscribed, members)
    wants = {member.member_id: set(member.subscription.topics) for member in members}
    for partition, owner in sorted(owners_of(claims).items()):
        is_there = partition.topic in subscribed and partition.partition < len(topics[partition.topic])
        if is_there and partition.topic in wants.get(owner, ()):
            board.owners[partition] = owner
            board.give(owner, partition)
    _hand_out(board, topics)
    _even_out(board)
    return {
        member_id: sorted(partition for part in held.values() for partition in part)
        for member_id, held in board.held.items()
    }


def owners_of(claims: Iterable[Claim]) -> dict[TopicPartition, str]:
    """Return partition -> the member with the latest claim; a partition that two members claim for the same generation
    is omitted.
    """
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for claim in claims:
        for partition in claim.partitions:
            generation, owner = best.get(partition, (claim.generation_id - 1, None))
            if claim.generation_id > generation:
                best[partition] = (claim.generation_id, claim.member_id)
            elif claim.generation_id == generation and owner != claim.member_id:
                best[partition] = (generation, None)
    return {partition: owner for partition, (_, owner) in best.items() if owner is not None}


def _hand_out(board: _Board, topics: Topics) -> None:
    """Assign unowned partitions to the subscriber with the fewest partitions; topics with few subscribers come
    first."""
    heaps: dict[tuple[str, ...], list[tuple[int, int, str]]] = {}
    for topic in sorted(board.subscribed, key=lambda name: (len(board.subscribed[name]), name)):
        who = tuple(board.subscribed[topic])
        if who not in heaps:
            heaps[who] = [(board.load[member_id], board.order[member_id], member_id) for member_id in who]
            heapify(heaps[who])
        heap = heaps[who]
        for index in range(len(topics[topic])):
            partition = TopicPartition(topic, index)
            if partition in board.owners:
                continue
            # The counts in a topic's heap may be too low, because the same members also get partitions of other topics;
            # correct the count when a member is taken from the heap.
            while heap[0][0] != board.load[heap[0][2]]:
                heapreplace(heap, (board.load[heap[0][2]], heap[0][1], heap[0][2]))
            load, rank, member_id = heap[0]
            board.give(member_id, partition)
            heapreplace(heap, (load + 1, rank, member_id))


def _even_out(board: _Board) -> None:
    """Even out the counts, beginning with the members that have the most partitions. Invariant: no chain of moves leads
    from a `closed` member to a member that has at least 2 partitions fewer than the `heaviest` member.
    """
    closed: set[str] = set()
    while True:
        candidates = [member_id for member_id in board.load if member_id not in closed]
        if not candidates:
            return
        heaviest = max(candidates, key=lambda member_id: (board.load[member_id], -board.order[member_id]))
        if board.load[heaviest] < min(board.load.values()) + 2:
            return
        path = _path_to_lighter(board, heaviest, closed)
        for position, step in enumerate(path[:-1]):
            board.move(step.giver, path[position + 1].giver, step.topic)


def _path_to_lighter(board: _Board, heaviest: str, closed: set[str]) -> list[_Step]:
    """Return the shortest chain of moves to a member with at least 2 partitions fewer; among equally short chains, the
    chain to the member with the fewest partitions. If there is no such chain of moves, return an empty list and add the
    visited
    members to `closed`.
    """
    came: dict[str, tuple[str, str] | None] = {heaviest: None}
    topics_seen: set[str] = set()
    layer = deque([heaviest])
    while layer:
        following: deque[str] = deque()
        for giver in layer:
            for topic in board.held[giver]:
                if topic in topics_seen:
                    continue
                topics_seen.add(topic)
                for taker in board.subscribed[topic]:
                    if taker not in came and taker not in closed:
                        came[taker] = (giver, topic)
                        following.append(taker)
        lighter = [taker for taker in following if board.load[taker] + 2 <= board.load[heaviest]]
        if lighter:
            return _path(came, min(lighter, key=lambda taker: (board.load[taker], board.order[taker])))
        layer = following
    closed.update(came)
    return []


def _path(came: Mapping[str, tuple[str, str] | None], end: str) -> list[_Step]:
    steps = [_Step(end, "")]
    while (before := came[steps[0].giver]) is not None:
        steps.insert(0, _Step(*before))
    return steps
