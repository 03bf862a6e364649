"""The plans of a stream's last batches, which the cluster keeps in case the checkpoint loses its newest entries. Pure.

A plan says from which offset to which offset a batch reads each partition. Spark writes the end of a batch to the
checkpoint before it runs the batch, but does not sync the file. After a power cut the checkpoint may therefore lack the
batch, although the sink has decided to commit it. If Spark then planned the batch again, the new plan would include
newer records under the number of the decided batch. Each plan is therefore also committed, as offsets of a separate
group of the stream, before the first task of the batch runs. A batch that begins where a known plan begins also ends
where that plan ends. The replay therefore reads the same records as the decided batch, with any query and any sink.

- Any plan is a valid batch while the log has its records, so a plan may be old or written by another driver. Even then
  a replay may have other rows, so the sink compares the rows.
- A plan contains the partitions whose offsets the batch advances, the number of these partitions, and a checksum of the
  offsets of all partitions of the stream. A plan is valid only if the metadata of each of its partitions contains it.

The committed offset of a partition is where the last plan ended. The metadata of the committed offset has the last
plans, the newest last: "NUMBER/PARTITIONS/CHECKSUM:START-END,...".
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
"""The prefix of the names of the groups whose committed offsets store plans; the id of the stream follows."""
KEPT: Final = 20
"""The maximum number of plans that are kept, and so the number of batches that a checkpoint may lose. Fewer plans are
kept if their batches read many partitions (KEPT_ENTRIES).
"""
KEPT_ENTRIES: Final = 2000
"""The maximum number of entries that are stored for all partitions together. An entry is the part of a plan about one
partition; all entries, some 40 KB, are committed with each batch.
"""

_NUMBER: Final = "([0-9]{1,19})"
_ENTRY: Final = re.compile(f"{_NUMBER}/{_NUMBER}/{_NUMBER}:{_NUMBER}-{_NUMBER}")


class Move(NamedTuple):
    """The range of offsets of one partition that a batch reads: from `start` up to `end` (excluded)."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One batch. The plan of one batch; later plans have higher numbers. `position` is the checksum of the offsets of
    all partitions at the beginning of the batch; `moves` has the offset ranges of the partitions from which the batch
    reads.
    """

    number: int
    position: int
    moves: Mapping[TopicPartition, Move]


@dataclass(frozen=True, slots=True)
class Plans:
    """The last plans of a stream, the newest last. `last_number` is the highest plan number in the committed metadata
    of any partition.
    """

    plans: tuple[Plan, ...] = ()
    last_number: int = -1

    def end_after(
        self, begin: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], most: int | None = None
    ) -> Offsets | None:
        """Return the end of the newest plan that begins at `begin`. Returns None if no plan begins there, if the log no
        longer has the records of the plan, or if the plan has more than `most` offsets (the limit of a batch as now
        configured).
        """
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
        """Return these plans with this batch added as the newest plan; return them unchanged if the batch reads
        nothing, or its plan is already among them.
        """
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
        """Return the offsets to commit for the newest plan: one offset for each partition from which the batch
        reads.
        """
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
    """Parse the plans from committed metadata. `committed` maps each partition to the metadata that the group has
    committed.

    Malformed and incomplete plans, and plans that decrease a partition's offset, are ignored, because other programs
    may commit to the group, too.
    """
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
    """Return a checksum of the offsets of all partitions. Partitions at offset 0 do not count, as they may be new.

    The checksum of each partition continues from that of the previous partition. An XOR of separate checksums would be
    the same for the offsets (10, 10) and (11, 11), because CRCs are linear.
    """
    total = 0
    for (topic, index), offset in sorted(offsets.items()):
        if offset:
            total = crc32(f"{topic}/{index}/{offset},".encode(), total)
    return total
