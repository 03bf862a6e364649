"""The partitioner chooses the partition of a record.

A record with a key is placed by the murmur2 hash of the key, as in Java's producer, so that all clients choose the same
partition for a key. Records
without a key go to one partition until a batch is full, and then to another partition (KIP-480, KIP-794), because full
batches are cheaper than single records spread over partitions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import unpack_from
from typing import Any, Final

from oncelog.config import Partitioner

MASK: Final = 0xFFFFFFFF
SIGN_MASK: Final = 0x7FFFFFFF
"""Mask for a non-negative hash: Java computes `hash & 0x7fffffff`, which differs from the absolute value for half of
all keys.
"""

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
SHIFT: Final = 24

MAX_COMPARED: Final = 64
"""Maximum number of partitions that one choice compares. In a topic with more partitions, this number of partitions is
drawn at random, so that the cost of a choice is bounded.
"""
HASHES_KEPT: Final = 4096
"""Number of cached hashes: keys repeat, and a cached hash costs a tenth of computing it."""


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash, unsigned."""
    size = len(data)
    result = SEED ^ size
    words = size // 4
    for word in unpack_from(f"<{words}I", data):
        word = word * MULTIPLIER & MASK
        word ^= word >> SHIFT
        result = (result * MULTIPLIER & MASK) ^ (word * MULTIPLIER & MASK)
    tail = data[words * 4 :]
    if tail:
        result = (result ^ int.from_bytes(tail, "little")) * MULTIPLIER & MASK
    result ^= result >> 13
    result = result * MULTIPLIER & MASK
    return result ^ (result >> 15)


@lru_cache(HASHES_KEPT)
def positive_hash(key: bytes) -> int:
    """Return the non-negative hash, which is taken modulo the number of partitions."""
    return murmur2(key) & SIGN_MASK


def partition_for_key(key: bytes | bytearray | memoryview | None, partitions: int) -> int:
    """Return the partition that Java's client chooses for `key` (not None) among `partitions`. Raises TypeError for a
    key that is not bytes.
    """
    if type(key) is not bytes:
        if not isinstance(key, bytes | bytearray | memoryview):
            raise TypeError(f"a key must be bytes or None, not {type(key).__name__}")
        key = bytes(key)
    return positive_hash(key) % partitions


def chosen_partition(partitioner: Partitioner, key: Any, count: int, available: Sequence[int]) -> int:
    """Return the choice of an application's `partitioner` among `count` partitions.

    Raises ValueError for a partition that does not exist, and TypeError for a result that is not an integer.
    """
    if key is not None and not isinstance(key, bytes):
        key = bytes(key)
    partition = partitioner(key, list(range(count)), list(available))
    if isinstance(partition, bool) or not isinstance(partition, int):
        raise TypeError(f"the partitioner returned {partition!r:.50}, which is not an integer")
    if not 0 <= partition < count:
        raise ValueError(f"the partitioner returned {partition}, and there are the partitions 0 to {count - 1}")
    return partition


def _no_load(_: int) -> int | None:
    return 0


class StickyPartition:
    """The partition for records without a key: `current` is used until `batch_size` bytes were sent to it. When
    `batch_size` bytes were sent, another partition is drawn, weighted by the load of each partition (KIP-794).

    The bytes of a batch are counted when the next batch starts, so that no work per record is needed. A batch that is
    sent before it is full (linger) does not cause a switch. If each batch caused a switch, a slow broker would get more
    records than a fast broker, because its batches fill up while they wait.

    `load` returns the number of unacknowledged batches of a partition; None if the leader of the partition hangs or
    cannot be reached. A partition with more unacknowledged batches is drawn less often. A partition whose leader does
    not respond is drawn only if there is no other partition, and the partitioner switches away from it even before
    `batch_size` is reached. With this rule, records that could go to other brokers do not fill buffer.memory while one
    broker hangs (E54).
    """

    __slots__ = ("_available", "_batch_size", "_load", "_produced", "_rng", "current")

    def __init__(
        self,
        batch_size: int,
        available: Sequence[int],
        rng: random.Random,
        load: Callable[[int], int | None] = _no_load,
    ) -> None:
        """`available` contains the partitions with a leader, or all partitions if no partition has a leader; it is
        never empty.
        """
        self._batch_size = batch_size
        self._available = available
        self._rng = rng
        self._load = load
        self._produced = 0
        self.current = rng.choice(available)

    @property
    def available(self) -> Sequence[int]:
        """The partitions with a leader, or all partitions if no partition has a leader."""
        return self._available

    def update(self, available: Sequence[int]) -> None:
        """Update the available partitions."""
        self._available = available
        if self.current not in available:
            self._switch()

    def batch_ended(self, size: int) -> None:
        """Count a full batch of `size` bytes for the current partition."""
        self._produced += size
        if self._produced >= self._batch_size:
            self._switch()

    def check_leader(self) -> None:
        """Switch away from a partition whose leader does not respond; called before a batch starts."""
        if self._load(self.current) is None:
            self._switch()

    def _switch(self) -> None:
        self._produced = 0
        candidates = self._available
        if len(candidates) > MAX_COMPARED:
            candidates = self._rng.sample(candidates, MAX_COMPARED)
        loads = {partition: load for partition in candidates if (load := self._load(partition)) is not None}
        if len(set(loads.values())) > 1:
            most = max(loads.values())
            weights = [most + 1 - load for load in loads.values()]
            (self.current,) = self._rng.choices(list(loads), weights)
            return
        others = [partition for partition in loads or candidates if partition != self.current]
        if others:
            self.current = self._rng.choice(others)
