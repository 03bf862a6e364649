"""Simulates a process that has used all of its file descriptors."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from oncelog_broker.runtime.descriptors import SPARES


@contextmanager
def no_descriptors_left(but: int = 0) -> Iterator[None]:
    """Use up all file descriptors except for `but` of them and the spare descriptors that the disk reserves."""
    SPARES.refill()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    try:
        # Descriptors above the lowest free number may be in use, so the limit is set above the highest one, and all
        # free descriptors are taken.
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
