"""The row of segments of one log, and the files of those that are gone but not freed yet."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator

from oncelog_broker.log.segment import Segment
from oncelog_broker.runtime.disk import Disk

logger = logging.getLogger(__name__)


class Segments:
    """Segments by base offset, never empty; the last is the active one. Methods may raise OSError."""

    __slots__ = ("_bases", "_disk", "_marked", "_row", "active")

    def __init__(self, disk: Disk, segments: list[Segment]) -> None:
        self._disk = disk
        self._row = segments
        self._bases = [segment.base_offset for segment in segments]
        self._marked: list[tuple[int, list[str]]] = []
        """(when their bytes may be freed, in ms, paths), oldest first."""
        self.active = segments[-1]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)

    @property
    def row(self) -> list[Segment]:
        return self._row

    @property
    def first(self) -> Segment:
        return self._row[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._row)

    def number_of(self, offset: int) -> int:
        """Which segment's range `offset` lies in; 0 for offsets before the first."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def from_offset(self, offset: int) -> list[Segment]:
        return self._row[self.number_of(offset) :]

    def add(self, segment: Segment) -> None:
        """`segment` is the active one from now on."""
        self._row.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def remove_first(self, count: int, *, free_at_ms: int) -> list[int]:
        """Let go of the oldest; returns their base offsets. At least one must be left."""
        assert count < len(self._row), "a log has at least one segment"
        gone, self._row = self._row[:count], self._row[count:]
        self._bases = self._bases[count:]
        for segment in gone:
            self._mark(segment, free_at_ms)
        return [segment.base_offset for segment in gone]

    def remove_after(self, number: int, *, free_at_ms: int) -> None:
        """Let go of all behind the segment `number`, which becomes the last but is not active yet.

        The newest goes first: a crash in between leaves a log without a hole.
        """
        for segment in reversed(self._row[number + 1 :]):
            self._mark(segment, free_at_ms)
        del self._row[number + 1 :], self._bases[number + 1 :]
        self.active = self._row[number]

    def replace_all(self, segment: Segment) -> None:
        self._row, self._bases, self.active = [segment], [segment.base_offset], segment

    def mark_all(self, *, free_at_ms: int) -> None:
        """Let go of all files, newest first; `replace_all` must follow."""
        for segment in reversed(self._row):
            self._mark(segment, free_at_ms)

    def free_marked(self, now_ms: int) -> int:
        """Remove the files whose time has come; returns how many."""
        count = 0
        while self._marked and self._marked[0][0] <= now_ms:
            for path in self._marked[0][1]:
                self._disk.remove(path)
                count += 1
            self._marked.pop(0)
        return count

    def close(self) -> None:
        for segment in self._row:
            segment.close()

    def _mark(self, segment: Segment, free_at_ms: int) -> None:
        logger.info("%s: deleting %d bytes", segment.path, segment.size)
        self._marked.append((free_at_ms, segment.mark_deleted()))
