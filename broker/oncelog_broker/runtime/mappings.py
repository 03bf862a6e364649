"""Memory mappings of files: limits their number, counting each until its last slice is released.

Each mapping takes one of the process's map entries (`vm.max_map_count`, 65,530 by default) and a file descriptor. A
client that does not read its response keeps the response's mappings alive, hence the limit; above it, bytes are copied
or come with the next response.
"""

from __future__ import annotations

import errno
import mmap
import weakref
from typing import Final

from oncelog_broker.runtime.descriptors import MAX_MAPPINGS, is_descriptor_limit


class Mappings:
    """Creates mappings, up to `limit` at a time."""

    def __init__(self, limit: int = MAX_MAPPINGS) -> None:
        self.limit = limit
        self.count = 0

    def map(self, descriptor: int, size: int) -> mmap.mmap | None:
        """Map the first `size` bytes of a file for reading; None if the limit is reached. Raises OSError."""
        if self.count >= self.limit:
            return None
        try:
            mapping = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        except OSError as error:
            if is_descriptor_limit(error) or error.errno == errno.ENOMEM:
                return None
            raise
        self.count += 1
        weakref.finalize(mapping, self._unmapped).atexit = False
        return mapping

    def _unmapped(self) -> None:
        self.count -= 1


MAPPINGS: Final = Mappings()
"""The mappings of this process."""
