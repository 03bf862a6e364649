"""Simulates a process that has used all of its file descriptors."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from oncelog_broker.runtime.descriptors import SPARES


@contextmanager
def no_descriptors_left(but: int = 0) -> Iterator[None]:
    """Use up all file descriptors except `but` of them; the spare descriptors that the disk reserves remain, too."""
    SPARES.refill()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    try:
        # The limit is set above the highest descriptor in use, and then all free descriptors below the limit are
        # opened, because free numbers may lie between used ones.
        highest = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 2 + but, hard))
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass
        for _ in range(but):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)
