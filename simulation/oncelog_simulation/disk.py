"""The disk of a simulated broker: implements `runtime.disk.Disk` on the storage of its machine, with the faults of this
disk.

Each call takes virtual time. An operation may fail (`DiskTroubles`), or be the last operation of the process: a fault
selects a write at which the world kills the process, and only an arbitrary part of that write is done. A dead process
cannot change any file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final

from oncelog_broker.runtime.disk import TEMPORARY_SUFFIX, Buffer, FileClosed, FileStamp, FileSystemSync
from oncelog_broker.runtime.file_lock import LockHeld
from oncelog_simulation.loop import SimulatedLoop
from oncelog_simulation.process import Process, ProcessIsDead
from oncelog_simulation.storage import Directory, Inode, Storage

WRITE_SECONDS: Final = 0.00002
READ_SECONDS: Final = 0.00001
SYNC_SECONDS: Final = 0.0008
"""Durations in virtual seconds on a healthy disk: the maximum of a change, the maximum of a read, and the mean of a
sync.
"""
ROOM_BYTES: Final = 100 << 30
"""Free bytes on a disk that is not full."""


@dataclass
class _Judges:
    """Records whether a judge is reading now."""

    read: bool = False


_JUDGES: Final = _Judges()


@contextmanager
def unnoticed() -> Iterator[None]:
    """Let judges read the content of a disk: no fault strikes them, and no virtual time passes."""
    _JUDGES.read = True
    try:
        yield
    finally:
        _JUDGES.read = False


@dataclass
class DiskTroubles:
    """The current faults of a machine's disk."""

    slowness: float = 1.0
    """Factor by which each call takes longer than on a healthy disk."""
    is_full: bool = False
    fails_reads: float = 0.0
    """Fraction of the reads that fail with the error EIO."""
    fails_writes: float = 0.0
    fails_syncs: float = 0.0
    failed: str | None = None
    """The data directory in which every call fails with EIO; None means none."""
    writes_left: int | None = None
    """Number of changes of files until the process is killed in the middle of a change; None means that it is not
    killed.
    """
    doomed_file: str = ""
    """A part of the name of a file: the process is killed in the middle of the next change of such a file. Empty means
    that it is not killed.
    """
    doomed_rename: str = ""
    """A suffix of file names: the process is killed just before it renames a file from or to such a name, after
    `renames_left` other renames of this kind. Empty means that it is not killed.
    """
    renames_left: int = 0
    failing_file: str = ""
    """Each change of a file whose path contains this text fails with the error EIO. Empty means that none fails."""
    struck: dict[str, int] = field(default_factory=dict)
    """The number of calls that have failed, by the name of the fault."""

    @property
    def is_doomed(self) -> bool:
        """Whether a later write will kill the process."""
        return self.writes_left is not None

    def strike(self, what: str) -> None:
        self.struck[what] = self.struck.get(what, 0) + 1

    def end(self) -> None:
        """End all faults of the disk."""
        self.slowness = 1.0
        self.is_full = False
        self.fails_reads = self.fails_writes = self.fails_syncs = 0.0
        self.failed = None
        self.writes_left = None
        self.doomed_file = self.doomed_rename = self.failing_file = ""


