"""A secret that all brokers of a cluster share and nobody else knows, for what a login must not tell."""

from __future__ import annotations

import hashlib
from typing import Final

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.store import MetadataStore, NodeExists, NoNode
from oncelog_broker.runtime.entropy import Entropy, system_entropy

KEY_BYTES: Final = 32


async def login_key(store: MetadataStore, entropy: Entropy = system_entropy) -> bytes:
    """KEY_BYTES, made of what the store has; in one that has nothing, of ours. MetadataError."""
    try:
        key, _ = await store.get(paths.LOGIN_KEY)
    except NoNode:
        try:
            await store.create(paths.LOGIN_KEY, entropy(KEY_BYTES), make_parents=True)
        except NodeExists:
            pass  # another broker was sooner
        key, _ = await store.get(paths.LOGIN_KEY)
    return hashlib.blake2b(key, digest_size=KEY_BYTES).digest()
