"""Nodes below `/config/ips` whose name is another spelling of an address: all spellings are the same entity, even if
another program has written the node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.stores.store import MetadataStore, NoNode
from oncelog_broker.runtime.slices import Pause, no_pause
from oncelog_protocol.quotas import QuotaEntity

NAMES_AT_A_TIME: Final = 500
"""Looked at before others have their turn."""

OtherNodes: TypeAlias = Mapping[QuotaEntity, Sequence[str]]
"""Entity -> the paths of its other nodes, sorted."""


async def other_nodes(store: MetadataStore, pause: Pause = no_pause) -> OtherNodes:
    """The nodes other than the one that `paths.quotas` names, which may or may not exist. Empty, as a rule."""
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
