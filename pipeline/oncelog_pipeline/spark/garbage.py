"""Shortens the garbage collection that Spark's Python workers do after each task.

Spark's daemon lets each worker call `gc.collect()` after each task, also after each plan and commit of a batch. The
call walks all objects of all imported modules, which takes 40 to 60 ms of CPU on a slow core. Four processes do this
for each micro-batch, while the next step of the batch needs the core. The garbage collector skips frozen objects, so
this module freezes them.
"""

from __future__ import annotations

import gc
import sys

_frozen_modules = 0


def freeze_modules() -> None:
    """Exclude the existing objects from all later collections; do nothing if no module was imported since the last
    call.

    Objects whose reference count drops to 0 are still freed. Only cycles that are garbage at the moment of a call stay
    in memory permanently. Such cycles are few: Spark collects after each task, and objects are frozen only while
    modules are still being imported.
    """
    global _frozen_modules
    if len(sys.modules) != _frozen_modules:
        _frozen_modules = len(sys.modules)
        gc.freeze()
