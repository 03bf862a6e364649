"""Open files as a cache: what has not been used for a while rests without a descriptor, and opens again at need.

So the number of logs is not bounded by the limit of open files, and no descriptor that is free now is kept from one who
needs it. A file that rests costs its next reader or writer one `open`.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from typing import Final, Protocol


class RestingFile(Protocol):
    """A file that can give its descriptor up for a while."""

    is_used: bool
    """Set by each use; cleared here, when it is asked whether the file may rest."""

    def rest(self) -> bool:
        """Close the descriptor until the next use; False if that cannot be now. Never waits."""


class OpenFiles:
    """The files that have a descriptor, about in the order of their last use. Thread-safe.

    A file that was used since it was last looked at gets a second chance, so that a use costs a flag and no lock.
    """

    def __init__(self, capacity: int = sys.maxsize) -> None:
        self._guard = threading.Lock()
        self._files: OrderedDict[RestingFile, None] = OrderedDict()
        self.capacity = capacity
        """Above this many, those that were not used for longest rest. Files in use may be more for a while."""

    def __len__(self) -> int:
        return len(self._files)

    def add(self, file: RestingFile) -> None:
        """`file` has got a descriptor."""
        with self._guard:
            while len(self._files) >= self.capacity and self._rest_one():
                pass
            self._files[file] = None

    def remove(self, file: RestingFile) -> None:
        """`file` has given its descriptor up for good."""
        with self._guard:
            self._files.pop(file, None)

    def make_room(self) -> bool:
        """There is no descriptor left in the process: get one. False if no file can rest."""
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
"""Of this process, whose limit of descriptors it is."""
