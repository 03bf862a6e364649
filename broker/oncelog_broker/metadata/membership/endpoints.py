"""Checks that no two live brokers advertise the same address, because clients would ask one of these brokers for
partitions that the other broker leads.

A broker checks its addresses before it registers, and again after the registration. If two brokers register
simultaneously, the second check of the later broker finds the earlier registration: after a session has written a node,
it reads all nodes that were written before. The later broker then deletes its registration.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.metadata.model.payloads import Endpoint
from oncelog_broker.metadata.model.reader import read_brokers
from oncelog_broker.metadata.stores.store import MetadataStore, NoNode
from oncelog_protocol.light_classes import NamedTuple


class EndpointInUse(Exception):
    """Another live broker is registered with an address of this broker."""

    def __init__(self, conflict: Conflict) -> None:
        address = f"{conflict.host}:{conflict.port}"
        super().__init__(
            f"the advertised address {address} is used by the live broker {conflict.broker_id}: give each "
            "broker an address of its own (advertised.listeners, or listeners where that is not set). If this broker "
            f"has taken the place of broker {conflict.broker_id}, stop that one first"
        )
        self.conflict = conflict


class Conflict(NamedTuple):
    """Another live broker, and the address that it shares with this broker."""

    broker_id: int
    host: str
    port: int

    @property
    def path(self) -> str:
        return paths.broker_id(self.broker_id)


async def endpoint_conflict(
    store: MetadataStore, broker_id: int, endpoints: Iterable[Endpoint], before: int | None = None
) -> Conflict | None:
    """Find another live broker with an address of `endpoints`; None if there is none. `before` is the broker epoch of
    this broker's registration; if `before` is given, only brokers that registered earlier count. Raises
    StoreUnavailable.
    """
    ours = {_address(endpoint) for endpoint in endpoints}
    others = [other for other in await _registered(store) if other != broker_id]
    for other, broker in (await read_brokers(store, ClusterImage(""), others)).items():
        if broker is None or (before is not None and broker.epoch > before):
            continue
        for endpoint in broker.endpoints:
            if _address(endpoint) in ours:
                return Conflict(other, endpoint.host, endpoint.port)
    return None


def _address(endpoint: Endpoint) -> tuple[str, int]:
    return endpoint.host.lower(), endpoint.port


async def _registered(store: MetadataStore) -> list[int]:
    try:
        return sorted(int(name) for name in await store.children(paths.BROKER_IDS) if name.isdecimal())
    except NoNode:
        return []  # no node exists, because no broker has founded the cluster yet
