"""The aborted transactions of a segment, in the file `<base offset>.txnindex` (S51, S52).

An entry has 34 bytes: version 0 (int16), producer id (int64), first offset (int64), last offset (int64), last stable
offset (int64).

The file has one entry for each ABORT marker in the segment that ended a transaction with data; `last offset` is the
offset of the marker. Entries are ordered by their markers. A segment without entries has no file.

Compaction removes an entry together with its marker. If the entry were removed before the marker, a reader would treat
the remaining aborted records as committed. If the entry were removed after the marker, a reader would skip records that
the producer commits later. Kafka's counterpart is TransactionIndex.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from oncelog_broker.log.producers.ended_transaction import EndedTransaction
from oncelog_broker.log.segments.index import IndexCorrupt
from oncelog_broker.log.segments.lost_segments import log_file_base
from oncelog_broker.log.segments.segment import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, file_prefix
from oncelog_broker.runtime.disk import Disk, is_out_of_space

ENTRY: Final = Struct(">hqqqq")
ENTRY_VERSION: Final = 0
_LAST_OFFSET: Final = Struct(">q")
_LAST_OFFSET_AT: Final = 18


def format_aborted(transactions: Iterable[EndedTransaction]) -> bytes:
    return b"".join(ENTRY.pack(ENTRY_VERSION, *transaction) for transaction in transactions)


def parse_aborted(data: bytes | bytearray | memoryview) -> list[EndedTransaction]:
    """Return all entries of an index file. Raises IndexCorrupt."""
    if len(data) % ENTRY.size:
        raise IndexCorrupt(f"{len(data)} bytes are not a multiple of {ENTRY.size}")
    found, before = [], -1
    for version, *fields in ENTRY.iter_unpack(data):
        entry = EndedTransaction._make(fields)
        if version != ENTRY_VERSION:
            raise IndexCorrupt(f"version {version}, only {ENTRY_VERSION} is supported")
        if not 0 <= entry.first_offset < entry.last_offset or entry.last_offset <= before:
            raise IndexCorrupt(f"{entry} after offset {before}")
        found.append(entry)
        before = entry.last_offset
    return found


class TransactionIndex:
    """The transaction index of one segment. All entries are in memory, because a segment has few aborted transactions.
    Methods raise OSError.

    If the disk is full, a new entry stays in memory, because its marker is already in the log. The next new entry or
    the next flush writes the entry to the file.
    """

    __slots__ = (
        "_disk",
        "_entries",
        "_is_unsynced",
        "_is_unwritten",
        "_written",
        "base_offset",
        "is_damaged",
        "path",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int) -> None:
        self._disk = disk
        self._entries = bytearray()
        self._written = 0
        """How many bytes of `_entries` are in the file."""
        self._is_unwritten = False
        self._is_unsynced = False
        self.is_damaged = False
        """Whether the file is damaged. A damaged file is not changed until `mend` replaces it. If the broker is killed
        before `mend`, the next startup therefore also finds the damage.
        """
        self.base_offset = base_offset
        self.path = os.path.join(directory, file_prefix(base_offset) + TRANSACTION_INDEX_SUFFIX)

    def load(self) -> None:
        """Read the index file. The entries count as unsynced, because the process that wrote them may have been killed
        before a flush. Raises IndexCorrupt.
        """
        data = self._disk.read_file(self.path)
        try:
            parse_aborted(data)
        except IndexCorrupt as error:
            self.is_damaged = True
            raise IndexCorrupt(f"{self.path}: {error}") from error
        self._entries = bytearray(data)
        self._written = len(data)
        self._is_unsynced = True

    def entries(self) -> list[EndedTransaction]:
        return parse_aborted(self._entries)

    def adopt(self, transactions: Iterable[EndedTransaction]) -> None:
        """Set the entries to these transactions, without writing the file, because compaction has already written and
        synced it.
        """
        self._entries = bytearray(format_aborted(transactions))
        self._written = len(self._entries)

    def append(self, transaction: EndedTransaction) -> None:
        self._change(len(self._entries), format_aborted([transaction]))

    def replace_from(self, offset: int, transactions: Iterable[EndedTransaction]) -> None:
        """Replace the entries whose markers are at or after `offset` by entries for `transactions`. The file is written
        only if the entries change.
        """
        start = self._position_of(offset)
        data = format_aborted(transactions)
        if self._entries[start:] != data:
            self._change(start, data)

    def collect(self, fetch_offset: int, upper_bound: int, found: list[EndedTransaction]) -> bool:
        """Add to `found` the aborted transactions that a reader of the offsets from `fetch_offset` to before
        `upper_bound` needs (S52).

        Returns whether the list is complete, so that later segments need not be searched.
        """
        for position in range(self._position_of(fetch_offset), len(self._entries), ENTRY.size):
            entry = EndedTransaction._make(ENTRY.unpack_from(self._entries, position)[1:])
            if entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return True
        return False

    def path_to_sync(self) -> str | None:
        """Return the path of the file if it has unsynced entries, for the caller to sync the file; else None. Call this
        after `write`.
        """
        if not self._is_unsynced:
            return None
        self._is_unsynced = False
        return self.path

    def _position_of(self, offset: int) -> int:
        """Return the position of the first entry whose marker is at or after `offset`."""
        entries, low, high = self._entries, 0, len(self._entries) // ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if _LAST_OFFSET.unpack_from(entries, middle * ENTRY.size + _LAST_OFFSET_AT)[0] < offset:
                low = middle + 1
            else:
                high = middle
        return low * ENTRY.size

    def mend(self) -> None:
        """Replace a damaged file by the entries in memory, which are complete now."""
        self._disk.replace_file(self.path, bytes(self._entries))
        self._written = len(self._entries)
        self.is_damaged = False

    def write(self) -> None:
        """Write the missing entries to the file."""
        if not self._is_unwritten:
            return
        file = self._disk.open_briefly(self.path, create=True)
        try:
            is_cut = file.size != self._written
            if is_cut:
                file.truncate(self._written)
            if self._written < len(self._entries):
                file.append(bytes(self._entries[self._written :]))
            if is_cut:  # truncate the file, because entries of truncated markers must not reappear after a power cut
                file.sync()
        finally:
            file.close()
        self._written, self._is_unwritten = len(self._entries), False

    def _change(self, start: int, data: bytes) -> None:
        self._entries[start:] = data
        if self.is_damaged:
            return
        self._is_unsynced = self._is_unwritten = True
        self._written = min(self._written, start)
        try:
            self.write()
        except OSError as error:
            if not is_out_of_space(error):
                raise


class TransactionIndexes:
    """The transaction indexes of one log, by segment; a segment without aborts has no index. Methods raise OSError."""

    __slots__ = ("_bases", "_directory", "_disk", "_indexes", "has_new_files")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._indexes: dict[int, TransactionIndex] = {}
        self._bases: list[int] = []
        self.has_new_files = False
        """Whether the directory must be synced to make the names of new index files durable."""

    def load(self, names: Iterable[str]) -> int | None:
        """Read the index files among `names`, the files of the directory. Returns the base offset of the first damaged
        index, whose entries were not read; None if all are valid."""
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
                damaged = base if damaged is None else damaged
            self._add(index)
        return damaged

    def mend(self) -> None:
        """Replace all damaged files, after the entries were completed in memory."""
        for index in self._indexes.values():
            if index.is_damaged:
                index.mend()

    def __bool__(self) -> bool:
        """Whether any transaction was aborted."""
        return bool(self._bases)

    def append(self, base_offset: int, transaction: EndedTransaction) -> None:
        """Add a transaction whose ABORT marker is in the segment at `base_offset`."""
        self._index(base_offset).append(transaction)

    def replace_from(self, offset: int, by_segment: dict[int, list[EndedTransaction]]) -> None:
        """Replace the entries of all markers at or after `offset`; `by_segment` has the new entries by base offset of
        their segments.
        """
        first = max(bisect_right(self._bases, offset) - 1, 0)
        for base in {*self._bases[first:], *by_segment}:
            self._index(base).replace_from(offset, by_segment.get(base, ()))

    def all(self) -> list[EndedTransaction]:
        """Return all aborted transactions, ordered by their markers."""
        return [entry for base in self._bases for entry in self._indexes[base].entries()]

    def replace(self, old_bases: Iterable[int], base_offset: int, transactions: Sequence[EndedTransaction]) -> None:
        """Replace the indexes of the segments `old_bases` by the index of the compacted segment at `base_offset`, whose
        index file compaction has already synced.
        """
        for base in old_bases:
            if self._indexes.pop(base, None) is not None:
                self._bases.remove(base)
        if transactions:
            self._index(base_offset).adopt(transactions)

    def collect(self, fetch_offset: int, upper_bound: int) -> list[EndedTransaction]:
        """Return the aborted transactions that a reader of the offsets from `fetch_offset` to before `upper_bound`
        needs, ordered by their markers (S52).
        """
        found: list[EndedTransaction] = []
        for base in self._bases[max(bisect_right(self._bases, fetch_offset) - 1, 0) :]:
            if self._indexes[base].collect(fetch_offset, upper_bound, found):
                break
        return found

    def paths_to_sync(self, end: int) -> list[str]:
        """Return the paths of the files with unsynced entries, for the caller to sync."""
        paths = (self._indexes[base].path_to_sync() for base in self._bases[: bisect_left(self._bases, end)])
        return [path for path in paths if path is not None]

    def write(self, end: int) -> None:
        """Write the missing entries to the files of segments below `end`."""
        for base in self._bases[: bisect_left(self._bases, end)]:
            self._indexes[base].write()

    def forget_below(self, base_offset: int) -> None:
        """Forget the indexes of the segments below `base_offset`, which were deleted with all their files."""
        for base in self._bases[: bisect_left(self._bases, base_offset)]:
            del self._indexes[base]
        del self._bases[: bisect_left(self._bases, base_offset)]

    def truncate_to(self, offset: int, last_base: int) -> None:
        """Adjust the indexes after the log was truncated at `offset`, in the segment at `last_base`; later segments
        were deleted with their files.
        """
        for base in self._bases[bisect_right(self._bases, last_base) :]:
            del self._indexes[base]
        del self._bases[bisect_right(self._bases, last_base) :]
        self.replace_from(offset, {})

    def clear(self) -> None:
        """Forget all indexes, after all segments were deleted with their files."""
        self._indexes.clear()
        self._bases.clear()

    def _index(self, base_offset: int) -> TransactionIndex:
        index = self._indexes.get(base_offset)
        if index is None:
            index = TransactionIndex(self._disk, self._directory, base_offset)
            self._add(index)
            self.has_new_files = True
        return index

    def _add(self, index: TransactionIndex) -> None:
        self._indexes[index.base_offset] = index
        insort(self._bases, index.base_offset)
