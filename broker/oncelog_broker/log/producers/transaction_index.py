"""The aborted transactions of a segment: `<base offset>.txnindex` (S51, S52).

    int16 version 0, int64 producer id, int64 first offset, int64 last offset, int64 last stable offset    34 bytes

An entry for each ABORT marker of the segment that ended a transaction with data; `last offset` is the marker's. Entries
are in the order of their markers. Where there is no entry, there is no file. Source: Kafka's TransactionIndex.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from oncelog_broker.log.segments.index import IndexCorrupt
from oncelog_broker.log.segments.lost_segments import log_file_base
from oncelog_broker.log.segments.segment import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, file_prefix
from oncelog_broker.runtime.disk import Disk, File

ENTRY: Final = Struct(">hqqqq")
ENTRY_VERSION: Final = 0
_LAST_OFFSET: Final = Struct(">q")
_LAST_OFFSET_AT: Final = 18


class AbortedTransaction(NamedTuple):
    """From its first record to its marker; no transaction below `last_stable_offset` was open when it ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def format_aborted(transactions: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(ENTRY.pack(ENTRY_VERSION, *transaction) for transaction in transactions)


def parse_aborted(data: bytes | bytearray | memoryview) -> list[AbortedTransaction]:
    """All entries of a file. Raises IndexCorrupt."""
    if len(data) % ENTRY.size:
        raise IndexCorrupt(f"{len(data)} bytes are no multiple of {ENTRY.size}")
    found, before = [], -1
    for version, *fields in ENTRY.iter_unpack(data):
        entry = AbortedTransaction._make(fields)
        if version != ENTRY_VERSION:
            raise IndexCorrupt(f"version {version}, only {ENTRY_VERSION} is known")
        if not 0 <= entry.first_offset < entry.last_offset or entry.last_offset <= before:
            raise IndexCorrupt(f"{entry} after offset {before}")
        found.append(entry)
        before = entry.last_offset
    return found


class TransactionIndex:
    """One file, all of it in memory: aborts are few. Methods raise OSError."""

    __slots__ = ("_disk", "_entries", "_is_unsynced", "base_offset", "path")

    def __init__(self, disk: Disk, directory: str, base_offset: int) -> None:
        self._disk = disk
        self._entries = bytearray()
        self._is_unsynced = False
        self.base_offset = base_offset
        self.path = os.path.join(directory, file_prefix(base_offset) + TRANSACTION_INDEX_SUFFIX)

    def load(self) -> None:
        """Raises IndexCorrupt."""
        data = self._disk.read_file(self.path)
        try:
            parse_aborted(data)
        except IndexCorrupt as error:
            raise IndexCorrupt(f"{self.path}: {error}") from error
        self._entries = bytearray(data)

    def entries(self) -> list[AbortedTransaction]:
        return parse_aborted(self._entries)

    def append(self, transaction: AbortedTransaction) -> None:
        self._write(len(self._entries), format_aborted([transaction]))

    def replace_from(self, offset: int, transactions: Iterable[AbortedTransaction]) -> None:
        """From `offset` on, the markers are those of `transactions`; the file is written only if that is news."""
        start = self._position_of(offset)
        data = format_aborted(transactions)
        if self._entries[start:] != data:
            self._write(start, data)

    def collect(self, fetch_offset: int, upper_bound: int, found: list[AbortedTransaction]) -> bool:
        """Add to `found` those that a reader of `fetch_offset` to before `upper_bound` must know (S52).

        Returns whether that is all, so that later segments need not be asked.
        """
        for position in range(self._position_of(fetch_offset), len(self._entries), ENTRY.size):
            entry = AbortedTransaction._make(ENTRY.unpack_from(self._entries, position)[1:])
            if entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return True
        return False

    def file_to_sync(self) -> File | None:
        """The file if it has something unsynced, for the caller to sync and close."""
        if not self._is_unsynced:
            return None
        self._is_unsynced = False
        return self._disk.open_briefly(self.path)

    def _position_of(self, offset: int) -> int:
        """Where the first entry begins whose marker is not below `offset`."""
        entries, low, high = self._entries, 0, len(self._entries) // ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if _LAST_OFFSET.unpack_from(entries, middle * ENTRY.size + _LAST_OFFSET_AT)[0] < offset:
                low = middle + 1
            else:
                high = middle
        return low * ENTRY.size

    def _write(self, start: int, data: bytes) -> None:
        file = self._disk.open_briefly(self.path, create=True)
        try:
            if file.size != start:
                file.truncate(start)
            if data:
                file.append(data)
        finally:
            file.close()
        self._entries[start:] = data
        self._is_unsynced = True


class TransactionIndexes:
    """Those of one log, by segment; segments without one have none. Methods raise OSError."""

    __slots__ = ("_bases", "_directory", "_disk", "_indexes")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._indexes: dict[int, TransactionIndex] = {}
        self._bases: list[int] = []

    def load(self, names: Iterable[str]) -> int | None:
        """Read those among the files `names` of the directory; the base offset of the first damaged one, which has been
        removed. None: all are good."""
        damaged = None
        for name in names:
            prefix = name.removesuffix(TRANSACTION_INDEX_SUFFIX)
            base = log_file_base(prefix + LOG_SUFFIX)
            if base is None or prefix == name:
                continue
            index = TransactionIndex(self._disk, self._directory, base)
            try:
                index.load()
            except IndexCorrupt:
                self._disk.remove(index.path)
                damaged = base if damaged is None else damaged
            else:
                self._add(index)
        return damaged

    def __bool__(self) -> bool:
        """Whether any transaction was aborted."""
        return bool(self._bases)

    def append(self, base_offset: int, transaction: AbortedTransaction) -> None:
        """The marker of `transaction` is in the segment at `base_offset`."""
        self._index(base_offset).append(transaction)

    def replace_from(self, offset: int, by_segment: dict[int, list[AbortedTransaction]]) -> None:
        """The markers from `offset` on are these, by the base offset of their segments, and no others."""
        first = max(bisect_right(self._bases, offset) - 1, 0)
        for base in {*self._bases[first:], *by_segment}:
            self._index(base).replace_from(offset, by_segment.get(base, ()))

    def all(self) -> list[AbortedTransaction]:
        """In the order of markers."""
        return [entry for base in self._bases for entry in self._indexes[base].entries()]

    def forget(self, base_offsets: Iterable[int]) -> None:
        """These segments have been compacted: nothing aborted is left in them, and their files are gone."""
        for base in base_offsets:
            if self._indexes.pop(base, None) is not None:
                self._bases.remove(base)

    def collect(self, fetch_offset: int, upper_bound: int) -> list[AbortedTransaction]:
        """Those that a reader of `fetch_offset` to before `upper_bound` must know, in the order of markers (S52)."""
        found: list[AbortedTransaction] = []
        for base in self._bases[max(bisect_right(self._bases, fetch_offset) - 1, 0) :]:
            if self._indexes[base].collect(fetch_offset, upper_bound, found):
                break
        return found

    def files_to_sync(self, end: int) -> list[File]:
        """Opened for the caller to sync and close."""
        files = (self._indexes[base].file_to_sync() for base in self._bases[: bisect_left(self._bases, end)])
        return [file for file in files if file is not None]

    def forget_below(self, base_offset: int) -> None:
        """The segments below are gone, with their files."""
        for base in self._bases[: bisect_left(self._bases, base_offset)]:
            del self._indexes[base]
        del self._bases[: bisect_left(self._bases, base_offset)]

    def truncate_to(self, offset: int, last_base: int) -> None:
        """The log ends at `offset` now, in the segment at `last_base`; later segments are gone, with their files."""
        for base in self._bases[bisect_right(self._bases, last_base) :]:
            del self._indexes[base]
        del self._bases[bisect_right(self._bases, last_base) :]
        self.replace_from(offset, {})

    def clear(self) -> None:
        """All segments are gone, with their files."""
        self._indexes.clear()
        self._bases.clear()

    def _index(self, base_offset: int) -> TransactionIndex:
        index = self._indexes.get(base_offset)
        if index is None:
            index = TransactionIndex(self._disk, self._directory, base_offset)
            self._add(index)
        return index

    def _add(self, index: TransactionIndex) -> None:
        self._indexes[index.base_offset] = index
        insort(self._bases, index.base_offset)
