"""Producer snapshots: files with the producer state of a log, so that opening the log need not read all its records
(S55).

`00000000000000000042.snapshot` is Kafka's file with the producer state at offset 42:

- version 1 (int16), CRC-32C of the bytes after this field (uint32), number of entries (int32);
- 46 bytes for each entry: producer id (int64), epoch (int16), last sequence (int32), last offset (int64), offset delta
  (int32), timestamp (int64), coordinator epoch (int32), first offset of the open transaction or -1 (int64).

`00000000000000000042.window` is an additional file of this broker, with the batches before the last batch of each
producer, which Kafka's format does not have:

- version 2 (int16; version 1 had the fields of past batches in another order), CRC-32C of the bytes after this field
  (uint32), CRC of the snapshot file to which this window file belongs (uint32);
- for each entry of that snapshot, in the same order: number of past batches (uint8), then the bytes of the entry
  (`entry.py`) after the first 46 bytes.

If a window file is missing, damaged, or belongs to another snapshot, the broker ignores it, and knows only the last
batch of each producer instead of the last five. A damaged snapshot is deleted; the state is then restored from the
previous snapshot and the batches after it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from struct import Struct
from typing import Final

from oncelog_broker.log.producers.entry import (
    HEAD,
    PAST_BATCH,
    SNAPSHOT_ENTRY,
    WINDOW,
    ProducerStateEntry,
    describe,
    entry_of_snapshot,
)
from oncelog_broker.log.segments.segment import (
    OFFSET_DIGITS,
    PRODUCER_SNAPSHOT_SUFFIX,
    PRODUCER_WINDOW_SUFFIX,
    file_prefix,
)
from oncelog_broker.runtime.disk import Disk
from oncelog_protocol.crc import crc32c

logger = logging.getLogger(__name__)

SNAPSHOT_VERSION: Final = 1
WINDOW_VERSION: Final = 2
FILE_HEAD: Final = Struct(">hI")
"""Layout of the version and the CRC, at the start of both files."""
COUNT: Final = Struct(">i")
OWNER: Final = Struct(">I")


class SnapshotCorrupt(ValueError):
    """The file does not have the format of a snapshot; the message says what is wrong."""


def format_snapshot(entries: Sequence[bytes]) -> bytes:
    """Return the content of Kafka's snapshot file for these entries."""
    size = SNAPSHOT_ENTRY.size
    body = COUNT.pack(len(entries)) + b"".join([entry[:size] for entry in entries])
    return FILE_HEAD.pack(SNAPSHOT_VERSION, crc32c(body)) + body


def parse_snapshot(data: bytes) -> list[ProducerStateEntry]:
    """Return the producers in a snapshot, for people and tools. Raises SnapshotCorrupt."""
    return [describe(fields) for fields in _snapshot_fields(data)]


