"""Open files as a cache: an idle file gives up its descriptor, and is opened again at its next use.

The number of logs is therefore not limited by the limit of open files. The next use of a file without a descriptor
costs one `open` call.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from typing import Final, Protocol


class RestingFile(Protocol):
    """Interface of a file whose descriptor can be closed while the file is idle."""

    is_used: bool
    """Whether the file was used since the cache last considered closing it: each use sets True, and the cache then sets
    False.
    """

    def rest(self) -> bool:
        """Close the descriptor until the next use; returns False if that is not possible now. This method does not
        block.
        """


class OpenFiles:
    """The files that have a descriptor, approximately in the order of their last use (CLOCK replacement). Thread-safe.

    A file that was used since its last inspection gets a second chance, so that a use only sets a flag, without a lock.
    """

    def __init__(self, capacity: int = sys.maxsize) -> None:
        self._guard = threading.Lock()
        self._files: OrderedDict[RestingFile, None] = OrderedDict()
        self.capacity = capacity
        """Maximum number of open files; beyond this number, the least recently used files are closed. Files that are in
        use may temporarily exceed this number.
        """

    def __len__(self) -> int:
        return len(self._files)

    def add(self, file: RestingFile) -> None:
        """Record that `file` has a descriptor."""
        with self._guard:
            while len(self._files) >= self.capacity and self._rest_one():
                pass
            self._files[file] = None

    def remove(self, file: RestingFile) -> None:
        """Record that `file` was closed permanently."""
        with self._guard:
            self._files.pop(file, None)

    def make_room(self) -> bool:
        """Close an idle file to free a descriptor. Returns False if no file can be closed."""
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
