"""Computes the partition of an internal topic that stores the state of a key (a group id or a transactional id). Pure.

The leader of that partition is the coordinator of the key, and its leader epoch the coordinator's epoch (S40).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

TRANSACTION_STATE: Final = "__transaction_state"
INT_BITS: Final = 0xFFFFFFFF
INT_MIN: Final = -(2**31)
HASH_FACTOR: Final = 31


@lru_cache(maxsize=4096)
def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode`, computed over UTF-16 units in 32 signed bits (S30). Results are cached, because
    producers and members use the same keys in each request.
    """
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (value * HASH_FACTOR + unit) & INT_BITS
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for position in range(0, len(units), 2):
            value = (value * HASH_FACTOR + (units[position] << 8 | units[position + 1])) & INT_BITS
    return value - 2**32 if value >= 2**31 else value


def partition_for(key: str, partitions: int) -> int:
    """Return the partition of `key` among `partitions`. The absolute value of the smallest int counts as 0 (S30)."""
    hashed = java_string_hash(key)
    return 0 if hashed == INT_MIN else abs(hashed) % partitions
