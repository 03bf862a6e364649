"""A disk in memory that a test can kill at any change, or whose power a test can cut. After the kill or power cut, the
simulated disk has content that a real disk could have.

A kill leaves all completed writes, and any part of the write that it interrupted. A power cut leaves everything that
was synced; of the rest it leaves what a journaling file system may leave:

- Appended bytes: none, some or all of them remain, or zeros replace the last of them.
- Truncated bytes are lost or restored.
- Created, renamed and removed names in a directory: the first few of these changes since the directory's last sync
remain.
- Created directories are kept, or lost with all of their content.
- Renamed directories: the first few renames remain, and the other directories have their old names again.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import count, takewhile
from random import Random

from oncelog_broker.runtime.disk import TEMPORARY_SUFFIX, Buffer, FileClosed, FileStamp

Renaming = dict[str, "Inode | None"]
"""One change of a directory: file name -> the inode to which the name refers after the change; None means that the
change removes the name.
"""


CHANGES = count(1)
"""Numbers of the changes of all files and directories, which stand for the times of the changes."""


class Killed(BaseException):
    """The simulated process is killed. Killed derives from BaseException, so that code in the process cannot catch it
    by accident.
    """


class Inode:
    """The content of a file: `data` has all written bytes, and `synced` the bytes at the last sync."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""
        self.number = self.changed = self.synced_changed = next(CHANGES)
        """The number of the inode, and the numbers of the last change and of the last change that was synced."""

    def sync(self) -> None:
        self.synced, self.synced_changed = bytes(self.data), self.changed

    def after_power_cut(self, random: Random) -> bytes:
        """Draw the bytes that remain after a power cut."""
        written, synced = bytes(self.data), self.synced
        if not written.startswith(synced) and random.random() < 0.5:
            return synced  # the power cut loses the truncation and all later writes
        same = (a == b for a, b in zip(written, synced, strict=False))
        durable = len(list(takewhile(bool, same)))
        left = random.choice([durable, random.randint(durable, len(written)), len(written)])
        zeros = len(written) - left if random.random() < 0.3 else 0
        return written[:left] + bytes(zeros)


def _apply(renaming: Renaming, names: dict[str, Inode]) -> None:
    for path, inode in renaming.items():
        if inode is None:
            names.pop(path, None)
        else:
            names[path] = inode


