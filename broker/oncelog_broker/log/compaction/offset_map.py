"""Maps each key to the offset of its last record, in bounded memory, for the part of a log that is being compacted.

A key of up to 15 bytes is its own fingerprint; a longer key is represented by a digest of 16 bytes. A map therefore
needs at most ENTRY_BYTES for each key of any length (Kafka keeps MD5 digests of all keys). The entries are spread over
many small dictionaries, because growing a large dictionary would block the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final

DIGEST_SIZE: Final = 16
"""The number of bytes of a digest. Keys that are their own fingerprint are shorter, so no key can be mistaken for a
digest.
"""
ENTRY_BYTES: Final = 216
"""Maximum bytes of one entry: 64 for the fingerprint, 32 for the offset, and the rest for the slot in a dictionary that
has just grown.
"""
SHARDS: Final = 256
SHARD_MASK: Final = SHARDS - 1

NO_OFFSET: Final = -1


def fingerprint(key: bytes) -> bytes:
    return key if len(key) < DIGEST_SIZE else blake2b(key, digest_size=DIGEST_SIZE).digest()


class OffsetMap:
    """Invariant: `get` returns the largest offset that was put for a key. Callers put offsets in increasing order."""

    __slots__ = ("_shards", "capacity")

    def __init__(self, memory_bytes: int) -> None:
        """The capacity of the map is the number of keys that certainly fit into `memory_bytes`, but at least 1."""
        self.capacity = max(1, memory_bytes // ENTRY_BYTES)
        self._shards: list[dict[bytes, int]] = [{} for _ in range(SHARDS)]

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def put_all(self, keys: Sequence[bytes | None], offsets: Sequence[int]) -> int:
        """Put keys with their offsets, in order, until the map is full; returns how many keys were put or skipped. A
        key of None means a record without a key, and is skipped.
        """
        shards = self._shards
        if len(self) + len(keys) > self.capacity:
            return self._put_while_room(keys, offsets)
        for key, offset in zip(keys, offsets, strict=True):
            if key is not None:
                known_as = key if len(key) < DIGEST_SIZE else fingerprint(key)
                shards[hash(known_as) & SHARD_MASK][known_as] = offset
        return len(keys)

    def _put_while_room(self, keys: Sequence[bytes | None], offsets: Sequence[int]) -> int:
        room = self.capacity - len(self)
        for number, (key, offset) in enumerate(zip(keys, offsets, strict=True)):
            if key is None:
                continue
            known_as = fingerprint(key)
            shard = self._shards[hash(known_as) & SHARD_MASK]
            if known_as not in shard:
                if room == 0:
                    return number
                room -= 1
            shard[known_as] = offset
        return len(keys)

    def get(self, key: bytes) -> int:
        """Return the offset of the last record with this `key`; NO_OFFSET if the key is unknown."""
        known_as = key if len(key) < DIGEST_SIZE else fingerprint(key)
        return self._shards[hash(known_as) & SHARD_MASK].get(known_as, NO_OFFSET)

    def offsets(self) -> Iterator[Sequence[int]]:
        """Yield all offsets in the map, unordered, in small lists."""
        for shard in self._shards:
            yield list(shard.values())
