"""What a Python process of Spark does once, before its first piece of work."""

from __future__ import annotations

import gc
import os
from typing import Final

REUSED: Final = "SPARK_REUSE_WORKER"
"""Spark sets it in the Python processes that it uses for one task after another."""

_is_frozen = False


def freeze_imports() -> None:
    """Exempt what the process has imported from garbage collection, once.

    After each task PySpark collects all garbage. To look through PySpark, PyArrow and this package takes 45 ms of CPU,
    ten times what a task needs to open and read a partition of few records. Nothing is done outside of a process that
    Spark uses for several tasks: a user's program is left as it is.
    """
    global _is_frozen
    if not _is_frozen and REUSED in os.environ:
        gc.freeze()
        _is_frozen = True
