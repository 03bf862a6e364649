"""Reads whole batches for a fetch, from the batch that contains the offset on (T11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncelog_broker.log.segments.batch_scan import parse_location
from oncelog_broker.log.segments.segment import EMPTY, Segment
from oncelog_broker.runtime.disk import File
from oncelog_protocol.records.batch import HEADER_SIZE

REMEMBERED_POSITIONS: Final = 32
"""How many positions of ended reads a log remembers: one for each consumer group and follower that reads along."""


class SegmentReader:
    """Reads the segments of one log. A sequential reader needs no index: the position after each read is remembered by
    its next offset."""

    __slots__ = ("_positions",)

    def __init__(self) -> None:
        self._positions: dict[int, tuple[Segment, int]] = {}

    def forget_positions(self) -> None:
        """Must be called when segments were removed or cut."""
        self._positions.clear()

    def read(
        self,
        segments_from: Callable[[int], list[Segment]],
        offset: int,
        max_bytes: int,
        upper_bound: int,
        *,
        min_one_batch: bool,
        may_copy: bool = True,
    ) -> tuple[memoryview, int]:
        """Like `LogReader.read`, for an offset that the log contains. Returns the offset after the last batch, too.

        `segments_from` returns the segments from the one whose range contains an offset on. The function is not stored:
        it belongs to the log, which owns this reader, and a deleted log must not refer to itself
        (`runtime/garbage.py`).

        Raises CorruptBatch, OSError.
        """
        place = self._positions.get(offset)
        if place is None or place[1] >= place[0].size:
            place = _locate(segments_from(offset), offset)
            if place is None:
                return EMPTY, offset
        segment, position = place
        available = segment.size - position
        view = _bytes_of(segment.file, position, min(max_bytes, available), may_copy)
        if len(view) == available and segment.next_offset <= upper_bound:
            end, next_offset = available, segment.next_offset
        else:
            end, next_offset = segment.whole_batches(view, position, upper_bound)
        if end == 0:
            header = segment.file.read(position, HEADER_SIZE)
            first = parse_location(header, 0, position, segment.size)
            if not min_one_batch or first.last_offset >= upper_bound:
                return EMPTY, offset
            view = segment.file.read(position, first.size)
            end, next_offset = first.size, first.last_offset + 1
        self._remember(next_offset, segment, position + end)
        return (view if end == len(view) else view[:end]), next_offset

    def _remember(self, next_offset: int, segment: Segment, position: int) -> None:
        positions = self._positions
        if next_offset not in positions and len(positions) >= REMEMBERED_POSITIONS:
            del positions[next(iter(positions))]
        positions[next_offset] = (segment, position)


def _locate(segments: list[Segment], offset: int) -> tuple[Segment, int] | None:
    """The batch that contains `offset`, or the next one where compaction left a gap."""
    for segment in segments:
        for batch in segment.batches_from(offset):
            return segment, batch.position
    return None


def _bytes_of(file: File, position: int, size: int, may_copy: bool) -> memoryview:
    if size <= 0:
        return EMPTY
    view = file.read(position, size) if may_copy else file.view(position, size)
    return EMPTY if view is None else view
