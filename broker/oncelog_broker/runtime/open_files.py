"""Open files as a cache: idle files give up their descriptor, and are opened again at their next use.

So the number of logs is not bounded by the limit of open files. The next use of a closed file costs one `open`.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from typing import Final, Protocol


class RestingFile(Protocol):
    """A file that can give up its descriptor while idle."""

    is_used: bool
    """Set by each use; cleared when the cache considers closing the file."""

    def rest(self) -> bool:
        """Close the descriptor until the next use; False if that is not possible now. Does not block."""


class OpenFiles:
    """The files that have a descriptor, roughly in the order of their last use (CLOCK replacement). Thread-safe.

    A file used since its last inspection gets a second chance, so that a use costs a flag and no lock.
    """

    def __init__(self, capacity: int = sys.maxsize) -> None:
        self._guard = threading.Lock()
        self._files: OrderedDict[RestingFile, None] = OrderedDict()
        self.capacity = capacity
        """Above this many open files, the least recently used are closed. Files in use may exceed it for a while."""

    def __len__(self) -> int:
        return len(self._files)

    def add(self, file: RestingFile) -> None:
        """Note that `file` has a descriptor."""
        with self._guard:
            while len(self._files) >= self.capacity and self._rest_one():
                pass
            self._files[file] = None

    def remove(self, file: RestingFile) -> None:
        """Note that `file` was closed for good."""
        with self._guard:
            self._files.pop(file, None)

    def make_room(self) -> bool:
        """Close an idle file to free a descriptor. False if none can be closed."""
        with self._guard:
            return self._rest_one()

    def _rest_one(self) -> bool:
        for _ in range(2 * len(self._files)):
            file, _ = self._files.popitem(last=False)
            if not file.is_used and file.rest():
                return True
            file.is_used = False
            self._files[file] = None
        return False


OPEN_FILES: Final = OpenFiles()
"""The open files of this process."""
