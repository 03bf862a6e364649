"""A secret that all brokers of a cluster share. With this secret, all brokers respond to the login of an unknown user
in the same way, so that a login does not reveal which users exist.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Final

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.stores.store import MetadataStore, NodeExists, NoNode, StoreUnavailable
from oncelog_broker.runtime.entropy import Entropy, system_entropy

KEY_BYTES: Final = 32

_log = logging.getLogger(__name__)


async def login_key(store: MetadataStore, entropy: Entropy = system_entropy) -> bytes:
    """Return a key of KEY_BYTES bytes, derived from the secret in the store. If the store has no secret, create one. If
    the store is unavailable, this broker starts with a key of its own.
    """
    try:
        key = await _shared_key(store, entropy)
    except StoreUnavailable as error:
        _log.warning("no key that all brokers share, until the next start: %s", error)
        key = entropy(KEY_BYTES)
    return hashlib.blake2b(key, digest_size=KEY_BYTES).digest()


async def _shared_key(store: MetadataStore, entropy: Entropy) -> bytes:
    try:
        key, _ = await store.get(paths.LOGIN_KEY)
    except NoNode:
        try:
            await store.create(paths.LOGIN_KEY, entropy(KEY_BYTES), make_parents=True)
        except NodeExists:
            pass  # another broker was faster in creating the secret, so read that secret
        key, _ = await store.get(paths.LOGIN_KEY)
    return key
