"""Cuts a batch into the ranges that tasks read. The function `cut` is pure: its result depends only on (start, end,
options).

The result must be reproducible, because Spark requests the ranges again when it replays a batch. The argument `start`
is the result of `offsets.batch_start`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from oncelog import TopicPartition


class OffsetRange(NamedTuple):
    """The offsets of one partition from `start` up to `end` (excluded), as Spark sends them to a task."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def cut(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[OffsetRange]:
    """Return one range or several for each partition with offsets to read.

    First, ranges longer than `max_records_per_partition` are cut. Then the partition with the longest ranges gets one
    more range, until there are `min_partitions` ranges or every range has one offset.
    """
    whole = [
        OffsetRange(*partition, start.get(partition, 0), offset)
        for partition, offset in sorted(end.items())
        if offset > start.get(partition, 0)
    ]
    pieces = [-(-each.size // max_records_per_partition) if max_records_per_partition else 1 for each in whole]
    wanted = min(min_partitions or 0, sum(each.size for each in whole))
    while sum(pieces) < wanted:
        longest = max(range(len(whole)), key=lambda index: (whole[index].size / pieces[index], -index))
        pieces[longest] += 1
    return [piece for each, count in zip(whole, pieces, strict=True) for piece in _even(each, count)]


def _even(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Cut a range into `count` ranges whose sizes differ by at most one offset."""
    bounds = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [whole._replace(start=low, end=high) for low, high in pairwise(bounds) if high > low]
