"""File descriptors: a budget that connections, mappings and files share, and that no log may be lost over.

A process has so many and no more (`ulimit -n`). Who may have how many follows from that limit and `max.connections`,
not from how many logs there are: files are a cache (`open_files`), so a few descriptors serve any number of logs. Files
that are open for a moment only, as an index that is written, can be opened even when there are none: some are spare.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from contextlib import suppress
from typing import Final, NamedTuple

SPARE_COUNT: Final = 32
"""More than files are opened for a moment at the same time: a flush opens three for each segment."""
OTHER_DESCRIPTORS: Final = 64
"""For listeners, locks, the metadata store, the event loop."""
MIN_FILES: Final = 16
"""However low the limit is."""
MAX_MAPPINGS: Final = 16_384
"""A quarter of the entries that the kernel gives a process for mappings (`vm.max_map_count`, 65,530 by default)."""


def is_descriptor_limit(error: BaseException | None) -> bool:
    """Whether all descriptors are in use: nothing is wrong with the disk."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def descriptor_limit() -> int:
    """How many this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Division(NamedTuple):
    """Who may have how many descriptors."""

    connections: int
    mappings: int
    files: int
    """Kept open at the same time: further ones rest (`open_files`)."""


def divide(limit: int, max_connections: int) -> Division:
    """The division of `limit` descriptors. Connections are counted, and have at most half; files have what is left."""
    available = max(0, limit - SPARE_COUNT - OTHER_DESCRIPTORS)
    connections = min(max_connections, available // 2)
    mappings = min(MAX_MAPPINGS, available // 8)
    return Division(connections, mappings, max(MIN_FILES, available - connections - mappings))


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
