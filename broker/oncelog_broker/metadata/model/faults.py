"""Logs each unreadable value in the metadata store only once, although nodes are read repeatedly, for example after
each loss of the connection.
"""

from __future__ import annotations

import logging
from typing import Final
from weakref import WeakKeyDictionary

from oncelog_broker.metadata.stores.store import MetadataStore

MAX_TOLD: Final = 10_000
"""The maximum number of remembered faults of one store; when the number is reached, all faults are forgotten, and may
be logged again.
"""

_told: WeakKeyDictionary[MetadataStore, set[tuple[str, str]]] = WeakKeyDictionary()


def tell_fault(log: logging.Logger, store: MetadataStore, path: str, fault: str, instead: str) -> None:
    """Log that the node at `path` has this `fault`, and which value is used `instead`, unless the same fault was
    already logged for this store.
    """
    told = _told.setdefault(store, set())
    entry = path, f"{log.name} {fault}"
    if entry in told:
        return
    if len(told) >= MAX_TOLD:
        told.clear()
    told.add(entry)
    log.error("a value in the metadata store cannot be read: %s", fault, extra={"path": path, "instead": instead})
