"""The processor cores of this machine."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """How many processor cores this process may use: fewer than the machine has if the process is bound to some cores
    (taskset, a container).
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
