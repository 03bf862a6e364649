"""The common part of the two indexes of a segment: sorted entries of fixed size, in memory or in a file.

The index of the active segment is a bytearray. Its new entries are written to the file when the log is flushed, rolled
or closed, so that an append is one write. The index of a closed segment is read at its first use. Kafka preallocates
its index files: after a crash, or in a directory that Kafka had open, they end in zeros, which are not entries.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar

from oncelog_broker.runtime.disk import Disk, File


class IndexCorrupt(ValueError):
    """The index is missing or contradicts itself or its log: it must be rebuilt from the log."""


class SegmentIndex:
    """Entries sorted by their first field. Invariant: the file's first `_persisted` bytes equal those in memory."""

    ENTRY: ClassVar[Struct]

    __slots__ = ("_disk", "_loaded", "_persisted", "_unsynced", "base_offset", "entries", "path")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self._disk = disk
        self.entries: bytearray | None = None
        """All entries, while the segment is active; None before and after. Others only look at their size."""
        self._loaded: bytes | memoryview | None = None
        """The entries of a closed segment, once read from its file."""
        self._persisted = -1
        """How many bytes of the file are valid; -1: the file may not exist yet."""
        self._unsynced = False

    def __len__(self) -> int:
        """The number of entries. Raises IndexCorrupt if the file cannot be read."""
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
        """Reset it to the empty index of an active segment, whatever the file contains."""
        self.entries, self._loaded = bytearray(), None
        self._persisted = -1

    def activate(self) -> None:
        """Take the entries into memory, to be appended to. Raises IndexCorrupt."""
        if self.entries is None:
            data = self._data()
            self.entries, self._loaded = bytearray(data), None
            # Zeros in the file are to go with the next persist.
            self._persisted = len(data) if self._disk.size(self.path) == len(data) else -1

    def persist(self) -> None:
        """Append the missing entries to the file. Raises OSError."""
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
        """Whether the file has entries, without keeping them in memory. Raises IndexCorrupt."""
        return len(self._load()) > 0

    def file_to_sync(self) -> File | None:
        """Persist; returns the file if it has unsynced entries, for the caller to sync and close. Raises OSError."""
        self.persist()
        if not self._unsynced:
            return None
        self._unsynced = False
        return self._disk.open_briefly(self.path)

    def seal(self) -> None:
        """The segment is closed: write the remaining entries and free the memory. Raises OSError."""
        self.persist()
        self.entries = None

    def _cut(self, count: int) -> None:
        """Keep the first `count` entries of an active index."""
        entries = self.entries
        assert entries is not None
        del entries[count * self.ENTRY.size :]
        if len(entries) < self._persisted:
            # The file must not keep entries that memory dropped: the next persist rewrites it.
            self._persisted = -1

    def _data(self) -> bytes | bytearray | memoryview:
        if self.entries is not None:
            return self.entries
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def _load(self) -> memoryview:
        """The file without the zeros at its end."""
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
        # Zeros are a suffix, and no entry of zeros precedes another one: so the boundary can be found by bisection.
        zero, low, high = bytes(size), 0, len(data) // size
        while low < high:
            middle = (low + high) // 2
            if data[middle * size : (middle + 1) * size] == zero:
                high = middle
            else:
                low = middle + 1
        return data[: low * size]
