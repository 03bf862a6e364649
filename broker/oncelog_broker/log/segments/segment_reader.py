"""Reads complete batches for a Fetch, beginning with the batch that contains the fetch offset (T11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncelog_broker.log.segments.batch_scan import parse_location
from oncelog_broker.log.segments.segment import EMPTY, Segment
from oncelog_protocol.records.batch import HEADER_SIZE

REMEMBERED_POSITIONS: Final = 32
"""The maximum number of read positions that are remembered for each log. Each consumer group or follower that reads the
log sequentially needs one read position.
"""


class SegmentReader:
    """Reads the segments of one log. A sequential reader needs no index lookup: after each read, the file position of
    the next offset is remembered.
    """

    __slots__ = ("_positions",)

    def __init__(self) -> None:
        self._positions: dict[int, tuple[Segment, int]] = {}

    def forget_positions(self) -> None:
        """Remove all read positions; the log must call this method when segments were removed or truncated."""
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
        """Return complete batches of one segment, beginning with the batch that contains `offset`, which must be inside
        the log. The result also has the offset after the last batch read.

        `segments_from` returns the segment whose range contains an offset, and all segments after it. The function is
        an argument and not a field, because a field would create a reference cycle between this reader and its log. A
        reference cycle delays freeing a deleted log (`runtime/garbage.py`).

        Raises CorruptBatch, OSError.
        """
        place = self._positions.get(offset)
        if place is None or place[1] >= place[0].size:
            place = _locate(segments_from(offset), offset)
            if place is None:
                return EMPTY, offset
        segment, position = place
        available, file = segment.size - position, segment.file
        size = min(max_bytes, available)
        view: memoryview | None = EMPTY
        if size > 0:
            view = file.read(position, size) if may_copy else file.view(position, size)
        if view is None:  # the file cannot be mapped now
            view = EMPTY
        if len(view) == available and segment.next_offset <= upper_bound:
            end, next_offset = available, segment.next_offset
        else:
            end, next_offset = segment.whole_batches(view, position, upper_bound)
        if end == 0:
            header = file.read(position, HEADER_SIZE)
            first = parse_location(header, 0, position, segment.size)
            if not min_one_batch or first.last_offset >= upper_bound:
                return EMPTY, offset
            view = file.read(position, first.size)
            end, next_offset = first.size, first.last_offset + 1
        positions = self._positions
        if len(positions) >= REMEMBERED_POSITIONS and next_offset not in positions:
            del positions[next(iter(positions))]
        positions[next_offset] = (segment, position + end)
        return (view if end == len(view) else view[:end]), next_offset


def _locate(segments: list[Segment], offset: int) -> tuple[Segment, int] | None:
    """Return (segment, position) of the batch that contains `offset`, or of the next batch if compaction left a gap at
    `offset`; None if there is no such batch.
    """
    for segment in segments:
        for batch in segment.batches_from(offset):
            return segment, batch.position
    return None
