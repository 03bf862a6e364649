"""Plans replica moves for `oncelog brokers`: a plan either empties one broker, or gives all brokers the same load.
Pure.

The weight of a replica is its bytes plus PARTITION_BYTES, so that a plan also spreads empty partitions evenly.
Invariants of a
plan:

- a partition keeps its number of replicas, each on a different broker that may hold replicas;
- a partition spans at least as many racks as before, or all racks that are left; racks count only if all brokers have a
  rack;
- no replica moves without need: `emptied` moves only the replicas of the leaving brokers, and each move of `balanced`
  brings the loads of two brokers closer together.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from oncelog.cli.reassignment_plan import Assignment
from oncelog.cluster import TopicPartition

PARTITION_BYTES: Final = 1_000_000
"""The load of a replica besides its data, expressed in bytes; it stands for open files, memory and requests."""
TOLERANCE: Final = 0.1
"""`balanced` moves no replica between two brokers whose loads differ by less than this fraction of the average load."""

Sizes = Mapping[TopicPartition, int]
"""Partition -> bytes of one replica."""
Racks = Mapping[int, str | None]
"""Brokers that may hold replicas -> their racks; None means that the broker has no rack."""


class BrokerLoad(NamedTuple):
    """The load that an assignment puts on a broker."""

    replicas: int
    leads: int
    """Number of partitions whose preferred leader is this broker."""
    size: int
    """Total bytes of this broker's replicas."""


def loads(assignment: Assignment, sizes: Sizes, brokers: Iterable[int]) -> dict[int, BrokerLoad]:
    """Return the load of each of these brokers, and of any further broker that holds replicas."""
    replicas, leads, size = Counter[int](), Counter[int](), Counter[int]()
    for partition, holders in assignment.items():
        leads.update(holders[:1])
        replicas.update(holders)
        for node in holders:
            size[node] += sizes.get(partition, 0)
    return {node: BrokerLoad(replicas[node], leads[node], size[node]) for node in sorted({*brokers, *replicas})}


def emptied(current: Assignment, brokers: Racks, sizes: Sizes, leaving: Collection[int]) -> Assignment:
    """Return the assignment with no replica on the leaving brokers; all other replicas stay where they are.

    Each replica goes to the least loaded broker in a rack that the partition lacks; without such a rack, to the least
    loaded of all brokers. Raises ValueError if there are too few brokers.
    """
    staying = {node: rack for node, rack in brokers.items() if node not in leaving}
    placing = _Placing(current, staying, sizes)
    moving = [partition for partition, replicas in current.items() if any(node in leaving for node in replicas)]
    for partition in sorted(moving, key=lambda each: (-sizes.get(each, 0), each)):
        for node in current[partition]:
            if node in leaving:
                placing.replace(partition, node)
    placing.give_leaders_to_idle(moving)
    return placing.placed


def balanced(current: Assignment, brokers: Racks, sizes: Sizes) -> Assignment:
    """Return the assignment that spreads load and preferred leaders evenly over these brokers.

    First, replicas on all other brokers move to these brokers. Next, replicas of partitions that could span more racks
    move. Last, replicas move that even out the load. Raises ValueError if there are too few brokers.
    """
    others = {node for replicas in current.values() for node in replicas} - brokers.keys()
    placing = _Placing(emptied(current, brokers, sizes, others), brokers, sizes)
    placing.use_more_racks()
    placing.even_out()
    placing.spread_leaders()
    return placing.placed


