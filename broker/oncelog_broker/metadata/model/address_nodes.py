"""Finds nodes below `/config/ips` whose name is another spelling of an address: all spellings of an address mean the
same quota entity, and another program may have written a node with another spelling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.stores.store import MetadataStore, NoNode
from oncelog_broker.runtime.slices import Pause, no_pause
from oncelog_protocol.quotas import QuotaEntity

NAMES_AT_A_TIME: Final = 500
"""The number of names that are checked between two pauses."""

OtherNodes: TypeAlias = Mapping[QuotaEntity, Sequence[str]]
"""Entity -> sorted paths of the entity's nodes with other spellings."""


async def other_nodes(store: MetadataStore, pause: Pause = no_pause) -> OtherNodes:
    """Return the nodes of addresses whose names differ from the usual spelling (the spelling in `paths.quotas`), even
    if no node has the usual spelling. The result is normally empty.
    """
    try:
        names = await store.children(paths.IP_CONFIGS)
    except NoNode:
        return {}
    found: dict[QuotaEntity, list[str]] = {}
    for number, name in enumerate(sorted(names), 1):
        path = f"{paths.IP_CONFIGS}/{name}"
        entity = paths.parse_quota_path(path)
        if entity is not None and paths.quotas(entity) != path:
            found.setdefault(entity, []).append(path)
        if number % NAMES_AT_A_TIME == 0:
            await pause()
    return found
