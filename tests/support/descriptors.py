"""A process that has no file descriptor left."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from oncelog_broker.runtime.descriptors import SPARES


@contextmanager
def no_descriptors_left(but: int = 0) -> Iterator[None]:
    """Use up all descriptors, except for the given number and those that the disk keeps in reserve."""
    SPARES.refill()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    try:
        # Numbers above the lowest free one may be in use: the limit goes above them all, and what is free is taken.
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
