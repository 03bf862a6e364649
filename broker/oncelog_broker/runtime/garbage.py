"""How Python's garbage collector runs in a broker: never over much at a time.

Reference counts free nearly all that a broker lets go of; the collector is for what refers to itself. A full collection
goes through every object that is in no permanent generation, 0.4 us each, while the event loop stands still: 2,000
partitions made at run time would be 30 ms of it, again and again. So what has survived a full collection is frozen
(`gc.freeze`) once there are many of it, and a full collection comes before many more have gathered.

What is frozen is still freed by its reference counts, but no longer when only a cycle keeps it. So what may live long
(connections, logs, members, transactions) must not refer to itself once it has ended, or it stays for good. The same
goes for what is large (a request of 50,000 elements is met by a full collection on its way): an error that is kept
beside it is kept without its traceback (`KafkaError.as_value`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final, Literal

THRESHOLDS: Final = (700, 10, 1)
"""As Python's own for the young; a full collection after every second one of the middle generation (of 10 by default),
hence over some 15,000 new objects at most. It comes only where a quarter as many are new as survived the last one."""
FREEZE_AT: Final = 10_000
"""Objects that survive a full collection, and are frozen then. Fewer are looked at again: most of what is in flight at
that moment ends soon, and may be part of a cycle."""


def keep_collections_short() -> Callable[[], None]:
    """To be called once the process has started: collects and freezes all that is there, and from now on what becomes
    old. The function that it returns undoes it."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.collect()  # of nothing: what is frozen no longer counts among what survived the last one
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(_collected)

    def undo() -> None:
        gc.callbacks.remove(_collected)
        gc.set_threshold(*before)
        gc.unfreeze()

    return undo


def _collected(phase: Literal["start", "stop"], info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2 and len(gc.get_objects(generation=2)) >= FREEZE_AT:
        gc.freeze()