class _Placing:
    """An assignment under construction, in which single replicas are moved, with the load of each broker."""

    def __init__(self, current: Assignment, brokers: Racks, sizes: Sizes) -> None:
        known = all(rack is not None for rack in brokers.values())
        self.placed: Assignment = dict(current)
        self._racks = {node: rack if known and rack is not None else str(node) for node, rack in brokers.items()}
        self._weights = {partition: sizes.get(partition, 0) + PARTITION_BYTES for partition in current}
        self._loads: Counter[int] = Counter(dict.fromkeys(brokers, 0))
        self._leads: Counter[int] = Counter(dict.fromkeys(brokers, 0))
        self._held: dict[int, set[TopicPartition]] = {node: set() for node in brokers}
        for partition, replicas in current.items():
            self._leads[replicas[0]] += 1
            for node in replicas:
                self._loads[node] += self._weights[partition]
                self._held.setdefault(node, set()).add(partition)

    def replace(self, partition: TopicPartition, node: int) -> None:
        """Move this replica to the best other broker. Raises ValueError if every broker already has a replica of the
        partition.
        """
        kept = [each for each in self.placed[partition] if each != node]
        taken = {self._racks.get(each) for each in kept}
        candidates = [each for each in self._racks if each not in kept and each != node]
        if not candidates:
            count, left = len(kept) + 1, len(self._racks)
            raise ValueError(f"{partition} has {count} replicas, and only {left} brokers are left to hold them")
        self._move(
            partition, node, min(candidates, key=lambda each: (self._racks[each] in taken, self._loads[each], each))
        )

    def _move(self, partition: TopicPartition, source: int, target: int) -> None:
        replicas = self.placed[partition]
        self.placed[partition] = tuple(target if node == source else node for node in replicas)
        if replicas[0] == source:
            self._leads[source] -= 1
            self._leads[target] += 1
        self._loads[source] -= self._weights[partition]
        self._loads[target] += self._weights[partition]
        self._held[source].discard(partition)
        self._held[target].add(partition)

    def give_leaders_to_idle(self, partitions: Iterable[TopicPartition]) -> None:
        """For each of these partitions, choose as preferred leader the replica whose broker is preferred leader of the
        fewest partitions.
        """
        for partition in partitions:
            replicas = self.placed[partition]
            idle = min(replicas, key=lambda node: (self._leads[node] - (node == replicas[0]), node != replicas[0]))
            self._lead(partition, idle)

    def _lead(self, partition: TopicPartition, node: int) -> None:
        replicas = self.placed[partition]
        self._leads[replicas[0]] -= 1
        self._leads[node] += 1
        self.placed[partition] = (node, *(each for each in replicas if each != node))

    def use_more_racks(self) -> None:
        """In each partition that could span more racks, move one of two replicas that are in the same rack."""
        number = len(set(self._racks.values()))
        for partition in self.placed:
            while True:
                replicas = self.placed[partition]
                racks = Counter(self._racks[node] for node in replicas)
                doubled = [node for node in replicas if racks[self._racks[node]] > 1]
                if not doubled or len(racks) >= min(number, len(replicas)):
                    break
                self.replace(partition, max(doubled, key=lambda node: (self._loads[node], node)))

    def even_out(self) -> None:
        """Move replicas from the most loaded brokers to the least loaded brokers, as long as a move helps."""
        if not self._racks:
            return
        least = max(PARTITION_BYTES, TOLERANCE * sum(self._loads.values()) / len(self._racks))
        while self._move_one(least):
            pass

    def _move_one(self, least: float) -> bool:
        """Move a replica between two brokers whose loads differ by more than `least`; return False if no move brings
        their loads closer together.
        """
        by_load = sorted(self._racks, key=lambda node: (self._loads[node], node))
        for source in reversed(by_load):
            for target in by_load:
                if self._loads[source] - self._loads[target] <= least:
                    break
                best = self._best_replica(source, target, least)
                if best is not None:
                    self._move(best, source, target)
                    return True
        return False

    def _best_replica(self, source: int, target: int, least: float) -> TopicPartition | None:
        """Return the replica whose move leaves the smallest difference between the loads of the two brokers. Returns
        None if no replica that may move is small enough to bring the loads closer together.
        """
        gap = self._loads[source] - self._loads[target]
        fitting = (
            partition
            for partition in self._held[source]
            if self._weights[partition] <= gap - least / 2 and self._fits(partition, source, target)
        )
        return min(fitting, key=lambda each: (abs(gap - 2 * self._weights[each]), each), default=None)

    def _fits(self, partition: TopicPartition, source: int, target: int) -> bool:
        """Return whether the partition has no replica on the target, and spans no fewer racks after the move."""
        replicas = self.placed[partition]
        if target in replicas:
            return False
        others = {self._racks[node] for node in replicas if node != source}
        return self._racks[target] not in others or self._racks[source] in others

    def spread_leaders(self) -> None:
        """Change preferred leaders until the numbers of partitions that any two brokers lead differ by at most one, as
        far as the replicas allow.

        Each iteration finds the shortest chain of changes from a broker that leads many partitions to a broker that
        leads few. For example, broker a passes b the lead of a partition that b also holds, and b passes c the lead of
        a partition that c also holds.
        """
        offers = _Offers(self.placed)
        while (chain := self._chain(offers)) is not None:
            for giver, taker in chain:
                partition = offers.take(giver, taker)
                self._lead(partition, taker)
                offers.add(partition, self.placed[partition])

    def _chain(self, offers: _Offers) -> list[tuple[int, int]] | None:
        """Return one chain of changes in reverse order, as pairs of the broker that gives up the lead of a partition
        and the broker that gets it. Returns None if no chain makes the numbers of leads more even.
        """
        for start in sorted(self._racks, key=lambda node: (-self._leads[node], node)):
            came: dict[int, int] = {}
            queue = deque([start])
            while queue:
                node = queue.popleft()
                for taker in offers.takers(node):
                    if taker in came or taker == start:
                        continue
                    came[taker] = node
                    if self._leads[taker] <= self._leads[start] - 2:
                        return _pairs(came, taker)
                    queue.append(taker)
        return None


class _Offers:
    """For each pair of brokers, the partitions that the first broker leads and of which the second broker has a
    replica.
    """

    def __init__(self, placed: Assignment) -> None:
        self._partitions: dict[int, dict[int, set[TopicPartition]]] = {}
        for partition, replicas in placed.items():
            self.add(partition, replicas)

    def add(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        leader, *others = replicas
        for node in others:
            self._partitions.setdefault(leader, {}).setdefault(node, set()).add(partition)

    def takers(self, giver: int) -> list[int]:
        return sorted(node for node, partitions in self._partitions.get(giver, {}).items() if partitions)

    def take(self, giver: int, taker: int) -> TopicPartition:
        """Remove and return a partition whose lead `giver` passes to `taker`."""
        offered = self._partitions[giver]
        partition = min(offered[taker])
        for partitions in offered.values():
            partitions.discard(partition)
        return partition


def _pairs(came: Mapping[int, int], end: int) -> list[tuple[int, int]]:
    pairs = []
    while end in came:
        pairs.append((came[end], end))
        end = came[end]
    return pairs
