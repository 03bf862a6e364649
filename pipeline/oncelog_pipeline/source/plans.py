"""The cluster keeps where the last batches of a stream began and ended, for a checkpoint that loses its entries. Pure.

Spark writes the end of a batch to the checkpoint before it runs the batch, but does not sync the file: after a power
cut the entry may be gone, though the sink has decided the batch. Planned anew, the batch would also have the records
that came since, under the number of the decided one. So each plan is also committed as offsets of a group of the
stream's own, before the first task of the batch runs. A batch that begins where a known plan began ends where that one
ended: the replay is the batch that was decided, for whatever query and whatever sink.

- Any plan is a valid batch, if the log has its records: so it never matters whose plan it was, nor how old it is. Only
  whether a replay is the same depends on it, and the sink compares that.
- A plan names the partitions that it moves, how many these are, and a checksum of where all partitions were. It counts
  only where all of them have it.

The committed offset of a partition is where the last plan ended. Its metadata has the last plans, the newest last:
"NUMBER/PARTITIONS/CHECKSUM:START-END,...".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from zlib import crc32

from oncelog import OffsetAndMetadata, TopicPartition
from oncelog_pipeline.source.offsets import Offsets

GROUP_PREFIX: Final = "oncelog-spark-source/"
"""Of the names of the groups; the id of the stream follows."""
KEPT: Final = 20
"""So many batches back a checkpoint may have lost; fewer where plans move many partitions."""
KEPT_ENTRIES: Final = 2000
"""Of all partitions together: some 40 KB, which are committed with each batch."""

_NUMBER: Final = "([0-9]{1,19})"
_ENTRY: Final = re.compile(f"{_NUMBER}/{_NUMBER}/{_NUMBER}:{_NUMBER}-{_NUMBER}")


class Move(NamedTuple):
    """From where to where a batch reads a partition."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A batch: the partitions that it moves. Later plans have higher numbers. `position` is the checksum of where it
    begins, in all partitions."""

    number: int
    position: int
    moves: Mapping[TopicPartition, Move]


@dataclass(frozen=True, slots=True)
class Plans:
    """The last plans of a stream, the newest last. `last_number` is the highest that any partition has."""

    plans: tuple[Plan, ...] = ()
    last_number: int = -1

    def end_after(
        self, begin: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], most: int | None = None
    ) -> Offsets | None:
        """Where a batch that begins here was planned to end; None where no plan began here, the log does not have its
        records any more, or it has more than the `most` offsets that a batch may have now."""
        for plan in reversed(self.plans):
            if all(
                begin.get(partition) == move.start and move.end <= latest.get(partition, -1)
                for partition, move in plan.moves.items()
            ) and plan.position == _checksum(begin):
                if most is not None and sum(move.end - move.start for move in plan.moves.values()) > most:
                    return None
                return {**begin, **{partition: move.end for partition, move in plan.moves.items()}}
        return None

    def with_batch(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Plans:
        """With this batch as the newest plan; these plans where it reads nothing, or is known already."""
        moves = {
            partition: Move(start.get(partition, 0), offset)
            for partition, offset in end.items()
            if offset > start.get(partition, 0)
        }
        position = _checksum(start)
        if not moves or any((plan.position, plan.moves) == (position, moves) for plan in self.plans):
            return self
        number = self.last_number + 1
        kept = max(1, min(KEPT, KEPT_ENTRIES // len(moves)))
        return Plans((*self.plans, Plan(number, position, moves))[-kept:], number)

    def to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group commits for the newest plan: the other partitions have not moved."""
        if not self.plans:
            return {}
        return {
            partition: OffsetAndMetadata(move.end, ",".join(self._entries(partition)))
            for partition, move in self.plans[-1].moves.items()
        }

    def _entries(self, partition: TopicPartition) -> list[str]:
        return [
            f"{plan.number}/{len(plan.moves)}/{plan.position}:{move.start}-{move.end}"
            for plan in self.plans
            if (move := plan.moves.get(partition)) is not None
        ]


def plans_from(committed: Mapping[TopicPartition, str]) -> Plans:
    """Partition -> the metadata that the group has committed. What is no plan, no whole one, or goes back
    in a partition, is left out: others may write to the group, too."""
    moves: dict[int, dict[TopicPartition, Move]] = {}
    told: dict[int, set[tuple[int, int]]] = {}
    for partition, metadata in committed.items():
        for found in map(_ENTRY.fullmatch, metadata.split(",")):
            if found is not None:
                number, count, position, start, end = map(int, found.groups())
                moves.setdefault(number, {})[partition] = Move(start, end)
                told.setdefault(number, set()).add((count, position))
    plans = []
    for number in sorted(moves):
        (count, position), *others = told[number]
        is_forward = all(move.start < move.end for move in moves[number].values())
        if count == len(moves[number]) and not others and is_forward:
            plans.append(Plan(number, position, moves[number]))
    return Plans(tuple(plans), max(moves, default=-1))


def _checksum(offsets: Mapping[TopicPartition, int]) -> int:
    """Of a position. Partitions that nothing was read of count for nothing, as they may be new.

    Each checksum goes on from the one before. The XOR of all would be the same for (10, 10) and (11, 11), as CRCs are
    linear.
    """
    total = 0
    for (topic, index), offset in sorted(offsets.items()):
        if offset:
            total = crc32(f"{topic}/{index}/{offset},".encode(), total)
    return total
