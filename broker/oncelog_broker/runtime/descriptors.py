"""Divides the process's file descriptors between connections, mappings and files, so that no log fails for lack of one.

The division follows from `ulimit -n` and `max.connections`, not from the number of logs: open files are a cache
(`open_files`), so a few descriptors serve any number of logs. A reserve lets files be opened briefly (an index to
write, say) when no descriptor is left.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from contextlib import suppress
from typing import Final, NamedTuple

SPARE_COUNT: Final = 32
"""The reserve: more than are needed for brief opens at the same time; a flush opens three for each segment."""
OTHER_DESCRIPTORS: Final = 64
"""Descriptors for listeners, locks, the metadata store and the event loop."""
MIN_FILES: Final = 16
"""The minimum for files, however low the limit is."""
MAX_MAPPINGS: Final = 16_384
"""A quarter of the entries that the kernel gives a process for mappings (`vm.max_map_count`, 65,530 by default)."""


def is_descriptor_limit(error: BaseException | None) -> bool:
    """Whether the error says that all file descriptors are in use, which is no fault of the disk."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def descriptor_limit() -> int:
    """The maximum of open file descriptors of this process."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Division(NamedTuple):
    """The number of descriptors for each use."""

    connections: int
    mappings: int
    files: int
    """Files that may be open at the same time; others are closed until their next use (`open_files`)."""


def divide(limit: int, max_connections: int) -> Division:
    """Divide `limit` descriptors. Connections get at most half, mappings an eighth, files the rest."""
    available = max(0, limit - SPARE_COUNT - OTHER_DESCRIPTORS)
    connections = min(max_connections, available // 2)
    mappings = min(MAX_MAPPINGS, available // 8)
    return Division(connections, mappings, max(MIN_FILES, available - connections - mappings))


class SpareDescriptors:
    """Descriptors kept in reserve. Closing one lets the next open succeed."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._spares: list[int] = []

    def lend(self) -> bool:
        """Close one reserved descriptor, so that the next open gets its number; False if none is left. Call `refill`
        when it is free again."""
        with self._guard:
            if not self._spares:
                return False
            os.close(self._spares.pop())
            return True

    def refill(self) -> None:
        """Open descriptors until the reserve is full, or the limit is reached."""
        with self._guard, suppress(OSError):
            while len(self._spares) < SPARE_COUNT:
                self._spares.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


SPARES: Final = SpareDescriptors()
"""The reserve of this process."""
