"""The source of random bytes, which a simulation can replace by bytes drawn from its seed."""

from __future__ import annotations

import os
from collections.abc import Callable

from oncelog_protocol.uuids import UUID_BYTES, is_issuable

Entropy = Callable[[int], bytes]
"""A function: `entropy(n)` returns n random bytes."""


def system_entropy(count: int) -> bytes:
    """Return `count` random bytes from the operating system. `os.urandom` is looked up at each call, so that a
    simulation can replace it.
    """
    return os.urandom(count)


def random_uuid(entropy: Entropy = system_entropy) -> bytes:
    """Return a new random (version 4) uuid that is not one of the uuids that Kafka reserves."""
    while True:
        drawn = bytearray(entropy(UUID_BYTES))
        drawn[6] = (drawn[6] & 0x0F) | 0x40
        drawn[8] = (drawn[8] & 0x3F) | 0x80
        uuid = bytes(drawn)
        if is_issuable(uuid):
            return uuid


def random_below(bound: int, entropy: Entropy = system_entropy) -> int:
    """Return a random int in [0, bound). The modulo makes small numbers slightly more likely (by less than 2**-32 *
    bound), which does not matter for spreading load.
    """
    return int.from_bytes(entropy(8), "big") % bound