class SimulatedDisk:
    """The disk as one process sees it: checks and delays each call, and then performs it on the machine's storage."""

    __slots__ = ("_doom", "_locks", "_loop", "_process", "_random", "open_files", "storage", "troubles")

    def __init__(
        self,
        storage: Storage,
        troubles: DiskTroubles,
        process: Process,
        loop: SimulatedLoop,
        doom: Callable[[], None],
        locks: dict[str, Process],
    ) -> None:
        """`doom` is a function that kills the process. `locks` maps the path of each locked file to the process of this
        machine that holds the lock.
        """
        self.storage = storage
        self.troubles = troubles
        self.open_files = 0
        """The number of files that the process has open."""
        self._process = process
        self._loop = loop
        self._random: Random = process.random
        self._doom = doom
        self._locks = locks

    # --- checks that precede each call

    def before_read(self, path: str) -> None:
        if _JUDGES.read:
            return
        self._process.check_alive()
        troubles = self.troubles
        self._loop.spend(READ_SECONDS * troubles.slowness * self._random.random())
        self._check_directory(path)
        if troubles.fails_reads and self._random.random() < troubles.fails_reads:
            troubles.strike("EIO on read")
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def _check_directory(self, path: str) -> None:
        failed = self.troubles.failed
        if failed is not None and path.startswith(failed):
            self.troubles.strike("directory fails")
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def before_change(self, path: str) -> bool:
        """Return whether the process dies in the middle of the next change."""
        self._process.check_alive()
        troubles = self.troubles
        self._loop.spend(WRITE_SECONDS * troubles.slowness * self._random.random())
        if troubles.writes_left is not None:
            troubles.writes_left -= 1
            if troubles.writes_left < 0:
                troubles.writes_left = None
                return True
        if troubles.doomed_file and troubles.doomed_file in path:
            troubles.doomed_file = ""
            return True
        self._check_directory(path)
        if troubles.failing_file and troubles.failing_file in path:
            troubles.strike("EIO on write")
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        if troubles.fails_writes and self._random.random() < troubles.fails_writes:
            troubles.strike("EIO on write")
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return False

    def _is_doomed_rename(self, source: str, target: str) -> bool:
        """Return whether the process dies before this rename; counts the renames before it."""
        troubles = self.troubles
        suffix = troubles.doomed_rename
        if not suffix or not (source.endswith(suffix) or target.endswith(suffix)):
            return False
        troubles.renames_left -= 1
        if troubles.renames_left >= 0:
            return False
        troubles.doomed_rename = ""
        return True

    def before_sync(self, path: str) -> None:
        if self.before_change(path):
            self.die()
        troubles = self.troubles
        self._loop.spend(SYNC_SECONDS * troubles.slowness * (0.5 + self._random.random()))
        if troubles.fails_syncs and self._random.random() < troubles.fails_syncs:
            troubles.strike("EIO on fsync")
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def check_room(self, path: str) -> None:
        if self.troubles.is_full:
            self.troubles.strike("disk full")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def part(self, data: bytes) -> bytes:
        """Return the part of `data` that is written when the process is killed during the write."""
        return data[: self._random.randint(0, len(data))]

    def die(self) -> None:
        """Kill the process. Raises ProcessIsDead."""
        self._doom()
        raise ProcessIsDead(self._process.name)

    def check_alive(self) -> None:
        self._process.check_alive()

    def now_ms(self) -> int:
        return self._process.clock.now_ms()

    # --- Disk

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        self.before_read(path)
        if create and self.storage.find(path) is None:
            self.check_room(path)
            if self.before_change(path):
                self.die()
            self.storage.make_file(path)
        return SimulatedFile(self, path, self.storage.file(path))

    open_briefly = open

    def list_directory(self, path: str) -> list[str]:
        self.before_read(path)
        return sorted(self.storage.directory(path).entries)

    def make_directories(self, path: str) -> bool:
        if self.before_change(path):
            self.die()
        return self.storage.make_directories(os.path.abspath(path))

    def exists(self, path: str) -> bool:
        self.check_alive()
        return self.storage.find(path) is not None

    def is_directory(self, path: str) -> bool:
        self.check_alive()
        return isinstance(self.storage.find(path), Directory)

    def size(self, path: str) -> int:
        self.check_alive()
        return len(self.storage.file(path).data)

    def room(self, path: str) -> tuple[int, int]:
        self.check_alive()
        return ROOM_BYTES, 0 if self.troubles.is_full else ROOM_BYTES // 2

    def stamp(self, path: str) -> FileStamp:
        self.check_alive()
        node = self.storage.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return FileStamp(node.number, node.changed, 0 if isinstance(node, Directory) else len(node.data))

    def modified_ms(self, path: str) -> int:
        self.check_alive()
        return self.storage.file(path).modified_ms

    def rename(self, source: str, target: str) -> None:
        if self.before_change(source) or self._is_doomed_rename(source, target):
            self.die()
        self.storage.rename(source, target)

    def remove(self, path: str) -> None:
        if self.before_change(path):
            self.die()
        if self.storage.find(path) is not None:
            self.storage.file(path)
            self.storage.remove(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory with its contents, one file after another, so that a process that is killed meanwhile
        leaves some of the files.
        """
        directory = self.storage.directory(path)
        for name in sorted(directory.entries):
            if isinstance(directory.entries[name], Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        if self.before_change(path):
            self.die()
        self.storage.remove(path)

    def sync_directory(self, path: str) -> None:
        self.before_sync(path)
        self.storage.sync_directory(path)

    def watch_file_system(self, path: str) -> FileSystemSync | None:
        return SimulatedFileSystem(self, path)

    def run_syncs(self, syncs: Sequence[Callable[[], None]]) -> None:
        for sync in syncs:
            sync()

    def read_file(self, path: str) -> bytes:
        self.before_read(path)
        return bytes(self.storage.file(path).data)

    def replace_file(self, path: str, data: bytes, *, is_durable: bool = True, private: bool = False) -> None:
        temporary = path + TEMPORARY_SUFFIX
        try:
            self._write_file(temporary, data, is_durable=is_durable)
        except OSError:
            self.remove(temporary)
            raise
        self.rename(temporary, path)
        if is_durable:
            self.sync_directory(os.path.dirname(path))

    def replace_files(self, contents: Mapping[str, bytes]) -> None:
        try:
            for path, data in contents.items():
                self._write_file(path + TEMPORARY_SUFFIX, data, is_durable=False)
            for path in contents:
                file = self.open(path + TEMPORARY_SUFFIX)
                try:
                    file.sync()
                finally:
                    file.close()
            for path in contents:
                self.rename(path + TEMPORARY_SUFFIX, path)
        except OSError:
            for path in contents:
                self.remove(path + TEMPORARY_SUFFIX)
            raise
        for directory in dict.fromkeys(os.path.dirname(path) for path in contents):
            self.sync_directory(directory)

    def _write_file(self, path: str, data: bytes, *, is_durable: bool) -> None:
        file = self.open(path, create=True)
        try:
            file.truncate(0)
            file.append(data)
            if is_durable:
                file.sync()
        finally:
            file.close()

    def lock(self, path: str) -> SimulatedLock:
        self.before_read(path)
        holder = self._locks.get(path)
        if holder is not None and holder.is_alive:
            raise LockHeld(f"{os.path.dirname(path)} is locked by {holder.name}")
        if self.storage.find(path) is None:
            self.storage.make_file(path)
        self._locks[path] = self._process
        return SimulatedLock(path, self._process, self._locks)

    def boot_id(self) -> str:
        return f"boot-{self.storage.boots}"

    def divide_descriptors(self, max_connections: int) -> int:
        return max_connections


class SimulatedFileSystem:
    """Syncs all files of a machine, for a broker with very many logs."""

    __slots__ = ("_disk", "_path")

    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def sync(self) -> None:
        self._disk.before_sync(self._path)
        self._disk.storage.sync_all()

    def close(self) -> None: ...


class SimulatedLock:
    """A file lock of a process; it is released when the process ends."""

    __slots__ = ("_locks", "_path", "_process")

    def __init__(self, path: str, process: Process, locks: dict[str, Process]) -> None:
        self._path = path
        self._process = process
        self._locks = locks

    def release(self) -> None:
        if self._locks.get(self._path) is self._process:
            del self._locks[self._path]


class SimulatedFile:
    """Implements `runtime.disk.File` on an inode. Bytes that were read from the file never change afterwards."""

    __slots__ = ("_disk", "_inode", "_is_closed", "is_lent", "path", "size")

    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._is_closed = False
        self.is_lent = False
        self.path = path
        self.size = len(inode.data)
        disk.open_files += 1

    def append(self, *buffers: Buffer) -> int:
        disk, inode, position = self._disk, self._inode, self.size
        data = b"".join(buffers)
        is_last = disk.before_change(self.path)
        inode.modified_ms = disk.now_ms()
        if is_last:
            inode.write(position, disk.part(data))
            disk.die()
        if data:
            disk.check_room(self.path)
        inode.truncate(position) if len(inode.data) > position else None
        inode.write(position, data)
        self.size = position + len(data)
        return position

    def read(self, position: int, size: int) -> memoryview:
        size = min(size, self.size - position)
        if size <= 0:
            return memoryview(b"")
        self._disk.before_read(self.path)
        data = bytes(memoryview(self._inode.data)[position : position + size])
        if len(data) != size:
            raise OSError(f"{self.path}: {len(data)} of {size} bytes at {position}: another process cut the file")
        return memoryview(data)

    def view(self, position: int, size: int) -> memoryview | None:
        return self.read(position, size)

    def truncate(self, size: int) -> None:
        is_last = self._disk.before_change(self.path)
        self._inode.truncate(size)
        if is_last:
            self._disk.die()
        self.size = size

    def sync(self) -> None:
        if self._is_closed:
            raise FileClosed(f"{self.path} was closed before it could be synced")
        try:
            self._disk.before_sync(self.path)
        except OSError:
            self._inode.fail_sync()
            raise
        self._inode.sync()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._disk.open_files -= 1

    __del__ = close
