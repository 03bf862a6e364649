"""Counts which batches of the dirty part have the last record of a key; the other batches are dropped without
decoding.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from oncelog_protocol.records.batch import RecordBatch

MAX_TRACKED_BATCHES: Final = 250_000
"""The maximum number of tracked batches; each takes 12 bytes. Batches beyond that number must be decoded again."""


class LiveBatches:
    """For each tracked batch: its base offset, and how many of its records are the last record of their key."""

    def __init__(self) -> None:
        self._bases = array("q")
        self._live = array("i")
        self._tracked_end = -1

    def track(self, batch: RecordBatch) -> None:
        """Start to track `batch`. The caller has already put all its records, and the records of all earlier batches,
        into the offset map.
        """
        if len(self._bases) < MAX_TRACKED_BATCHES:
            self._bases.append(batch.base_offset)
            self._live.append(0)
            self._tracked_end = batch.next_offset

    def count(self, offsets: Sequence[int]) -> None:
        """Count, for each tracked batch, the records that are the last of their key; `offsets` are the offsets of the
        last records of some keys.
        """
        bases, live, end = self._bases, self._live, self._tracked_end
        for offset in offsets:
            number = bisect_right(bases, offset) - 1
            if number >= 0 and offset < end:
                live[number] += 1

    def is_dead(self, batch: RecordBatch) -> bool:
        """Whether no record of `batch` is the last record of its key; False if the batch is not tracked."""
        number = bisect_left(self._bases, batch.base_offset)
        if number == len(self._bases) or self._bases[number] != batch.base_offset:
            return False
        return self._live[number] == 0
