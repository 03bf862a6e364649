"""Limits the number of memory mappings of files, and the number of pages that were read through these mappings. A
mapping counts until its last slice is released.

Each mapping uses one of the process's map entries (`vm.max_map_count`, 65,530 by default) and a file descriptor. If a
client does not read its response, the mappings of that response stay in use; the number of mappings is therefore
limited. Above the limit, bytes are copied, or sent with the next response.

Pages that were read count as memory of the process (RSS), although the kernel may reclaim them at any time. Without a
limit on these pages, the broker would seem to use as much memory as the bytes that were read from its logs. At most
KEPT_CHUNKS chunks of pages therefore stay mapped, for other readers of the same pages. All other pages are released
soon after they were read. Released pages remain in the page cache.
"""

from __future__ import annotations

import errno
import mmap
import weakref
from contextlib import suppress
from typing import Final

from oncelog_broker.runtime.descriptors import MAX_MAPPINGS, is_descriptor_limit

Chunk = tuple[int, int]
"""Type of a chunk of pages: (identity of a mapping, index of the chunk in its file)."""


CHUNK_BITS: Final = 20
"""Binary logarithm of the chunk size: pages are counted and released in chunks of 1 MB of a file."""
KEPT_CHUNKS: Final = 24
"""The maximum number of chunks that stay mapped. Mapping a chunk again costs about a third of the cost of sending it:
readers of a log of 16 MB cost 20 % less CPU with 24 chunks than with 10.
"""
PASSING_CHUNKS: Final = 2
"""The number of chunks, in addition to the kept chunks, that may be mapped before they are released together."""
RENEWAL_CHUNKS: Final = 256
"""Each time this many chunks were read, all kept chunks are released, so that other chunks can be kept. A released
chunk that is read often is soon kept again.
"""


class Mappings:
    """Creates mappings, at most `limit` simultaneously, and releases their pages. Several threads read files through
    mappings.
    """

    def __init__(self, limit: int = MAX_MAPPINGS) -> None:
        self.limit = limit
        self.count = 0
        self._kept: dict[Chunk, weakref.ref[mmap.mmap]] = {}
        self._passing: dict[Chunk, weakref.ref[mmap.mmap]] = {}
        """Chunks that are mapped but not kept. As soon as there are PASSING_CHUNKS of them, they are released
        together.
        """
        self._chunks_read = 0
        """The number of chunks read since `_kept` (the chunks that stay mapped) was emptied."""

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
        """Record that `size` bytes, at least one, starting at `position`, are about to be read."""
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
        """Release the pages of the chunks in `_passing`. If a slice of a released page is still in use, the page is
        mapped again when it is read.
        """
        passing, self._passing = self._passing, {}
        for (_, number), mapping_ref in passing.items():
            mapping, begin = mapping_ref(), number << CHUNK_BITS
            if mapping is not None:
                with suppress(ValueError):  # skip the chunk, because its mapping was closed meanwhile
                    mapping.madvise(mmap.MADV_DONTNEED, begin, min(1 << CHUNK_BITS, len(mapping) - begin))

    def _unmapped(self) -> None:
        self.count -= 1


MAPPINGS: Final = Mappings()
"""The memory mappings of files in this process."""
