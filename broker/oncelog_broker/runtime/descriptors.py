"""File descriptors: a budget that connections and logs share, and that no log may be lost over.

A process has so many and no more (`ulimit -n`). What happens when they are used up is decided here: connections are
refused while there are still some left for logs, and files that are open for a moment only, as an index that is
written, can be opened when there are none. So what can fail is to open a segment for good: that is tried again.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from contextlib import suppress
from typing import Final

SPARE_COUNT: Final = 32
"""More than files are opened for a moment at the same time: a flush opens three for each segment."""


def is_descriptor_limit(error: BaseException | None) -> bool:
    """Whether all descriptors are in use: nothing is wrong with the disk."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def descriptor_limit() -> int:
    """How many this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def first_descriptor_not_for_connections() -> int:
    """Descriptors from this one on are for files: half of those that are not in use now.

    A new descriptor is the lowest number that is free. So a connection that has got this number says that all below are
    in use, and as long as it is refused, all above are left to files. Raises OSError if none is left.
    """
    lowest_free = os.dup(0)
    os.close(lowest_free)
    return (lowest_free + descriptor_limit()) // 2


class SpareDescriptors:
    """Descriptors kept in reserve. One is lent by closing it, so that the next that is opened gets it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._spares: list[int] = []

    def lend(self) -> bool:
        """Make one free for a moment; False if there is none. `refill` must follow when it is free again."""
        with self._guard:
            if not self._spares:
                return False
            os.close(self._spares.pop())
            return True

    def refill(self) -> None:
        """Take what is missing, as far as there are free ones."""
        with self._guard, suppress(OSError):
            while len(self._spares) < SPARE_COUNT:
                self._spares.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


SPARES: Final = SpareDescriptors()
"""Of this process, whose limit it is."""
