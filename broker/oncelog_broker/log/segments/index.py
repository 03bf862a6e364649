"""The common base of the two indexes of a segment: sorted entries of fixed size, in memory or in a file.

The index of an active segment is a bytearray. New entries of an active index are written to the file only when the log
is flushed, rolled or closed, so that an append writes to only one file. The index of a closed segment is read when it
is first
used. Kafka preallocates its index files: after a crash, or while Kafka has a directory open, these files end with
zeros, which are not entries.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar

from oncelog_broker.runtime.disk import Disk


class IndexCorrupt(ValueError):
    """The index file is missing, its entries are not in order, or it does not fit the log file. The index must be
    rebuilt from the log file.
    """


class SegmentIndex:
    """The index of one segment, with entries sorted by their first field. Invariant: the first `_persisted` bytes of
    the file equal those in memory.
    """

    ENTRY: ClassVar[Struct]

    __slots__ = ("_disk", "_loaded", "_persisted", "_unsynced", "base_offset", "entries", "path")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self._disk = disk
        self.entries: bytearray | None = None
        """All entries while the segment is active; None before the segment becomes active and after it is closed. Code
        outside this class may only use the size of `entries`.
        """
        self._loaded: bytes | memoryview | None = None
        """The entries of a closed segment; None until the entries are read from the file."""
        self._persisted = -1
        """The number of valid bytes in the file; -1 if the file may not exist yet."""
        self._unsynced = False

    def __len__(self) -> int:
        """Return the number of entries. Raises IndexCorrupt if the file cannot be read."""
        entries = self.entries
        return len(self._data() if entries is None else entries) // self.ENTRY.size

    def exists(self) -> bool:
        return self._disk.exists(self.path)

    @property
    def is_active(self) -> bool:
        return self.entries is not None

    def check(self, log_size: int) -> None:
        """Raises IndexCorrupt if the entries are not in order or point outside a log of `log_size` bytes."""
        raise NotImplementedError

    def reset(self) -> None:
        """Start an empty index for an active segment, and ignore the old content of the file."""
        self.entries, self._loaded = bytearray(), None
        self._persisted = -1

    def activate(self) -> None:
        """Load the entries into memory, so that entries can be appended. Raises IndexCorrupt."""
        if self.entries is None:
            data = self._data()
            self.entries, self._loaded = bytearray(data), None
            # If the file ends with zeros, the next `persist` removes them.
            self._persisted = len(data) if self._disk.size(self.path) == len(data) else -1

    def forget(self) -> None:
        """Discard the entries in memory without writing them; they are read from the file again."""
        self.entries = self._loaded = None

    def persist(self) -> None:
        """Append to the file the entries that it does not contain yet. Raises OSError."""
        entries = self.entries
        if entries is None or self._persisted == len(entries):
            return
        file = self._disk.open_briefly(self.path, create=True)
        try:
            known = max(self._persisted, 0)
            if file.size != known:
                file.truncate(known)
            if known < len(entries):
                file.append(bytes(entries[known:]))
        finally:
            file.close()
        self._persisted = len(entries)
        self._unsynced = True

    def has_entries_in_file(self) -> bool:
        """Whether the index file has entries; this check does not load the entries into memory. Raises IndexCorrupt."""
        return len(self._load()) > 0

    def path_to_sync(self) -> str | None:
        """Write all entries to the file, then return its path if it has unsynced entries, for the caller to sync the
        file; otherwise None. Raises OSError.
        """
        self.persist()
        if not self._unsynced:
            return None
        self._unsynced = False
        return self.path

    def seal(self) -> None:
        """Write the remaining entries when the segment is closed, and free the memory. Raises OSError."""
        self.persist()
        self.entries = None

    def _cut(self, count: int) -> None:
        """Keep only the first `count` entries of an active index."""
        entries = self.entries
        assert entries is not None
        del entries[count * self.ENTRY.size :]
        if len(entries) < self._persisted:
            # The file still has the entries that were removed from memory, so the next `persist` must rewrite the file.
            self._persisted = -1

    def _data(self) -> bytes | bytearray | memoryview:
        if self.entries is not None:
            return self.entries
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def _load(self) -> memoryview:
        """Read the file without the zeros at its end."""
        try:
            file = self._disk.open_briefly(self.path)
        except FileNotFoundError:
            raise IndexCorrupt(f"{self.path} is missing") from None
        try:
            data = file.read(0, file.size)
        finally:
            file.close()
        size = self.ENTRY.size
        if len(data) % size:
            raise IndexCorrupt(f"{self.path}: {len(data)} bytes are not a multiple of {size}")
        # All zero entries are at the end, so bisection can find where they begin.
        zero, low, high = bytes(size), 0, len(data) // size
        while low < high:
            middle = (low + high) // 2
            if data[middle * size : (middle + 1) * size] == zero:
                high = middle
            else:
                low = middle + 1
        return data[: low * size]
