"""One segment: a log file and its two indexes, all named after the segment's base offset.

- `00000000000000000042.log` has the batches, one after another.
- `00000000000000000042.index` is the offset index (`offset_index`).
- `00000000000000000042.timeindex` is the time index (`time_index`).
- `00000000000000000042.txnindex` has the aborted transactions (S51).
- `00000000000000000042.snapshot` has the producer state at the base offset (S55).
- `00000000000000000042.window` has the part of the producer state that Kafka's snapshot format does not have.

The last segment of a log is active: batches are appended to it, and its indexes are in memory. Closed segments never
change until they are deleted. Kafka's counterpart is LogSegment.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Iterator
from mmap import mmap
from typing import Final

from oncelog_broker.log.closed_log import Growth
from oncelog_broker.log.segments.batch_scan import HEADER_WINDOW, BatchLocation, parse_location, scan_headers
from oncelog_broker.log.segments.index import IndexCorrupt
from oncelog_broker.log.segments.offset_index import OffsetIndex, OffsetPosition
from oncelog_broker.log.segments.time_index import TimeIndex
from oncelog_broker.runtime.disk import Disk, File
from oncelog_protocol.records.batch import HEADER_SIZE, NO_TIMESTAMP, Buffer, CorruptBatch

logger = logging.getLogger(__name__)

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX: Final = ".snapshot"
PRODUCER_WINDOW_SUFFIX: Final = ".window"
INDEX_SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
SIDE_SUFFIXES: Final = (*INDEX_SUFFIXES, PRODUCER_SNAPSHOT_SUFFIX, PRODUCER_WINDOW_SUFFIX)
DELETED_SUFFIX: Final = ".deleted"
"""Suffix of a file that is no longer part of the log, but is not freed yet."""

OFFSET_DIGITS: Final = 20
EMPTY: Final = memoryview(b"")


def file_prefix(base_offset: int) -> str:
    return f"{base_offset:0{OFFSET_DIGITS}d}"


class _NoFile:
    """Stands in for a log file that is not created yet; behaves like an empty file that needs no sync."""

    path, size = "", 0

    def append(self, *buffers: Buffer) -> int:
        raise AssertionError("it is to be made first")

    def read(self, position: int, size: int) -> memoryview:
        return EMPTY

    def view(self, position: int, size: int) -> memoryview:
        return EMPTY

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


NO_FILE: Final = _NoFile()
NO_GROWTH: Final = NO_TIMESTAMP, 0


class Segment:
    """One segment of the log in `directory`, created by `create` and `open`. Every method may raise OSError."""

    __slots__ = (
        "_bytes_since_index_entry",
        "_directory",
        "_disk",
        "_file",
        "_grown_timestamp",
        "_max_timestamp",
        "_max_timestamp_known",
        "_max_timestamp_offset",
        "base_offset",
        "created_ms",
        "first_timestamp",
        "index_interval_bytes",
        "is_made",
        "next_offset",
        "noted_size",
        "offset_index",
        "path",
        "size",
        "time_index",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        now_ms: int,
        suffix: str = "",
    ) -> None:
        """The constructor is internal: use `create` and `open`."""
        prefix = os.path.join(directory, file_prefix(base_offset))
        self._disk = disk
        self._directory = directory
        self._file: File | None = None
        self.is_made = True
        """Whether the log file exists. If the file does not exist, the segment is empty, and reads return no records.
        """
        self.index_interval_bytes = index_interval_bytes
        self._bytes_since_index_entry = 0
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_known = False
        self._max_timestamp_offset = base_offset
        self._grown_timestamp = NO_GROWTH
        """(largest timestamp, its offset) of the records that the time index in the file does not cover (`grow`)."""
        self.path = prefix + LOG_SUFFIX + suffix
        self.base_offset = base_offset
        self.created_ms = now_ms
        """The wall time, in ms, when this process created or opened the segment."""
        self.first_timestamp = NO_TIMESTAMP
        """The largest timestamp of the first batch. The age that `segment.ms` limits is measured from this timestamp.
        Only an active segment has this value.
        """
        self.noted_size = 0
        """In an active segment, the end position of the last batch that was passed to `note_batch`. The value equals
        `size` when all batches were passed.
        """
        self.next_offset = base_offset
        """The offset after the last record; for a closed segment, the base offset of the next segment."""
        self.size = 0
        """The number of bytes in the log file."""
        self.offset_index = OffsetIndex(disk, prefix + OFFSET_INDEX_SUFFIX + suffix, base_offset)
        self.time_index = TimeIndex(disk, prefix + TIME_INDEX_SUFFIX + suffix, base_offset)

    @classmethod
    def create(
        cls,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        now_ms: int,
        suffix: str = "",
        is_made_later: bool = False,
    ) -> Segment:
        """Create an empty, active segment. A segment with a `suffix` in its file names does not belong to the log yet.

        If `is_made_later` is True, the log file is not created by this method, but by the first append.
        """
        segment = cls(
            disk, directory, base_offset, index_interval_bytes=index_interval_bytes, now_ms=now_ms, suffix=suffix
        )
        segment.is_made = False
        if not is_made_later:
            segment.make()
        segment.start_empty()
        return segment

    @classmethod
    def open(
        cls, disk: Disk, directory: str, base_offset: int, *, index_interval_bytes: int, next_offset: int, now_ms: int
    ) -> Segment:
        """Open an existing segment as a closed segment; its files are opened when they are first read."""
        segment = cls(disk, directory, base_offset, index_interval_bytes=index_interval_bytes, now_ms=now_ms)
        segment.size = disk.size(segment.path)
        segment.next_offset = next_offset
        return segment

    def __repr__(self) -> str:
        return f"Segment({self.path}, {self.size} bytes, offsets {self.base_offset} to before {self.next_offset})"

    @property
    def file(self) -> File:
        if self._file is None:
            if not self.is_made:
                return NO_FILE
            self._file = self._disk.open(self.path)
        return self._file

    def make(self) -> None:
        """Create the log file. The directory is not synced, so the name of the new file is not durable yet."""
        made = self._disk.open(self.path, create=True)
        if made.size:
            made.close()
            raise FileExistsError(f"{self.path} has data already")
        self._file, self.is_made = made, True

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp in the segment; NO_TIMESTAMP if no record has a timestamp."""
        if not self._max_timestamp_known:
            self._load_max_timestamp()
        return self._max_timestamp

    def retention_timestamp_ms(self) -> int:
        """Return the time in ms from which the segment's age is measured: its largest timestamp, or else the time of
        the last write to its file.
        """
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self._disk.modified_ms(self.path) if self.is_made else self.created_ms

    # --- methods that write batches and indexes -----------------------------------------------------------------------

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Append one complete batch. Raises OSError; the segment is then unchanged."""
        position, size = (self._file or self.file).append(batch), len(batch)
        self.size = position + size
        if position == 0 or self._bytes_since_index_entry > self.index_interval_bytes:
            self.note_batch(position, size, last_offset, max_timestamp)
            return
        # To save a call, the following lines repeat the part of `note_batch` that does not write index entries; most
        # appends need no index entry.
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        self._bytes_since_index_entry += size
        self.noted_size = position + size
        self.next_offset = last_offset + 1

    def append_all(self, batches: Buffer, locations: Iterable[BatchLocation]) -> None:
        """Append several batches with one write; the positions in `locations` are relative to `batches`. Raises
        OSError; the segment is then unchanged.
        """
        position = self.file.append(batches)
        self.size = position + len(batches)
        for batch in locations:
            self.note_batch(position + batch.position, batch.size, batch.last_offset, batch.max_timestamp)

    def note_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Update indexes and totals for a batch that is in the file. Appends and recovery call this method for each
        batch, in order.
        """
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self._bytes_since_index_entry > self.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append(self._max_timestamp, self._max_timestamp_offset)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size
        self.noted_size = position + size
        self.next_offset = last_offset + 1

    def seal(self) -> None:
        """Close the segment for appends: write its indexes and free their memory."""
        self.write_indexes()
        self.offset_index.seal()
        self.time_index.seal()

    def write_indexes(self) -> None:
        """Write the indexes in the form that closed segments have, with the entry for the largest timestamp. More
        batches may be appended after this call.
        """
        self.index_max_timestamp()
        self.persist_indexes()

    def persist_indexes(self) -> None:
        """Write the missing entries to the index files, in the form that active segments have."""
        if not self.is_made:
            return  # an index without a log file would look like a lost log file
        self.offset_index.persist()
        self.time_index.persist()

    def index_max_timestamp(self) -> None:
        """Add an entry for the largest timestamp, which completes the time index of a closed segment."""
        self.time_index.append(self._max_timestamp, self._max_timestamp_offset)

    def paths_to_sync(self) -> list[str]:
        """Return the paths of the index files with unsynced entries, for the caller to sync."""
        paths = (index.path_to_sync() for index in (self.offset_index, self.time_index))
        return [path for path in paths if path is not None]

    def age_ms(self, max_timestamp: int, now_ms: int) -> int:
        """Return the age in ms that `segment.ms` limits: a batch's `max_timestamp` minus the timestamp of the first
        batch. If the first batch has no timestamp, the age is the wall time since the segment was created.
        """
        if self.first_timestamp < 0:
            return now_ms - self.created_ms
        return (max_timestamp if max_timestamp >= 0 else now_ms) - self.first_timestamp

    def end_before(self, offset: int) -> int:
        """Return the offset after the last batch that ends before `offset`; the base offset if there is no such
        batch.
        """
        end = self.base_offset
        for batch in scan_headers(self.file, self._start_position(offset - 1), self.size):
            if batch.last_offset >= offset:
                break
            end = batch.last_offset + 1
        return end

    def truncate_to(self, offset: int) -> None:
        """Remove the batch that contains `offset`, and all batches after it; the segment must be active.

        Afterwards `next_offset` is the offset after the last remaining batch, even if there was a gap between that
        batch and `offset`. Views of the removed bytes must not be accessed afterwards (`RealFile`).
        """
        first_removed = next(self.batches_from(offset), None)
        if first_removed is not None:
            self.cut(first_removed.position, offset)

    def cut(self, position: int, offset: int) -> None:
        """Truncate an active segment's file at `position`, the start of a batch that ends at or after `offset`."""
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.file.truncate(position)
        self.size = position
        self.persist_indexes()
        self._replay_tail()

    # --- methods that make an existing segment active -----------------------------------------------------------------

    def grow(self, growth: Growth) -> None:
        """Add the batches of `growth`, which follow those that the index files cover, to a dormant segment."""
        self.size, self.next_offset = growth.size, growth.log_end_offset
        self._grown_timestamp = growth.max_timestamp, growth.max_timestamp_offset

    def activate(self) -> None:
        """Make this segment the active segment: load the indexes, and call `note_batch` for the batches from the last
        index entry on.

        Raises IndexCorrupt if the indexes do not fit the log file, CorruptBatch if the log file does not end with a
        complete batch.
        """
        self._load_indexes(below=None)
        self._replay_tail()

    def make_dormant(self, next_offset: int) -> None:
        """Undo a failed `activate` or rebuild of a segment that ends before `next_offset`, so that nothing uses facts
        of only some of its batches.
        """
        self.offset_index.forget()
        self.time_index.forget()
        self.next_offset = next_offset
        self._max_timestamp_known = False

    def start_verified(self, offset: int) -> int:
        """Make this segment the active segment with only the index entries below `offset`; returns the position from
        which the batches must be verified.

        All batches before that position have then been passed to `note_batch`. If the indexes are damaged, the position
        is the start of the file.
        """
        try:
            self._load_indexes(below=offset)
        except IndexCorrupt as error:
            logger.warning("%s: verifying the segment from its start: %s", self.path, error)
            self.start_empty()
            return 0
        return self._restart_at_last_entry()

    def _load_indexes(self, *, below: int | None) -> None:
        """Load the index entries below the offset `below` into memory; all entries if `below` is None. Raises
        IndexCorrupt if the entries do not fit the log file.
        """
        self.offset_index.activate()
        self.time_index.activate()
        if below is not None:
            self.offset_index.truncate_to(below)
            self.time_index.truncate_to(below)
        self.offset_index.check(self.size)
        self.time_index.check(self.size)
        last = self.offset_index.last()
        if last.position and self._indexed_batch(last) is None:
            raise self._no_batch_at(last)

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the batch headers. Raises CorruptBatch."""
        was_active, next_offset = self.offset_index.is_active, self.next_offset
        try:
            self.activate_from_log()
        except BaseException:
            self.make_dormant(next_offset)
            raise
        if not was_active:
            self.seal()
        self.next_offset = next_offset

    def activate_from_log(self) -> None:
        """Make this segment the active segment, with indexes rebuilt from the batch headers. Raises CorruptBatch."""
        self.start_empty()
        for batch in scan_headers(self.file, 0, self.size):
            self.note_batch(batch.position, batch.size, batch.last_offset, batch.max_timestamp)

    def start_empty(self) -> None:
        """Make this segment the active segment with empty indexes. The caller must then pass all batches of the file to
        `note_batch`.
        """
        self.offset_index.reset()
        self.time_index.reset()
        self.first_timestamp = NO_TIMESTAMP
        self._forget_since_last_entry()

    def _forget_since_last_entry(self) -> None:
        """Reset this segment to its state just before `note_batch` got the batch that has the last index entry."""
        self._max_timestamp, self._max_timestamp_offset = self.time_index.last()
        self._max_timestamp_known = True
        self._bytes_since_index_entry = 0
        self.noted_size = self.offset_index.last().position
        self.next_offset = self.base_offset

    def _replay_tail(self) -> None:
        """Call `note_batch` for the batches from the last index entry to the end of the file. Raises CorruptBatch."""
        for batch in scan_headers(self.file, self._restart_at_last_entry(), self.size):
            self.note_batch(batch.position, batch.size, batch.last_offset, batch.max_timestamp)

    def _restart_at_last_entry(self) -> int:
        self._forget_since_last_entry()
        position = self.offset_index.last().position
        if position:
            self.first_timestamp = parse_location(self.file.read(0, HEADER_SIZE), 0, 0, self.size).max_timestamp
        return position

    def _load_max_timestamp(self) -> None:
        try:
            last = self.time_index.last()
        except IndexCorrupt as error:
            self._rebuild_because(error)
            last = self.time_index.last()
        self._max_timestamp, self._max_timestamp_offset = last
        if last.timestamp == NO_TIMESTAMP:
            for batch in scan_headers(self.file, 0, self.size):
                if batch.max_timestamp > self._max_timestamp:
                    self._max_timestamp, self._max_timestamp_offset = batch.max_timestamp, batch.last_offset
        elif self._grown_timestamp[0] > last.timestamp:
            self._max_timestamp, self._max_timestamp_offset = self._grown_timestamp
        self._max_timestamp_known = True

    def _rebuild_because(self, reason: IndexCorrupt) -> None:
        logger.warning("%s: rebuilding the indexes: %s", self.path, reason)
        self.rebuild_indexes()

    # --- methods that find batches ------------------------------------------------------------------------------------

    def batches_from(self, offset: int) -> Iterator[BatchLocation]:
        """Yield all batches, beginning with the first batch that ends at or after `offset`. Raises CorruptBatch."""
        for batch in scan_headers(self.file, self._start_position(offset), self.size):
            if batch.last_offset >= offset:
                yield batch

    def batches_from_timestamp(self, timestamp: int) -> Iterator[BatchLocation]:
        """Yield the batches whose largest timestamp is at least `timestamp`, in offset order."""
        try:
            offset = self.time_index.lookup(timestamp).offset
        except IndexCorrupt as error:
            self._rebuild_because(error)
            offset = self.time_index.lookup(timestamp).offset
        for batch in self.batches_from(offset):
            if batch.max_timestamp >= timestamp:
                yield batch

    def largest_before(self, offset: int) -> tuple[int, int]:
        """Return (the largest timestamp of a record below `offset`, an offset up to which no record has a larger
        timestamp); the timestamp is -1 if no record has a timestamp.
        """
        try:
            return self.time_index.last_before(offset)
        except IndexCorrupt as error:
            self._rebuild_because(error)
            return self.time_index.last_before(offset)

    def whole_batches(self, view: memoryview, position: int, upper_bound: int) -> tuple[int, int]:
        """Find how many bytes of `view` are complete batches below `upper_bound`; `view` has the file's bytes from the
        batch at `position` on.

        Returns (number of bytes, offset after the last of these batches); the result is (0, -1) if the first batch is
        not complete or not below `upper_bound`.
        """
        file, end = self.file, position + len(view)
        # Read headers from the file instead of a mapped view: at a bad sector, a mapped view would kill the process,
        # but a read raises OSError.
        window, window_start = (EMPTY, end) if isinstance(view.obj, mmap) else (view, position)
        at, next_offset = position, -1
        entry = self._last_entry_before(end, upper_bound)
        if entry is not None and entry.position > position:
            if window is EMPTY:
                size = max(HEADER_SIZE, min(HEADER_WINDOW, end - entry.position))
                window, window_start = file.read(entry.position, size), entry.position
            batch = self._indexed_batch(entry, window, window_start)
            if batch is not None and batch.base_offset <= upper_bound:
                at, next_offset = entry.position, batch.base_offset
        while at < end:
            if not window_start <= at <= window_start + len(window) - HEADER_SIZE:
                if window is view:
                    break  # the header of the next batch is not complete
                window, window_start = file.read(at, min(HEADER_WINDOW, end - at)), at
            try:
                batch = parse_location(window, at - window_start, at, end)
            except CorruptBatch:  # keep the complete batches before the corrupt one
                break
            if batch.last_offset >= upper_bound:
                break
            at, next_offset = batch.end, batch.last_offset + 1
        return at - position, next_offset

    def _last_entry_before(self, position: int, offset: int) -> OffsetPosition | None:
        """Return the last index entry before `position` whose batch may begin at or below `offset`; None if there is no
        such entry, or the index is damaged.
        """
        index = self.offset_index
        try:
            entry = index.lookup_position(position - 1)
            if offset < self.next_offset:
                entry = min(entry, index.lookup(offset))
        except IndexCorrupt:
            return None
        return entry if entry.position < position else None

    def _start_position(self, offset: int) -> int:
        """Return the start position of the batch that contains `offset`, or of an earlier batch. A damaged index is
        rebuilt
        before the search.
        """
        try:
            entry = self.offset_index.lookup(offset)
            if entry.position == 0 or self._indexed_batch(entry) is not None:
                return entry.position
            raise self._no_batch_at(entry)
        except IndexCorrupt as error:
            self._rebuild_because(error)
            return self.offset_index.lookup(offset).position

    def _indexed_batch(self, entry: OffsetPosition, known: memoryview = EMPTY, start: int = 0) -> BatchLocation | None:
        """Return the batch that `entry` points at; None if no batch begins at the entry's position, or if that batch
        begins after the entry's offset. This check is needed because an index may be damaged. The batch header is read
        from the file, unless it is in `known`, which has the
        file's bytes from `start` on.
        """
        if entry.position < 0:
            return None
        at = entry.position - start
        if not 0 <= at <= len(known) - HEADER_SIZE:
            known, at = self.file.read(entry.position, HEADER_SIZE), 0
        try:
            batch = parse_location(known, at, entry.position, self.size)
        except CorruptBatch:
            return None
        return batch if self.base_offset <= batch.base_offset <= entry.offset else None

    def _no_batch_at(self, entry: OffsetPosition) -> IndexCorrupt:
        return IndexCorrupt(f"no batch at position {entry.position} that could hold offset {entry.offset}")

    # --- methods that close, rename or remove the files ---------------------------------------------------------------

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def change_suffix(self, old: str, new: str) -> None:
        """Rename the files of the segment, whose names have the suffix `old`."""
        self.close()  # an open `File` would keep its old path
        aborted = self.path.removesuffix(LOG_SUFFIX + old) + TRANSACTION_INDEX_SUFFIX
        for part in (self, self.offset_index, self.time_index):
            path = part.path.removesuffix(old) + new
            self._disk.rename(part.path, path)
            part.path = path
        if self._disk.exists(aborted + old):
            self._disk.rename(aborted + old, aborted + new)

    def mark_deleted(self, *, keep: Collection[str] = ()) -> list[str]:
        """Rename the files of the segment so that they are no longer part of the log; returns the new paths, for a
        later `Disk.remove`.

        Side files (all files except the log file) with a suffix in `keep` are not renamed, because they belong to the
        segment's successor. The log file is renamed first, because the next startup removes side files without a log
        file.
        """
        self.close()
        marked = []
        for path in (self.path, *self._side_paths()):
            if not path.endswith(tuple(keep)) and self._disk.exists(path):
                self._disk.rename(path, path + DELETED_SUFFIX)
                marked.append(path + DELETED_SUFFIX)
        return marked

    def remove_side_files(self) -> None:
        """Remove all files of the segment except the log file."""
        for path in self._side_paths():
            self._disk.remove(path)

    def _side_paths(self) -> list[str]:
        prefix = self.path.removesuffix(LOG_SUFFIX)
        return [prefix + suffix for suffix in SIDE_SUFFIXES]
