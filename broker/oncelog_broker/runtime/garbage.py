"""Tunes Python's garbage collector so that no collection stops the event loop for long.

Reference counting frees nearly all objects; the garbage collector is needed only for reference cycles. A full
collection visits every object that is not frozen, and blocks the event loop for 0.4 us per object. With 2,000
partitions created at run time, each full collection would take 30 ms. If many objects survive a full collection, they
are therefore frozen (`gc.freeze`: later collections skip them). Full collections also run often, so that each visits
few new objects.

Reference counting still frees frozen objects, but a frozen cycle is never freed. When a long-lived object (connection,
log, group member, transaction) is closed, it must therefore not be part of a reference cycle. Large objects must not be
part of a cycle, either, because a full collection may freeze them while a request with 50,000 elements is handled. For
this reason, stored errors have no traceback (`KafkaError.as_value`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final, Literal

THRESHOLDS: Final = (700, 10, 1)
"""The thresholds of the three generations. The first is Python's default. A full collection runs after every second
collection of the middle generation (by default after every tenth), and therefore visits at most 15,000 new objects. A
full collection is skipped if the number of new objects is below a quarter of the objects that survived the last full
collection.
"""
FREEZE_AT: Final = 10_000
"""Objects are frozen when at least this many survive a full collection. If fewer objects survive, they are not frozen,
because most of them are in use only briefly, and may be part of a cycle.
"""


def pause_collections() -> None:
    """Stop all collections until `keep_collections_short`, while the process starts. With ten thousand logs, the
    collections of a start would visit millions of objects, a third of the start's time, and find nothing: a start
    leaves hardly any reference cycles.
    """
    gc.disable()


def keep_collections_short(*, after_pause: bool = False) -> Callable[[], None]:
    """Collect and freeze all present objects, and freeze later objects as they age; call this function once when the
    process has started. With `after_pause`, the present objects are frozen without a collection, because
    `pause_collections` was called when the start began. The returned function restores the collector's previous
    settings.
    """
    before = gc.get_threshold()
    if not after_pause:
        gc.collect()
    gc.freeze()
    gc.collect()  # reset the collector's counts, because frozen objects are no longer survivors of a collection
    gc.enable()
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
