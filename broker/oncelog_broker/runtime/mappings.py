"""Mappings of files: how many there may be, counted as long as anybody holds a slice of one.

Each takes one of the kernel's map entries (`vm.max_map_count`, 65,530 by default, for the whole process) and one file
descriptor. A reader that does not read holds those that its answer is made of, so what readers can hold is bounded
here; where no further mapping can be had, bytes are copied or come with the next answer.
"""

from __future__ import annotations

import errno
import mmap
import weakref
from typing import Final

from oncelog_broker.runtime.descriptors import MAX_MAPPINGS, is_descriptor_limit


class Mappings:
    """Makes the mappings of a process, up to `limit` at a time."""

    def __init__(self, limit: int = MAX_MAPPINGS) -> None:
        self.limit = limit
        self.count = 0

    def map(self, descriptor: int, size: int) -> mmap.mmap | None:
        """The first `size` bytes of a file, to be read; None if there can be no further mapping. Raises OSError."""
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
"""Of this process, whose entries they are."""
