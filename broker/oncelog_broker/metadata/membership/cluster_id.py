"""Chooses the id of a cluster before any broker has founded the cluster.

The id is written to the data directories before the node `/cluster/id` is written. So a startup that is interrupted at
any point can be repeated. Brokers that start simultaneously with a new store must agree on the id before they write it
to their directories. Without this agreement, each broker except the founder would write its own id into its
directories, and would be refused permanently.
"""

from __future__ import annotations

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.payloads import encode_cluster_id, parse_cluster_id
from oncelog_broker.metadata.stores.store import MetadataStore, NodeExists
from oncelog_broker.runtime.entropy import Entropy, random_uuid, system_entropy
from oncelog_protocol.uuids import uuid_to_string


async def agreed_cluster_id(
    store: MetadataStore, known: str | None, *, is_shared: bool, entropy: Entropy = system_entropy
) -> str:
    """Return the cluster id in the store. If the store is new, return the id that the first broker proposes: `known`
    (the id in its data directory), or a new id. If `is_shared` is False, no other broker can join, and the id is not
    written to the store. Raises StoreUnavailable.
    """
    found, proposed = await store.get_many([paths.CLUSTER_ID, paths.PROPOSED_CLUSTER_ID])
    if found is not None:
        return parse_cluster_id(found[0], paths.CLUSTER_ID)
    if proposed is None:
        ours = known or uuid_to_string(random_uuid(entropy))
        if not is_shared:
            return ours
        try:
            await store.create(paths.PROPOSED_CLUSTER_ID, encode_cluster_id(ours), make_parents=True)
        except NodeExists:
            pass
        else:
            return ours
        proposed = await store.get(paths.PROPOSED_CLUSTER_ID)
    return parse_cluster_id(proposed[0], paths.PROPOSED_CLUSTER_ID)
