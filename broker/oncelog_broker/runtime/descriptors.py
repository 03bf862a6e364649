"""Divides the process's file descriptors between connections, mappings and files, so that no log fails because no
descriptor is left.

The division depends on `ulimit -n` and `max.connections`, but not on the number of logs: open files are a cache
(`open_files`), so that few descriptors suffice for any number of logs. A reserve allows files to be opened briefly, for
example to write an index, when no descriptor is left.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from contextlib import suppress
from typing import Final

from oncelog_protocol.light_classes import NamedTuple

SPARE_COUNT: Final = 32
"""The number of reserved descriptors. The number is larger than the number of files that are opened briefly at the same
time; a flush opens three files for each segment.
"""
OTHER_DESCRIPTORS: Final = 64
"""Number of file descriptors for listeners, locks, the metadata store and the event loop."""
MIN_FILES: Final = 16
"""The minimum number of descriptors for files, even if the limit is very low."""
MAX_MAPPINGS: Final = 16_384
"""The maximum number of memory mappings of files: a quarter of the number that the kernel allows for a process
(`vm.max_map_count`, 65,530 by default).
"""


def is_descriptor_limit(error: BaseException | None) -> bool:
    """Whether the error means that all file descriptors are in use, which is not a fault of the disk."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def descriptor_limit() -> int:
    """Return the maximum number of open file descriptors of this process."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Division(NamedTuple):
    """The number of file descriptors for each use: connections, mappings and files."""

    connections: int
    mappings: int
    files: int
    """The number of files that may be open simultaneously; other files are closed until their next use (`open_files`).
    """


def divide(limit: int, max_connections: int) -> Division:
    """Divide `limit` descriptors. Connections get at most half of the descriptors, mappings an eighth, and files the
    rest.
    """
    available = max(0, limit - SPARE_COUNT - OTHER_DESCRIPTORS)
    connections = min(max_connections, available // 2)
    mappings = min(MAX_MAPPINGS, available // 8)
    return Division(connections, mappings, max(MIN_FILES, available - connections - mappings))


class SpareDescriptors:
    """Descriptors kept in reserve. Closing a reserved descriptor lets the next open succeed."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._spares: list[int] = []

    def lend(self) -> bool:
        """Close one reserved descriptor, so that one more file can be opened; returns False if no reserved descriptor
        is left. The caller must call `refill` after it has closed that file.
        """
        with self._guard:
            if not self._spares:
                return False
            os.close(self._spares.pop())
            return True

    def refill(self) -> None:
        """Open descriptors until the reserve is complete, or the limit is reached."""
        with self._guard, suppress(OSError):
            while len(self._spares) < SPARE_COUNT:
                self._spares.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


SPARES: Final = SpareDescriptors()
"""The descriptors that this process keeps in reserve."""
