"""Spares a Python worker of Spark most of what a garbage collection costs.

Spark collects all garbage of a worker after each task (`pyspark/daemon.py`), and each collection looks at every object
of every module that was imported: some 40 ms on a slow core, for a task that itself takes 10. Objects that are frozen
are not looked at.
"""

from __future__ import annotations

import gc
import sys

_frozen_modules = 0


def freeze_modules() -> None:
    """Freeze what is in memory, once, and again after more modules were imported. What is garbage now goes first."""
    global _frozen_modules
    if len(sys.modules) > _frozen_modules:
        gc.collect()
        gc.freeze()
        _frozen_modules = len(sys.modules)
