"""Tunes Python's garbage collector so that no collection stops the event loop for long.

Reference counts free nearly all objects; the collector is needed for cycles. A full collection visits every object
outside the permanent generation, 0.4 us each, while the event loop is blocked: 2,000 partitions created at run time
would cost 30 ms, repeatedly. So objects that survive a full collection are frozen (`gc.freeze`) once there are many,
and full collections come early enough to meet few new ones.

Reference counts still free frozen objects, but a frozen cycle is never freed. So objects that may live long
(connections, logs, members, transactions) must not be part of a cycle once they have ended. The same applies to large
objects (a full collection may run while a request of 50,000 elements is handled): a stored error is stored without its
traceback (`KafkaError.as_value`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final, Literal

THRESHOLDS: Final = (700, 10, 1)
"""Python's own threshold for the youngest generation; a full collection after every second one of the middle generation
(10 by default), so over at most 15,000 new objects. It runs only if a quarter as many objects are new as survived the
last one."""
FREEZE_AT: Final = 10_000
"""Freeze when this many objects survive a full collection. Fewer are visited again: most objects in flight at that
moment end soon, and may be part of a cycle."""


def keep_collections_short() -> Callable[[], None]:
    """Call once when the process has started: collects and freezes all present objects, and later ones as they age. The
    returned function undoes it."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.collect()  # resets the counts, so that frozen objects no longer count as survivors
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
