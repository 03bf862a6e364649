"""Walks the batches of a log file: by headers only (to find one), or whole batches with their CRC (to verify them)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from oncelog_broker.runtime.disk import File
from oncelog_protocol.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC_V2, CorruptBatch, RecordBatch

HEADER_WINDOW: Final = 8192
"""Bytes read ahead when walking headers: two index intervals, so that most look-ups cost one read."""

VERIFY_CHUNK: Final = 128 * 1024
"""Bytes read at a time when verifying; a larger batch is read whole. Not above `disk.SMALL_READ_SIZE`: recovery may
read bad sectors, and they must appear as OSError."""


class BatchLocation(NamedTuple):
    """One batch in a log file, by its header alone. `position` and `size` in bytes."""

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
    """The batch whose header is at `window[at:]` and at `position` of a file whose length is `end`.

    Raises CorruptBatch if it is not a v2 header, or the batch would reach beyond `end`.
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
    """The location of `batch` relative to `start` of its buffer."""
    return BatchLocation(
        batch.start - start,
        batch.size,
        batch.base_offset,
        batch.last_offset,
        batch.max_timestamp,
        batch.partition_leader_epoch,
    )


def scan_headers(file: File, start: int, end: int) -> Iterator[BatchLocation]:
    """The batches of `file[start:end]`, unverified beyond their headers. Raises CorruptBatch, OSError."""
    window, window_start, position = memoryview(b""), start, start
    while position < end:
        at = position - window_start
        if at + HEADER_SIZE > len(window):
            window, window_start, at = file.read(position, min(HEADER_WINDOW, end - position)), position, 0
        location = parse_location(window, at, position, end)
        yield location
        position += location.size


def scan_batches(file: File, start: int, end: int) -> Iterator[tuple[int, RecordBatch]]:
    """(position, batch) for each batch of `file[start:end]`, whole and with a good CRC. Raises CorruptBatch, OSError.

    The views are of a chunk that the next step replaces. All bytes up to the end of the last yielded batch are valid.
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
