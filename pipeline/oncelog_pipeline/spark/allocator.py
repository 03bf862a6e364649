"""Lets the C library keep freed memory for the next fetch responses of a reading task, and for the next Arrow batches
of a writing task.

A fetch response of 2 MiB is received into one buffer, and freed when its records are copied to an Arrow batch. By
default glibc returns such a buffer to the system, so the kernel must clear 500 pages for the next one: a fifth of the
CPU that a task takes to read rows of 1 KB. A writing task frees Spark's Arrow batches, 10 MB each with rows of
1 KB, and arrays of similar size. Clearing pages for the next ones takes about a tenth of the CPU of encoding.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache
from typing import Final

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
"""Parameters of glibc's mallopt(3)."""
KEPT_BYTES: Final = 64 << 20
"""Freed memory at the end of a heap is returned to the system when it exceeds this size: it is more than the six
responses of 2 MiB that a reading task holds, together with what is made of them, and more than the Arrow batches of
10 MB that a writing task holds.
"""
MAPPED_BYTES: Final = 32 << 20
"""Larger blocks are mapped separately, and returned to the system when they are freed; glibc's maximum."""


@cache
def keep_freed_memory() -> None:
    """Let this process keep freed memory, up to KEPT_BYTES; do nothing with a C library other than glibc."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
