"""Memory mappings of files: limits their number, counting each until its last slice is released, and the pages that
were read through them.

Each mapping takes one of the process's map entries (`vm.max_map_count`, 65,530 by default) and a file descriptor. A
client that does not read its response keeps the response's mappings alive, hence the limit; above it, bytes are copied
or come with the next response.

Pages that were read count as memory of the process (RSS), although the kernel may take them back at any time: without a
limit the broker would show as much memory as was read of its logs. So only KEPT_CHUNKS of them stay mapped, for readers
that read the same; all others are given back when the next ones have been read. They stay in the page cache.
"""

from __future__ import annotations

import errno
import mmap
import weakref
from contextlib import suppress
from typing import Final

from oncelog_broker.runtime.descriptors import MAX_MAPPINGS, is_descriptor_limit

Chunk = tuple[int, int]
"""(identity of a mapping, number of the chunk in its file)."""


CHUNK_BITS: Final = 20
"""Pages are counted, and given back, by chunks of 1 MB of a file."""
KEPT_CHUNKS: Final = 10
"""Chunks that stay mapped. To map a chunk again costs about a third of sending it."""
PASSING_CHUNKS: Final = 2
"""Chunks beside these that are given back together."""
RENEWAL_CHUNKS: Final = 256
"""After so many chunks were read, others may stay: what is read often comes back at once."""


class Mappings:
    """Creates mappings, up to `limit` at a time, and gives pages back. Files are read in several threads."""

    def __init__(self, limit: int = MAX_MAPPINGS) -> None:
        self.limit = limit
        self.count = 0
        self._kept: dict[Chunk, weakref.ref[mmap.mmap]] = {}
        self._passing: dict[Chunk, weakref.ref[mmap.mmap]] = {}
        """The chunks that are to be given back."""
        self._chunks_read = 0
        """Since `_kept` was emptied."""

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

    def note_read(self, mapping: mmap.mmap, position: int, size: int) -> None:
        """Note that `size` bytes, at least one, from `position` on are about to be read."""
        for number in range(position >> CHUNK_BITS, (position + size - 1 >> CHUNK_BITS) + 1):
            chunk = id(mapping), number
            self._chunks_read += 1
            if chunk in self._kept:
                continue
            if self._chunks_read >= RENEWAL_CHUNKS:
                self._passing |= self._kept
                self._kept, self._chunks_read = {}, 0
            if len(self._kept) < KEPT_CHUNKS:
                self._kept[chunk] = weakref.ref(mapping)
                continue
            if len(self._passing) >= PASSING_CHUNKS:
                self._give_back()
            self._passing[chunk] = weakref.ref(mapping)

    def _give_back(self) -> None:
        """Give the pages of the passing chunks back. A page of which a slice is held comes back when it is read."""
        passing, self._passing = self._passing, {}
        for (_, number), mapping_ref in passing.items():
            mapping, begin = mapping_ref(), number << CHUNK_BITS
            if mapping is not None:
                with suppress(ValueError):  # it was closed meanwhile
                    mapping.madvise(mmap.MADV_DONTNEED, begin, min(1 << CHUNK_BITS, len(mapping) - begin))

    def _unmapped(self) -> None:
        self.count -= 1


MAPPINGS: Final = Mappings()
"""The mappings of this process."""
