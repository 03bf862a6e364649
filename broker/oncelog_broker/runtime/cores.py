"""The processor cores of this machine."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """How many cores this process may use: fewer than the machine has if it is bound to some (taskset, a container)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
