"""Reads a metadata store's id and a broker's last registration, which a startup compares with the data directories
(`identity`).
"""

from __future__ import annotations

import logging

from oncelog_broker.identity.facts import StoreFacts
from oncelog_broker.identity.note import NEVER, StoreKind
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership.founding import check_founder
from oncelog_broker.metadata.model.payloads import (
    MalformedPayload,
    StoreIdentity,
    parse_cluster_id,
    parse_founding,
    parse_incarnation,
    parse_partition_state,
    parse_store_identity,
    parse_topic,
)
from oncelog_broker.metadata.stores.store import MetadataStore, NoNode

logger = logging.getLogger(__name__)


async def read_store_facts(store: MetadataStore, broker_id: int, kind: StoreKind, place: str) -> StoreFacts:
    """Return the store's id and the broker's last registration; this function does not write to the store. Raises
    MalformedPayload, and StoreUnavailable, which is also raised while another broker founds the cluster.
    """
    incarnation_path = paths.incarnation(broker_id)
    asked = [paths.CLUSTER_ID, paths.STORE_ID, paths.FOUNDING, incarnation_path]
    cluster_id, store_id, founding, incarnation = await store.get_many(asked)
    founded_by = ""
    if cluster_id is None and founding is not None:
        check_founder(founding[0], broker_id)
        founded_by = parse_founding(founding[0], paths.FOUNDING).process
    identity = StoreIdentity("") if store_id is None else readable_store_identity(store_id[0])
    return StoreFacts(
        kind,
        place,
        None if cluster_id is None else parse_cluster_id(cluster_id[0], paths.CLUSTER_ID),
        identity.id,
        NEVER if incarnation is None else incarnation[1].version,
        "" if incarnation is None else _process_of(incarnation[0], incarnation_path),
        store.last_zxid,
        founded_by,
        identity.replaces,
    )


def readable_store_identity(data: bytes) -> StoreIdentity:
    """Parse the identity of the store; if the node cannot be parsed, the returned id is "", and the startup compares
    only the registrations.
    """
    try:
        return parse_store_identity(data, paths.STORE_ID)
    except MalformedPayload as error:
        logger.warning("continuing without the id of the metadata store: %s", error)
        return StoreIdentity("")


def _process_of(data: bytes, path: str) -> str:
    """Return the nonce in an incarnation; "" if the node cannot be read, or was written by a release that writes no
    nonce.
    """
    try:
        return parse_incarnation(data, path).process
    except MalformedPayload as error:
        logger.warning("the last registered process of this broker is unknown: %s", error)
        return ""


async def alone_in_sync(store: MetadataStore, broker_id: int) -> tuple[str, ...]:
    """Return the partitions whose only in-sync replica is this broker; the other replicas of these partitions may lack
    acknowledged records. Nodes that cannot be read are skipped. Raises StoreUnavailable.
    """
    try:
        topics = await store.children(paths.TOPICS)
    except NoNode:
        return ()
    asked: list[tuple[str, str]] = []
    nodes = await store.get_many([paths.topic(topic) for topic in topics])
    for topic, node in zip(topics, nodes, strict=True):
        try:
            assignment = None if node is None else parse_topic(node[0], paths.topic(topic))
        except MalformedPayload:
            assignment = None
        for partition, replicas in () if assignment is None else assignment.partitions.items():
            if broker_id in replicas.replicas:
                asked.append((f"{topic}-{partition}", paths.partition_state(topic, partition)))
    states = await store.get_many([path for _, path in asked])
    found = []
    for (name, path), node in zip(asked, states, strict=True):
        try:
            if node is not None and parse_partition_state(node[0], path).isr == (broker_id,):
                found.append(name)
        except MalformedPayload:
            continue
    return tuple(found)
