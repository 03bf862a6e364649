"""The source of random bytes, replaceable so that a simulation can draw them from its seed."""

from __future__ import annotations

import os
from collections.abc import Callable

from oncelog_protocol.uuids import UUID_BYTES, is_issuable

Entropy = Callable[[int], bytes]
"""`entropy(n)` gives n random bytes."""


def system_entropy(count: int) -> bytes:
    """`count` random bytes of the system. `os.urandom` is looked up at each call, so that a simulation can replace
    it."""
    return os.urandom(count)


def random_uuid(entropy: Entropy = system_entropy) -> bytes:
    """A new random (version 4) uuid that Kafka would issue too: see `oncelog_protocol.uuids.is_issuable`."""
    while True:
        drawn = bytearray(entropy(UUID_BYTES))
        drawn[6] = (drawn[6] & 0x0F) | 0x40
        drawn[8] = (drawn[8] & 0x3F) | 0x80
        uuid = bytes(drawn)
        if is_issuable(uuid):
            return uuid


def random_below(bound: int, entropy: Entropy = system_entropy) -> int:
    """A random int in [0, bound). The bias of the modulo (below 2**-32 * bound) does not matter for spreading load."""
    return int.from_bytes(entropy(8), "big") % bound
