"""Reads a closed segment from start to end through its own file handle, while the log stays in use.

The log may delete, replace or close the segment during the reading; the bytes stay readable through the open file
handle. Each read copies
at most READ_BYTES, as a job that another thread runs (`runtime/steps.py`), so that neither a slow disk nor page faults
block the caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oncelog_broker.log.segments.batch_scan import parse_location
from oncelog_broker.log.segments.segment import Segment
from oncelog_broker.runtime.disk import SMALL_READ_SIZE, Disk, File
from oncelog_protocol.records.batch import HEADER_SIZE, CorruptBatch, RecordBatch

READ_BYTES: Final = SMALL_READ_SIZE


class BatchReader:
    """Usage: `while not reader.at_end(): chunk = yield reader.read; for batch in reader.batches(chunk): ...`"""

    def __init__(self, disk: Disk, segment: Segment) -> None:
        self._disk = disk
        self._path = segment.path
        self._file: File | None = None
        self._end = segment.size
        self._position = 0

    def at_end(self) -> bool:
        return self._position >= self._end

    def read(self) -> memoryview:
        """Read at least one complete batch, starting after the last batch that `batches` yielded. This method waits for
        the disk, so it must run as a job in another thread. Raises CorruptBatch, OSError.
        """
        if self._file is None:
            self._file = self._disk.open(self._path)
        chunk = self._file.read(self._position, min(READ_BYTES, self._end - self._position))
        first = parse_location(chunk, 0, self._position, self._end)
        if first.size <= len(chunk):
            return chunk
        parts, size = [chunk], len(chunk)
        while size < first.size:
            part = self._file.read(self._position + size, min(READ_BYTES, first.size - size))
            if not part:
                raise CorruptBatch(f"{self._path}: the batch at position {self._position} is cut")
            parts.append(part)
            size += len(part)
        return memoryview(b"".join(parts))

    def batches(self, chunk: memoryview) -> Iterator[RecordBatch]:
        """Yield the complete batches in `chunk`, the result of `read`. Raises CorruptBatch."""
        at = 0
        while len(chunk) - at >= HEADER_SIZE:
            if parse_location(chunk, at, self._position, self._end).size > len(chunk) - at:
                return
            batch = RecordBatch(chunk, at)
            at += batch.size
            self._position += batch.size
            yield batch

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
