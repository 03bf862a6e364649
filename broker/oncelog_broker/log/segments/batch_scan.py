"""Walks the batches of a log file: either only their headers, to find a batch, or complete batches with their CRC, to
verify them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oncelog_broker.runtime.disk import File
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC_V2, CorruptBatch, RecordBatch

HEADER_WINDOW: Final = 8192
"""Bytes that each read requests while batch headers are scanned. The number equals two index intervals, so that most
lookups need only one read.
"""

VERIFY_CHUNK: Final = 128 * 1024
"""Bytes per read while verifying; a larger batch is read in one piece. This number must not exceed
`disk.SMALL_READ_SIZE`, because recovery may read bad sectors, which must raise an OSError.
"""


class BatchLocation(NamedTuple):
    """The position, size and header fields of one batch in a log file. `position` and `size` are in bytes."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int

    @property
    def end(self) -> int:
        return self.position + self.size


def parse_location(window: memoryview, at: int, position: int, end: int) -> BatchLocation:
    """Parse the batch header at `window[at:]`, which is at `position` of a file of `end` bytes.

    Raises CorruptBatch if the bytes are not a v2 header, or if the batch would extend beyond `end`.
    """
    if len(window) - at < HEADER_SIZE:
        raise CorruptBatch(f"{len(window) - at} bytes at position {position} are not a batch header")
    base_offset, length, epoch, magic, _, _, last_delta, _, max_timestamp, *_ = HEADER.unpack_from(window, at)
    size = length + LOG_OVERHEAD
    if magic != MAGIC_V2:
        raise CorruptBatch(f"magic {magic} at position {position}: only message format v2 is supported")
    if size < HEADER_SIZE or position + size > end:
        raise CorruptBatch(f"a batch of {size} bytes at position {position} does not fit the file's {end} bytes")
    if base_offset < 0 or last_delta < 0:
        raise CorruptBatch(f"offsets {base_offset}+{last_delta} at position {position}")
    return BatchLocation(position, size, base_offset, base_offset + last_delta, max_timestamp, epoch)


def location_of(batch: RecordBatch, start: int) -> BatchLocation:
    """Return the location of `batch`. The location's position is relative to `start`, a position in the buffer that
    contains the batch.
    """
    return BatchLocation(
        batch.start - start,
        batch.size,
        batch.base_offset,
        batch.last_offset,
        batch.max_timestamp,
        batch.partition_leader_epoch,
    )


def scan_headers(file: File, start: int, end: int) -> Iterator[BatchLocation]:
    """Yield the batches of `file[start:end]`; only their headers are verified. Raises CorruptBatch, OSError."""
    window, window_start, position = memoryview(b""), start, start
    while position < end:
        at = position - window_start
        if at + HEADER_SIZE > len(window):
            window, window_start, at = file.read(position, min(HEADER_WINDOW, end - position)), position, 0
        location = parse_location(window, at, position, end)
        yield location
        position += location.size


def scan_batches(file: File, start: int, end: int) -> Iterator[tuple[int, RecordBatch]]:
    """Yield (position, batch) for each complete batch of `file[start:end]`, after checking its CRC. Raises
    CorruptBatch, OSError.

    A yielded batch is a view of a buffer that the next iteration overwrites. All bytes up to the end of the last
    yielded batch are valid.
    """
    chunk, chunk_start, position = memoryview(b""), start, start
    while position < end:
        at = position - chunk_start
        location = None
        if at + HEADER_SIZE <= len(chunk):
            location = parse_location(chunk, at, position, end)
        if location is None or at + location.size > len(chunk):
            wanted = VERIFY_CHUNK if location is None else max(location.size, VERIFY_CHUNK)
            chunk, chunk_start, at = file.read(position, min(wanted, end - position)), position, 0
            location = parse_location(chunk, 0, position, end)
            if location.size > len(chunk):
                chunk = file.read(position, location.size)
        batch = RecordBatch(chunk, at)
        if not batch.crc_is_valid():
            raise CorruptBatch(f"the CRC of the batch at position {position}, offset {batch.base_offset}, is wrong")
        yield position, batch
        position += batch.size
