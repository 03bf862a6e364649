"""Counts which batches of the dirty part hold the last record of a key, so that the others are dropped undecoded."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from oncelog_protocol.records.batch import RecordBatch

MAX_TRACKED_BATCHES: Final = 250_000
"""12 bytes each. The batches after that many are decoded again."""


class LiveBatches:
    """Base offsets of batches, in order, and how many last records of a key each holds."""

    def __init__(self) -> None:
        self._bases = array("q")
        self._live = array("i")
        self._tracked_end = -1

    def track(self, batch: RecordBatch) -> None:
        """Note that all records of `batch` are in the offset map, as are those of the batches tracked before."""
        if len(self._bases) < MAX_TRACKED_BATCHES:
            self._bases.append(batch.base_offset)
            self._live.append(0)
            self._tracked_end = batch.next_offset

    def count(self, offsets: Sequence[int]) -> None:
        """Each of `offsets` is the offset of the last record of a key."""
        bases, live, end = self._bases, self._live, self._tracked_end
        for offset in offsets:
            number = bisect_right(bases, offset) - 1
            if number >= 0 and offset < end:
                live[number] += 1

    def is_dead(self, batch: RecordBatch) -> bool:
        """Whether no record of `batch` is the last of its key; False for an untracked batch."""
        number = bisect_left(self._bases, batch.base_offset)
        if number == len(self._bases) or self._bases[number] != batch.base_offset:
            return False
        return self._live[number] == 0