def format_window(entries: Sequence[bytes], snapshot: bytes) -> bytes:
    """Encode the window file (the past batches of producers) for `snapshot`: the batches before the last batch of each
    producer. `snapshot` must have been encoded from the same entries.
    """
    parts = [OWNER.pack(FILE_HEAD.unpack_from(snapshot)[1])]
    start, one = SNAPSHOT_ENTRY.size, PAST_BATCH.size
    for entry in entries:
        parts += [bytes(((len(entry) - HEAD.size) // one,)), entry[start:]]
    body = b"".join(parts)
    return FILE_HEAD.pack(WINDOW_VERSION, crc32c(body)) + body


def parse_entries(snapshot: bytes, window: bytes | None) -> list[bytes]:
    """Return the entries of a snapshot, with their past batches if the window file `window` belongs to the snapshot.
    Raises SnapshotCorrupt.
    """
    fields = _snapshot_fields(snapshot)
    if window is not None:
        try:
            return _joined(fields, window, owner=FILE_HEAD.unpack_from(snapshot)[1])
        except SnapshotCorrupt as error:
            logger.warning("only the last batch of each producer is known: %s", error)
    return [entry_of_snapshot(entry) for entry in fields]


def _snapshot_fields(data: bytes) -> list[bytes]:
    body = _checked_body(data, SNAPSHOT_VERSION)
    if len(body) < COUNT.size:
        raise SnapshotCorrupt("the number of entries is missing")
    (count,) = COUNT.unpack_from(body)
    size = SNAPSHOT_ENTRY.size
    if len(body) != COUNT.size + count * size:
        raise SnapshotCorrupt(f"{count} entries are announced, in {len(body) - COUNT.size} bytes")
    return [body[at : at + size] for at in range(COUNT.size, len(body), size)]


def _joined(fields: Sequence[bytes], window: bytes, owner: int) -> list[bytes]:
    body = _checked_body(window, WINDOW_VERSION)
    if len(body) < OWNER.size or OWNER.unpack_from(body)[0] != owner:
        raise SnapshotCorrupt("the window belongs to another snapshot")
    entries, at, end = [], OWNER.size, len(body)
    sizes = [HEAD.size - SNAPSHOT_ENTRY.size + count * PAST_BATCH.size for count in range(WINDOW)]
    for snapshot_entry in fields:
        if at >= end or body[at] >= WINDOW or at + 1 + sizes[body[at]] > end:
            raise SnapshotCorrupt("the window ends too early")
        size = sizes[body[at]]
        entries.append(snapshot_entry + body[at + 1 : at + 1 + size])
        at += 1 + size
    if at != end:
        raise SnapshotCorrupt(f"the window is {end - at} bytes too long")
    return entries


def _checked_body(data: bytes, version: int) -> bytes:
    if len(data) < FILE_HEAD.size:
        raise SnapshotCorrupt(f"{len(data)} bytes are too few for a version and a CRC")
    found, crc = FILE_HEAD.unpack_from(data)
    if found != version:
        raise SnapshotCorrupt(f"version {found}, only {version} is supported")
    body = data[FILE_HEAD.size :]
    if crc32c(body) != crc:
        raise SnapshotCorrupt("the CRC does not match the content")
    return body


class PendingSnapshot:
    """A snapshot that is not written yet; its content is fixed, so that any thread may write it without accessing the
    log.
    """

    def __init__(self, disk: Disk, directory: str, offset: int, entries: Sequence[bytes]) -> None:
        self._disk = disk
        self._prefix = os.path.join(directory, file_prefix(offset))
        self._entries = entries
        self.offset = offset
        self.is_cancelled = False
        """Whether the log was truncated below `offset`. If so, the code that writes the snapshot must delete its files
        again.
        """
        self.is_written = False

    def write(self) -> None:
        """Write Kafka's snapshot file, and the window file with the past batches. Raises OSError."""
        if self.is_written or self.is_cancelled:
            return
        self.write_window()
        self.write_snapshot()

    def write_window(self, *, is_durable: bool = True) -> None:
        """Write the first of the two files: the window file, which a snapshot without producers does not need. Raises
        OSError.
        """
        if self._entries:
            window = format_window(self._entries, format_snapshot(self._entries))
            self._disk.replace_file(self._prefix + PRODUCER_WINDOW_SUFFIX, window, is_durable=is_durable)

    def write_snapshot(self, *, is_durable: bool = True) -> None:
        """Write the second of the two files: Kafka's snapshot file. Without `is_durable`, the caller must sync both
        files, and then set `is_written`. Raises OSError.
        """
        window_path, snapshot_path = self._prefix + PRODUCER_WINDOW_SUFFIX, self._prefix + PRODUCER_SNAPSHOT_SUFFIX
        self._disk.replace_file(snapshot_path, format_snapshot(self._entries), is_durable=is_durable)
        self.is_written = is_durable
        # Check `is_cancelled` after writing: a truncation that begins later finds the files and deletes them itself.
        if self._was_cancelled():
            self._disk.remove(snapshot_path)
            self._disk.remove(window_path)

    def _was_cancelled(self) -> bool:
        return self.is_cancelled


class ProducerSnapshots:
    """The snapshot files in the directory of one log. Methods raise OSError."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def file_names(self) -> list[str]:
        """Return all file names in the log's directory. Callers pass them to methods with the parameter `names`, so
        that the directory is listed only once.
        """
        return self._disk.list_directory(self._directory)

    def load_newest(self, names: Iterable[str], at_most: int) -> tuple[int, list[bytes]] | None:
        """Return (offset, entries) of the newest valid snapshot not above `at_most`; None if there is none. Damaged
        snapshots are deleted.
        """
        for offset in sorted(_offsets(names, PRODUCER_SNAPSHOT_SUFFIX), reverse=True):
            if offset > at_most:
                continue
            snapshot_path = self._path(offset, PRODUCER_SNAPSHOT_SUFFIX)
            window_path = self._path(offset, PRODUCER_WINDOW_SUFFIX)
            try:
                window = self._disk.read_file(window_path) if self._disk.exists(window_path) else None
                return offset, parse_entries(self._disk.read_file(snapshot_path), window)
            except SnapshotCorrupt as error:
                logger.warning(
                    "%s: damaged producer snapshot deleted, the previous snapshot is used: %s", snapshot_path, error
                )
                self._remove(offset)
        return None

    def read_at(self, offset: int) -> list[bytes] | None:
        """Return the entries of the snapshot at `offset`; None if there is none, or if it is damaged."""
        snapshot_path, window_path = (
            self._path(offset, PRODUCER_SNAPSHOT_SUFFIX),
            self._path(offset, PRODUCER_WINDOW_SUFFIX),
        )
        if not self._disk.exists(snapshot_path):
            return None
        try:
            window = self._disk.read_file(window_path) if self._disk.exists(window_path) else None
            return parse_entries(self._disk.read_file(snapshot_path), window)
        except SnapshotCorrupt:
            return None

    def take(self, offset: int, entries: Sequence[bytes]) -> PendingSnapshot:
        """Return a snapshot of `entries` at `offset`, ready to be written."""
        return PendingSnapshot(self._disk, self._directory, offset, entries)

    def remove_above(self, offset: int) -> list[str]:
        """Delete snapshots above `offset`, the log end, permanently; returns the names of all files that remain in the
        directory.
        """
        names = self.file_names()
        above = [found for found in _all_offsets(names) if found > offset]
        if not above:
            return names
        for found in above:
            self._remove(found)
        self._disk.sync_directory(self._directory)
        return self.file_names()

    def remove_all_but(self, names: Iterable[str], kept: Collection[int]) -> None:
        """Delete the snapshots at all offsets that are not in `kept`. The caller usually keeps the base offsets of the
        segments and the offset of the newest snapshot (S55).
        """
        for offset in _all_offsets(names):
            if offset not in kept:
                self._remove(offset)

    def remove_at(self, offsets: Iterable[int]) -> None:
        """Delete the snapshots at these offsets, which need not exist. This method raises no errors: a snapshot that
        could not be deleted is harmless, and is deleted when the log is opened from its files.
        """
        for offset in offsets:
            with suppress(OSError):
                self._remove(offset)

    def _remove(self, offset: int) -> None:
        self._disk.remove(self._path(offset, PRODUCER_SNAPSHOT_SUFFIX))
        self._disk.remove(self._path(offset, PRODUCER_WINDOW_SUFFIX))

    def _path(self, offset: int, suffix: str) -> str:
        return os.path.join(self._directory, file_prefix(offset) + suffix)


def _offsets(names: Iterable[str], suffix: str) -> set[int]:
    """Return the offsets of the files with `suffix`."""
    prefixes = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return {int(prefix) for prefix in prefixes if len(prefix) == OFFSET_DIGITS and prefix.isdecimal()}


def _all_offsets(names: Iterable[str]) -> set[int]:
    """Return the offsets of all snapshot files and window files (past batches)."""
    names = [name for name in names if name.endswith((PRODUCER_SNAPSHOT_SUFFIX, PRODUCER_WINDOW_SUFFIX))]
    return _offsets(names, PRODUCER_SNAPSHOT_SUFFIX) | _offsets(names, PRODUCER_WINDOW_SUFFIX)
