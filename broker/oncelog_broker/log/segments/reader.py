"""Finding and cutting out what a fetch gets: whole batches, from the one that contains the offset on (T11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncelog_broker.log.segments.batch_scan import parse_location
from oncelog_broker.log.segments.segment import Segment
from oncelog_protocol.records.batch import HEADER_SIZE

EMPTY: Final = memoryview(b"")

REMEMBERED_POSITIONS: Final = 32
"""Where the last reads of a log ended: one for each consumer group and follower that reads along."""


class LogReader:
    """Reads one log. Sequential readers find their place without the index: it is remembered by the next offset."""

    __slots__ = ("_positions", "_segments_from")

    def __init__(self, segments_from: Callable[[int], list[Segment]]) -> None:
        """`segments_from` gives the segments from the one on in whose range an offset lies."""
        self._segments_from = segments_from
        self._positions: dict[int, tuple[Segment, int]] = {}

    def forget_positions(self) -> None:
        """Must be called when segments were removed or cut."""
        self._positions.clear()

    def read(self, offset: int, max_bytes: int, upper_bound: int, *, min_one_batch: bool) -> tuple[memoryview, int]:
        """As `PartitionLog.read`, for an offset that the log holds, and the offset after the last batch.

        Raises CorruptBatch, OSError.
        """
        place = self._positions.get(offset)
        if place is None or place[1] >= place[0].size:
            place = self._locate(offset)
            if place is None:
                return EMPTY, offset
        segment, position = place
        available = segment.size - position
        view = segment.file.read(position, min(max_bytes, available)) if max_bytes > 0 else EMPTY
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

    def _locate(self, offset: int) -> tuple[Segment, int] | None:
        """The batch that contains `offset`, or the next one where compaction left a gap."""
        for segment in self._segments_from(offset):
            for batch in segment.batches_from(offset):
                return segment, batch.position
        return None

    def _remember(self, next_offset: int, segment: Segment, position: int) -> None:
        positions = self._positions
        if next_offset not in positions and len(positions) >= REMEMBERED_POSITIONS:
            del positions[next(iter(positions))]
        positions[next_offset] = (segment, position)
