"""Chooses a partition for each key of an Arrow column, as Java's producer and `oncelog.producer.partitioner` do.

All keys are hashed together: each vectorised step processes the next four bytes of every key that has at least four
bytes left. Keys longer than LONGEST bytes are hashed one by one, because one long key would need a vectorised step for
each of its four-byte words.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from oncelog.producer.partitioner import MULTIPLIER, SEED, SHIFT, SIGN_MASK, murmur2
from oncelog_pipeline.arrow.buffers import content_of, starts_of

LONGEST: Final = 128
"""Keys up to this length, in bytes, are hashed in vectorised steps; longer keys are hashed one by one."""
WORD: Final = 4
TAIL_MASKS: Final = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
"""The mask for the last word of a key, indexed by how many bytes of that word belong to the key."""


def partitions_of_keys(keys: pa.Array, count: int) -> Any:
    """Return an int64 array with the partition of each key; `count` is the number of partitions. Keys are binary or
    large_binary; the result for a null key is undefined.
    """
    return ((hashes(keys) & np.uint32(SIGN_MASK)) % np.uint32(count)).astype(np.int64)


def hashes(keys: pa.Array) -> Any:
    """Return the murmur2 hash of each key, a uint32 array. The result for a null key is undefined."""
    starts = starts_of(keys)
    sizes = np.diff(starts)
    starts = starts[:-1] - starts[0]
    long_rows = np.flatnonzero(sizes > LONGEST)
    short_sizes = sizes if not len(long_rows) else np.where(sizes > LONGEST, 0, sizes)
    found = _hashed(content_of(keys), starts, short_sizes)
    for row in long_rows.tolist():
        key = keys[row].as_py()
        found[row] = 0 if key is None else murmur2(key)
    return found


def _hashed(content: bytes | memoryview, starts: Any, sizes: Any) -> Any:
    # A four-byte word may begin at any byte offset, and the last word of a key may extend beyond the column's content.
    padded: Any = np.zeros(len(content) + WORD, np.uint8)
    padded[: len(content)] = np.frombuffer(content, np.uint8)
    words = np.ndarray((len(content) + 1,), "<u4", padded, strides=(1,))
    multiplier = np.uint32(MULTIPLIER)
    counts = sizes // WORD
    found = np.uint32(SEED) ^ sizes.astype(np.uint32)
    least, most = int(counts.min(initial=0) if not len(counts) else counts.min()), int(counts.max(initial=0))
    for step in range(most):
        rows = slice(None) if step < least else np.flatnonzero(counts > step)
        word = words[starts[rows] + step * WORD] * multiplier
        word ^= word >> np.uint32(SHIFT)
        word *= multiplier
        found[rows] = found[rows] * multiplier ^ word
    left = sizes % WORD
    tail = words[starts + counts * WORD] & TAIL_MASKS[left]
    found = np.where(left > 0, (found ^ tail) * multiplier, found)
    found ^= found >> np.uint32(13)
    found *= multiplier
    return found ^ (found >> np.uint32(15))
