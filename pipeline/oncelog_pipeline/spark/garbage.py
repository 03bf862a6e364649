"""Keeps the garbage collection that Spark's Python workers do after each task short.

Spark's daemon has each worker call `gc.collect()` after each task, also after each plan and commit of a batch. That
walks all objects of all imported modules: 40 to 60 ms of CPU on a slow core, in four processes for each micro-batch,
while the next step of the batch needs the core. Frozen objects are skipped.
"""

from __future__ import annotations

import gc
import sys

_frozen_modules = 0


def freeze_modules() -> None:
    """Exclude the existing objects from all later collections; do nothing if no module was imported since the last
    call.

    Reference counts still free these objects. Only cycles that are garbage at the moment of a call stay for ever. They
    are few: Spark collects after each task, and calls that freeze end with the imports.
    """
    global _frozen_modules
    if len(sys.modules) != _frozen_modules:
        _frozen_modules = len(sys.modules)
        gc.freeze()
