"""Which cluster this is, before anybody has founded it.

The id is written to the data directories before `/cluster/id`, so that a start can be interrupted anywhere. Brokers
that start side by side in a new store must agree on it before that: else all but the founder would have written an id
of their own into their directories, and would be refused for ever after.
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
    """The id that the store has; in a new store the id that the first broker brings: `known`, from its data directory,
    or a new one. Without `is_shared` no other broker can join. StoreUnavailable."""
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
