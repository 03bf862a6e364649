"""The file system of a simulated machine. It distinguishes written from synced data, and determines the state after a
power cut.

A power cut leaves unsynced changes in a state in which a journaling file system may leave them:

- Of the appended bytes, all, some or none remain, or the file has its full length with zeros in place of the last
  bytes.
- The bytes behind a truncation are either gone or restored.
- Of the unsynced changes of names (creations, renames, removals), only the first ones remain, in the order in which
  they were made.

`sync_directory` makes the changes of this directory durable, as well as earlier changes on which they depend. Syncing a
file does not make its name durable. After a failed fsync the unsynced bytes count as clean, as on Linux, so later
fsyncs do not write them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from copy import deepcopy
from functools import lru_cache
from itertools import count
from random import Random

_CHANGES = count(1)
"""Numbers of the changes of all files and directories, which stand for the times of the changes."""


class Inode:
    """The bytes of a file, in their written and in their durable state.

    The durable bytes are usually a prefix of the written bytes, and then only their number is stored. `_kept` has them
    when they differ, for example after a truncation that is not synced.
    """

    __slots__ = (
        "_is_rewritten",
        "_kept",
        "_lost",
        "_synced",
        "changed",
        "data",
        "durable_changed",
        "modified_ms",
        "number",
    )

    def __init__(self) -> None:
        self.data = bytearray()
        self.modified_ms = 0
        self.number = self.changed = self.durable_changed = next(_CHANGES)
        """The number of the inode, and the numbers of the last change and of the last durable change."""
        self._synced = 0
        """The number of durable bytes if these are a prefix of the written bytes."""
        self._kept: bytearray | None = None
        """The durable bytes; None if they are the first `_synced` bytes of the written bytes."""
        self._is_rewritten = False
        """Whether a change other than an append was made since the last sync."""
        self._lost: list[tuple[int, int]] = []
        """Ranges of bytes that a failed fsync did not write and no later fsync will write; after a power cut they
        contain zeros.
        """

    @property
    def durable(self) -> bytes:
        """The bytes on the disk."""
        return bytes(self.data[: self._synced] if self._kept is None else self._kept)

    @property
    def durable_size(self) -> int:
        """The number of bytes on the disk."""
        return self._synced if self._kept is None else len(self._kept)

    @property
    def synced_size(self) -> int:
        """The length of the common prefix of the written and the durable bytes."""
        return self._synced if self._kept is None else common_size(self.data, self._kept)

    def _note_rewritten(self) -> None:
        """Keep the durable bytes, because written bytes that are durable are about to change."""
        self._is_rewritten = True
        if self._kept is None:
            self._kept = self.data[: self._synced]

    def write(self, position: int, data: bytes) -> None:
        if position < self.durable_size:
            self._note_rewritten()
        self.data[position : position + len(data)] = data
        self.changed = next(_CHANGES)

    def truncate(self, size: int) -> None:
        self.changed = next(_CHANGES)
        if size < len(self.data):
            if size < self.durable_size:
                self._note_rewritten()
            del self.data[size:]
            self._lost = [(begin, min(end, size)) for begin, end in self._lost if begin < size]
        else:
            self.data.extend(bytes(size - len(self.data)))

    def sync(self) -> None:
        self.durable_changed = self.changed
        self._kept, self._synced, self._is_rewritten = None, len(self.data), False
        if self._lost:
            self._kept = bytearray(self.data)
            for begin, end in self._lost:
                self._kept[begin:end] = bytes(end - begin)

    def fail_sync(self) -> None:
        """Mark unsynced data as never to be synced; the process can still read them."""
        if len(self.data) > self.durable_size:
            self._lost.append((self.durable_size, len(self.data)))

    @property
    def has_lost_writes(self) -> bool:
        """Whether a failed fsync has left bytes that no later fsync writes."""
        return bool(self._lost)

    def rot(self, position: int, bit: int) -> None:
        """Flip a bit on the disk."""
        for held in (self.data, self._kept):
            if held is not None and position < len(held):
                held[position] ^= 1 << bit

    def cut_power(self, random: Random) -> None:
        """Change to a state that a power cut may leave, drawn at random."""
        before = self.durable
        self.data = bytearray(self._after_power_cut(random))
        self.changed = self.durable_changed if self.data == before else next(_CHANGES)
        self.durable_changed = self.changed
        self._kept, self._synced = None, len(self.data)
        self._is_rewritten = False
        self._lost = []

    def _after_power_cut(self, random: Random) -> bytes:
        durable = self.durable
        if self._is_rewritten or self._lost:
            if random.random() < 0.5:
                return durable  # no change since the last sync has reached the disk
            data = bytearray(self.data)
            for begin, end in self._lost:
                data[begin:end] = bytes(end - begin)
            written = bytes(data)
            kept = common_size(durable, written)
        else:
            written, kept = bytes(self.data), len(durable)
        left = random.choice((kept, random.randint(kept, len(written)), len(written)))
        zeros = len(written) - left if random.random() < 0.3 else 0
        return written[:left] + bytes(zeros)


class Directory:
    """Names of files and directories, in their current and in their durable state."""

    __slots__ = ("changed", "durable", "durable_changed", "entries", "number")

    def __init__(self) -> None:
        self.number = self.changed = self.durable_changed = next(_CHANGES)
        """As in `Inode`."""
        self.entries: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}


Node = Inode | Directory
Naming = tuple[Directory, str, Node | None]
"""A change of a directory: a name refers to another node, or to None if it is removed."""
Change = tuple[tuple[Directory, str, Node | None, int], ...]
"""Changes of names that happen atomically, all of them or none, each with the number of the change."""


class Storage:
    """All files of one machine. All paths are absolute. `disk` has the file operations for processes."""

    def __init__(self) -> None:
        self.root = Directory()
        self.boots = 1
        """How often the machine has started."""
        self._journal: list[Change] = []
        """Changes of names that are not durable yet, in the order in which they were made."""

    # --- finding

    def find(self, path: str) -> Node | None:
        """Return the node at this path; None if it does not exist."""
        node: Node | None = self.root
        for name in _names(path):
            if type(node) is not Directory:
                return None
            node = node.entries.get(name)
        return node

    def file(self, path: str) -> Inode:
        """Return the file at this path. Raises OSError if there is none."""
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if type(node) is Directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        assert isinstance(node, Inode)
        return node

    def directory(self, path: str) -> Directory:
        """Return the directory at this path. Raises OSError if there is none."""
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def files(self, path: str = "/") -> Iterator[tuple[str, Inode]]:
        """Yield all files in a directory and below it, sorted by path."""
        node = self.find(path)
        if isinstance(node, Directory):
            for name in sorted(node.entries):
                yield from self.files(f"{path.rstrip('/')}/{name}")
        elif node is not None:
            yield path, node

    # --- names

    def change(self, *namings: Naming) -> None:
        """Change names atomically."""
        for directory, name, node in namings:
            if node is None:
                directory.entries.pop(name, None)
            else:
                directory.entries[name] = node
            directory.changed = next(_CHANGES)
            if node is not None:
                node.changed = directory.changed
        self._journal.append(tuple((*naming, naming[0].changed) for naming in namings))

    def make_file(self, path: str) -> Inode:
        """Create an empty file at `path`. Raises OSError if the directory of `path` does not exist."""
        made = Inode()
        self.change((self.directory(os.path.dirname(path)), os.path.basename(path), made))
        return made

    def make_directories(self, path: str) -> bool:
        """Create a directory and its parents. Returns False if the directory existed. Raises OSError."""
        node = self.find(path)
        if node is not None:
            self.directory(path)
            return False
        above = os.path.dirname(path)
        if above != path:
            self.make_directories(above)
        self.change((self.directory(above), os.path.basename(path), Directory()))
        return True

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory atomically. Raises OSError if `source` does not exist."""
        node = self.find(source)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        there = self.find(target)
        if isinstance(there, Directory) and (there.entries or not isinstance(node, Directory)):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        from_, to = self.directory(os.path.dirname(source)), self.directory(os.path.dirname(target))
        self.change((from_, os.path.basename(source), None), (to, os.path.basename(target), node))

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with all its contents. Raises OSError if it does not exist."""
        if self.find(path) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self.change((self.directory(os.path.dirname(path)), os.path.basename(path), None))

    def sync_directory(self, path: str) -> None:
        """Make the changes of this directory's names durable. Raises OSError."""
        wanted = {id(self.directory(path))}
        durable: list[Change] = []
        left: list[Change] = []
        for change in reversed(self._journal):
            directories = {id(directory) for directory, _, _, _ in change}
            if wanted & directories:
                wanted |= directories
                durable.append(change)
            else:
                left.append(change)
        for change in reversed(durable):
            _make_durable(change)
        self._journal = left[::-1]

    def sync_all(self) -> None:
        """Make all files and names durable."""
        self._journal = []
        _sync_all(self.root)

    # --- faults

    def cut_power(self, random: Random) -> None:
        """Change to a state that a power cut may leave."""
        self.boots += 1
        journal, self._journal = self._journal, []
        kept = random.choice((0, len(journal), random.randint(0, len(journal))))
        for change in journal[:kept]:
            _make_durable(change)
        self._cut_power_in(self.root, random)

    def _cut_power_in(self, directory: Directory, random: Random) -> None:
        directory.entries = dict(directory.durable)
        directory.changed = directory.durable_changed
        for name in sorted(directory.entries):
            node = directory.entries[name]
            if isinstance(node, Directory):
                self._cut_power_in(node, random)
            else:
                node.cut_power(random)

    def copied(self) -> Storage:
        """Return a copy of the current state."""
        return deepcopy(self)

    def restore(self, copy: Storage) -> None:
        """Change to the state of the copy, durably. The same copy can be used several times."""
        again = copy.copied()
        self.root = again.root
        self._journal = []
        _sync_all(self.root)

    def empty(self) -> None:
        """Remove all files, like a replacement of the disk."""
        self.root = Directory()
        self._journal = []


@lru_cache(maxsize=10_000)
def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name)


def common_size(one: bytes | bytearray, other: bytes | bytearray) -> int:
    """Return the length of the common prefix of two values in bytes."""
    size = min(len(one), len(other))
    if memoryview(one)[:size] == memoryview(other)[:size]:
        return size
    return next((place for place in range(size) if one[place] != other[place]), size)


def _make_durable(change: Change) -> None:
    for directory, name, node, number in change:
        directory.durable_changed = max(directory.durable_changed, number)
        if node is None:
            directory.durable.pop(name, None)
        else:
            directory.durable[name] = node
            node.durable_changed = max(node.durable_changed, number)


def _sync_all(directory: Directory) -> None:
    directory.durable = dict(directory.entries)
    directory.durable_changed = directory.changed
    for node in directory.entries.values():
        if isinstance(node, Directory):
            _sync_all(node)
        else:
            node.sync()
