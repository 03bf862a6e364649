"""Values in the metadata store that cannot be read, each told once: whoever reads a node reads it again, after each
loss of the connection for example, and a bad value stays bad until somebody sets it right."""

from __future__ import annotations

import logging
from typing import Final
from weakref import WeakKeyDictionary

from oncelog_broker.metadata.store import MetadataStore

MAX_TOLD: Final = 10_000
"""Of one store; then all may be told again."""

_told: WeakKeyDictionary[MetadataStore, set[tuple[str, str]]] = WeakKeyDictionary()


def tell_fault(log: logging.Logger, store: MetadataStore, path: str, fault: str, instead: str) -> None:
    """Log, for the first time in this store, that the node at `path` has this `fault`, and what holds `instead`."""
    told = _told.setdefault(store, set())
    entry = path, f"{log.name} {fault}"
    if entry in told:
        return
    if len(told) >= MAX_TOLD:
        told.clear()
    told.add(entry)
    log.error("a value in the metadata store cannot be read: %s", fault, extra={"path": path, "instead": instead})
