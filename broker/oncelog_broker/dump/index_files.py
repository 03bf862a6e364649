"""Dumps the entries of `.index` and `.timeindex` files, and checks each entry against the log of the same segment.

Zero entries at the end of a file are preallocated space and are not dumped (`log/segments/index.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, BinaryIO, Final

from oncelog_broker.dump.log_file import locations
from oncelog_broker.dump.rows import Fault, Item, Message, Row
from oncelog_broker.log.segments.batch_scan import BatchLocation, parse_location
from oncelog_broker.log.segments.offset_index import ENTRY as OFFSET_ENTRY
from oncelog_broker.log.segments.time_index import ENTRY as TIME_ENTRY
from oncelog_protocol.records.batch import HEADER_SIZE, NO_TIMESTAMP, CorruptBatch

ENTRIES_AT_ONCE: Final = 4096


class LogBeside:
    """The log file that belongs to the same segment as an index file; only batch headers are read."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self.size = size

    def batch_at(self, position: int) -> BatchLocation:
        """Return the batch that begins at this file position. Raises CorruptBatch if no batch begins at the
        position."""
        if not 0 <= position < self.size:
            raise CorruptBatch(f"position {position} is outside of the log's {self.size} bytes")
        self._file.seek(position)
        window = memoryview(self._file.read(min(HEADER_SIZE, self.size - position)))
        return parse_location(window, 0, position, self.size)

    def batches(self) -> Iterator[BatchLocation]:
        """Yield all batches of the log, from their headers. Raises CorruptBatch."""
        return locations(self._file, self.size)


def dump_offset_index(
    file: BinaryIO, size: int, *, base_offset: int, log: LogBeside | None, verify_only: bool = False
) -> Iterator[Item]:
    """Yields a row for each entry. Yields a fault for an entry that is out of order, and for an entry whose file
    position is not the start of the batch that ends with the entry's offset.

    Without a `log` only the order is checked.
    """
    previous_relative, previous_position = -1, -1
    for number, (relative, position) in enumerate(_entries(file, OFFSET_ENTRY)):
        offset, at = base_offset + relative, number * OFFSET_ENTRY.size
        if not verify_only:
            yield Row("offset index", {"offset": offset, "position": position})
        if relative <= previous_relative or position <= previous_position:
            yield Fault(f"entry ({relative}, {position}) follows ({previous_relative}, {previous_position})", at)
        elif log is not None:
            try:
                found = log.batch_at(position).last_offset
                if found != offset:
                    yield Fault(f"index offset: {offset}, log offset: {found}", at)
            except CorruptBatch as error:
                yield Fault(f"index offset: {offset}, but in the log: {error}", at)
        previous_relative, previous_position = relative, position
    yield from _cut_entry(size, OFFSET_ENTRY)


def dump_time_index(
    file: BinaryIO, size: int, *, base_offset: int, log: LogBeside | None, verify_only: bool = False
) -> Iterator[Item]:
    """Yields a row for each entry. Yields a fault for an entry that is out of order, and for an entry whose timestamp
    contradicts the batch that ends with the entry's offset.

    The offsets of the entries never decrease, so one pass over the batch headers is enough to check all entries.
    """
    batches = iter(()) if log is None else log.batches()
    batch: BatchLocation | None = None
    is_checking = log is not None
    previous_timestamp, previous_relative = NO_TIMESTAMP, -1
    for number, (timestamp, relative) in enumerate(_entries(file, TIME_ENTRY)):
        offset, at = base_offset + relative, number * TIME_ENTRY.size
        if not verify_only:
            yield Row("time index", {"timestamp": timestamp, "offset": offset})
        if timestamp <= previous_timestamp or relative < previous_relative:
            yield Fault(f"entry ({timestamp}, {relative}) follows ({previous_timestamp}, {previous_relative})", at)
        elif is_checking:
            try:
                while batch is None or batch.last_offset < offset:
                    batch = next(batches)
                if batch.last_offset != offset:
                    yield Fault(f"indexed offset: {offset}, found log offset: {batch.last_offset}", at)
                elif batch.max_timestamp != timestamp:
                    yield Fault(f"index timestamp: {timestamp}, log timestamp: {batch.max_timestamp}", at)
            except StopIteration:
                yield Fault(f"indexed offset: {offset}, but the log ends before", at)
                is_checking = False
            except CorruptBatch as error:
                yield Fault(f"indexed offset: {offset}, but the log is corrupt before it: {error}", at)
                is_checking = False
        previous_timestamp, previous_relative = timestamp, relative
    yield from _cut_entry(size, TIME_ENTRY)


def check_sanity(items: Iterator[Item], path: str) -> Iterator[Item]:
    """Yields the faults of an index that can be detected without the log; if there are none, yields a message that says
    so. A broker makes the same checks at its start.
    """
    is_sane = True
    for item in items:
        if isinstance(item, Fault):
            is_sane = False
            yield item
    if is_sane:
        yield Message(f"{path} passed sanity check.")


def _entries(file: BinaryIO, entry: Struct) -> Iterator[tuple[Any, ...]]:
    """Yield the complete entries of an index file before the first zero entry."""
    zero = tuple(entry.unpack(bytes(entry.size)))
    while chunk := file.read(entry.size * ENTRIES_AT_ONCE):
        for fields in entry.iter_unpack(chunk[: len(chunk) // entry.size * entry.size]):
            if fields == zero:
                return
            yield fields


def _cut_entry(size: int, entry: Struct) -> Iterator[Item]:
    if size % entry.size:
        yield Fault(f"{size} bytes are not a multiple of {entry.size}", size // entry.size * entry.size)