class CrashingFile:
    """An open file of the simulated disk, which reads and writes the bytes of an inode in memory."""

    is_lent = False

    def __init__(self, disk: CrashingDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self._inode: Inode | None = inode
        self.path = path
        self.size = len(inode.data)

    def _open(self) -> Inode:
        if self._inode is None:
            raise FileClosed(self.path)
        return self._inode

    def append(self, *buffers: Buffer) -> int:
        inode, data, position = self._open(), b"".join(buffers), self.size
        if self._disk.is_last_change():
            data = data[: self._disk.random.randint(0, len(data))]
        inode.data[position:] = data
        inode.changed = next(CHANGES)
        self._disk.change()
        self.size = position + len(data)
        return position

    def read(self, position: int, size: int) -> memoryview:
        self._disk.check_alive()
        return memoryview(bytes(self._open().data[position : min(position + size, self.size)]))

    def truncate(self, size: int) -> None:
        self._disk.change()
        inode = self._open()
        inode.data[size:] = bytes(max(0, size - len(inode.data)))
        inode.changed = next(CHANGES)
        self.size = size

    def sync(self) -> None:
        self._disk.change()
        self._open().sync()

    def close(self) -> None:
        self._inode = None


class HeldLock:
    def release(self) -> None:
        pass


class CrashingFileSystem:
    """Syncs everything that the disk has. A kill during the sync leaves a part of the files synced."""

    def __init__(self, disk: CrashingDisk) -> None:
        self._disk = disk

    def sync(self) -> None:
        for path in self._disk.paths(""):
            self._disk.open(path).sync()
        for directory in self._disk.directories():
            self._disk.sync_directory(directory)

    def close(self) -> None: ...


class CrashingDisk:
    """The simulated disk: files and directories in memory, with kills and power cuts."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.changes_left: int | None = None
        """The number of changes until the kill; None means that no kill is planned. A negative number means that the
        process is dead.
        """
        self.syncs_file_system = False
        """Whether the disk can sync the entire file system."""
        self._directories: set[str] = {"/"}
        self._unsynced_directories: set[str] = set()
        self._unsynced_moves: list[tuple[str, str]] = []
        """Renames of directories since the last sync, in order: (old path, new path)."""
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._stamps: dict[str, int] = {}
        self._durable_stamps: dict[str, int] = {}
        """Directory path -> number of the last change of its names, and of the last change that was synced."""
        self._journal: dict[str, list[Renaming]] = defaultdict(list)
        """Directory path -> the changes of names in it since its last sync."""

    # --- kills and power cuts ------------------------------------------------------------------------------------

    def check_alive(self) -> None:
        if self.changes_left is not None and self.changes_left < 0:
            raise Killed

    def is_last_change(self) -> bool:
        return self.changes_left == 0

    def change(self) -> None:
        """Count one change; the change after the last permitted one kills the process."""
        if self.changes_left is not None:
            self.changes_left -= 1
            self.check_alive()

    def kill(self) -> None:
        """Let a new process start after a kill, which loses no written bytes."""
        self.changes_left = None

    def cut_power(self) -> None:
        """Let a new process start after a power cut, which loses some of the unsynced changes."""
        self.changes_left = None
        for directory, changes in self._journal.items():
            kept = self.random.choice([0, len(changes), self.random.randint(0, len(changes))])
            for change in changes[:kept]:
                _apply(change, self._durable_names)
            if kept:
                self._durable_stamps[directory] = next(CHANGES)
        self._journal.clear()
        self._names = self._durable_names
        moves, self._unsynced_moves = self._unsynced_moves, []
        for source, target in reversed(moves[self.random.randint(0, len(moves)) :]):
            self._forget_directory(source)  # another directory, which was given the old name after the rename
            self._rename_directory(target, source)
        for directory in sorted(self._unsynced_directories):
            if self.random.random() < 0.5:
                self._forget_directory(directory)
        self._unsynced_directories.clear()
        self._names = dict(self._durable_names)
        self._stamps = dict(self._durable_stamps)
        for inode in dict.fromkeys(self._names.values()):
            left = inode.after_power_cut(self.random)
            inode.changed = inode.synced_changed if left == inode.synced else next(CHANGES)
            inode.data = bytearray(left)
            inode.sync()

    def _forget_directory(self, directory: str) -> None:
        """Remove the directory and its entire content."""
        for directories in (self._directories, self._unsynced_directories):
            directories -= {path for path in directories if path == directory or path.startswith(directory + "/")}
        for names in (self._names, self._durable_names):
            for path in [path for path in names if path.startswith(directory + "/")]:
                del names[path]
        for path in [path for path in self._journal if path == directory or path.startswith(directory + "/")]:
            del self._journal[path]

    def _rename(self, renaming: Renaming) -> None:
        _apply(renaming, self._names)
        directory = os.path.dirname(next(iter(renaming)))
        self._journal[directory].append(renaming)
        self._stamps[directory] = next(CHANGES)

    # --- Disk ----------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> CrashingFile:
        self.check_alive()
        if path not in self._names:
            if not create:
                raise FileNotFoundError(path)
            self.change()
            self._rename({path: Inode()})
        return CrashingFile(self, path, self._names[path])

    open_briefly = open

    def list_directory(self, path: str) -> list[str]:
        self.check_alive()
        everything = [*self._names, *self._directories]
        return sorted(os.path.basename(name) for name in everything if os.path.dirname(name) == path and name != path)

    def make_directories(self, path: str) -> bool:
        self.check_alive()
        is_new = path not in self._directories
        if is_new:
            self.change()
        while path not in self._directories:
            self._directories.add(path)
            self._unsynced_directories.add(path)
            self._stamps[path] = self._durable_stamps[path] = next(CHANGES)
            path = os.path.dirname(path)
        return is_new

    def exists(self, path: str) -> bool:
        self.check_alive()
        return path in self._names or path in self._directories

    def is_directory(self, path: str) -> bool:
        return path in self._directories

    def size(self, path: str) -> int:
        return len(self._names[path].data)

    def stamp(self, path: str) -> FileStamp:
        self.check_alive()
        if path in self._directories:
            return FileStamp(0, self._stamps[path], 0)
        if path not in self._names:
            raise FileNotFoundError(path)
        inode = self._names[path]
        return FileStamp(inode.number, inode.changed, len(inode.data))

    def modified_ms(self, path: str) -> int:
        return 0

    def rename(self, source: str, target: str) -> None:
        self.change()
        if source in self._directories:
            self._rename_directory(source, target)
            self._unsynced_moves.append((source, target))
        else:
            self._rename({source: None, target: self._names[source]})

    def _rename_directory(self, source: str, target: str) -> None:
        """Rename the directory together with its content."""
        self._stamps[target] = self._durable_stamps[target] = next(CHANGES)
        for directories in (self._directories, self._unsynced_directories):
            if source in directories:
                directories.remove(source)
                directories.add(target)
        for names in {id(names): names for names in (self._names, self._durable_names)}.values():
            for path in [path for path in names if path.startswith(source + "/")]:
                names[target + path.removeprefix(source)] = names.pop(path)
        self._journal[target] = [
            {target + path.removeprefix(source): inode for path, inode in renaming.items()}
            for renaming in self._journal.pop(source, [])
        ]

    def remove(self, path: str) -> None:
        if self.exists(path):
            self.change()
            self._rename({path: None})

    def remove_tree(self, path: str) -> None:
        """Remove the directory's files, one after another, and then the directory. A kill may leave some of the files;
        no power cut restores the others.
        """
        for file in sorted(name for name in self._names if name.startswith(path + "/")):
            self.change()
            del self._names[file]
            self._durable_names.pop(file, None)
        self.change()
        self._forget_directory(path)
        self._unsynced_moves = [move for move in self._unsynced_moves if path not in move]

    def sync_directory(self, path: str) -> None:
        self.change()
        for renaming in self._journal.pop(path, ()):
            _apply(renaming, self._durable_names)
        if path in self._stamps:
            self._durable_stamps[path] = self._stamps[path]
        self._unsynced_directories -= {made for made in self._unsynced_directories if os.path.dirname(made) == path}
        self._unsynced_moves = [move for move in self._unsynced_moves if os.path.dirname(move[1]) != path]

    def watch_file_system(self, path: str) -> CrashingFileSystem | None:
        return CrashingFileSystem(self) if self.syncs_file_system else None

    def run_syncs(self, syncs: Sequence[Callable[[], None]]) -> None:
        for sync in syncs:
            sync()

    def read_file(self, path: str) -> bytes:
        self.check_alive()
        if path not in self._names:
            raise FileNotFoundError(path)
        return bytes(self._names[path].data)

    def replace_file(self, path: str, data: bytes, *, is_durable: bool = True, private: bool = False) -> None:
        file = self.open(path + TEMPORARY_SUFFIX, create=True)
        file.truncate(0)
        file.append(data)
        if is_durable:
            file.sync()
        self.rename(path + TEMPORARY_SUFFIX, path)
        if is_durable:
            self.sync_directory(os.path.dirname(path))

    def replace_files(self, contents: Mapping[str, bytes]) -> None:
        for path, data in contents.items():
            file = self.open(path + TEMPORARY_SUFFIX, create=True)
            file.truncate(0)
            file.append(data)
        for path in contents:
            self.open(path + TEMPORARY_SUFFIX).sync()
        for path in contents:
            self.rename(path + TEMPORARY_SUFFIX, path)
        for path in contents:
            self.sync_directory(os.path.dirname(path))

    def lock(self, path: str) -> HeldLock:
        return HeldLock()

    def boot_id(self) -> str:
        return ""

    def divide_descriptors(self, max_connections: int) -> int:
        return max_connections

    def directories(self) -> list[str]:
        """Return the paths of all directories, sorted, so that a parent comes before the directories in it."""
        return sorted(self._directories)

    # --- methods for tests ---------------------------------------------------------------------------------------

    def paths(self, *suffixes: str) -> list[str]:
        """Return the paths of the files with one of these suffixes, sorted."""
        return sorted(path for path in self._names if path.endswith(suffixes))

    def damage(self, path: str, *, only_torn: bool = False) -> None:
        """Damage the file durably: cut its end off, flip one of its bits, or remove the file. With `only_torn`, the
        only damage is that the file's last byte is removed.
        """
        inode, how = self._names[path], self.random.randrange(3)
        if only_torn:
            del inode.data[-1:]
        elif how == 0 or not inode.data:
            self._rename({path: None})
            self.sync_directory(os.path.dirname(path))
        elif how == 1:
            del inode.data[self.random.randrange(len(inode.data)) :]
        else:
            inode.data[self.random.randrange(len(inode.data))] ^= 1 << self.random.randrange(8)
        inode.changed = next(CHANGES)
        inode.sync()
