"""Counts the processor cores that this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Return the number of processor cores that this process may use. The number is lower than that of the machine if
    the process is restricted to some cores (taskset, a container).
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
