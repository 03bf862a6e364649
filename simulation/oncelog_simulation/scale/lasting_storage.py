"""The file system of a machine that never loses its power, in little memory.

Every change is durable at once, so that no changes wait for a sync. The copies of the metadata that brokers write are
kept compressed: each of a hundred brokers has one or two, and only a start reads them.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from oncelog_simulation.storage import Inode, Naming, Storage

COPY: Final = "metadata-copy."
"""How the names of the copies begin (`metadata.model.metadata_copy`)."""
LEVEL: Final = 1
"""The level of compression: the fastest."""


class PackedInode(Inode):
    """A file whose bytes are compressed between two calls."""

    __slots__ = ("_free_of_charge", "_packed")

    def __init__(self, free_of_charge: Callable[[], AbstractContextManager[None]]) -> None:
        """`free_of_charge` makes a context in which work takes no virtual time."""
        self._free_of_charge = free_of_charge
        super().__init__()

    @property
    def data(self) -> bytearray:
        """The written bytes. The value is a copy, which callers must not change."""
        with self._free_of_charge():
            return bytearray(zlib.decompress(self._packed))

    @data.setter
    def data(self, data: bytearray) -> None:
        with self._free_of_charge():
            self._packed = zlib.compress(data, LEVEL)

    def write(self, position: int, data: bytes) -> None:
        written = self.data
        written[position : position + len(data)] = data
        self.data = written

    def truncate(self, size: int) -> None:
        self.data = self.data[:size].ljust(size, b"\0")

    def sync(self) -> None:
        """Do nothing, because no power is lost."""


class LastingStorage(Storage):
    """All files of a machine that never loses its power."""

    def __init__(self, free_of_charge: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__()
        self._free_of_charge = free_of_charge

    def change(self, *namings: Naming) -> None:
        super().change(*namings)
        self._journal.clear()

    def make_file(self, path: str) -> Inode:
        name = os.path.basename(path)
        if not name.startswith(COPY):
            return super().make_file(path)
        made = PackedInode(self._free_of_charge)
        self.change((self.directory(os.path.dirname(path)), name, made))
        return made
