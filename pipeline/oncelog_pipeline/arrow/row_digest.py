"""Computes the digest of rows in Arrow columns; `oncelog_pipeline.sink.digest.digest_of` computes an equal digest from
Python objects.

The CRC over several fields equals the CRC over their concatenation. Small fields are therefore joined first, so that
each row needs only one call of the CRC function. Large fields are read in place, because copying them would cost more
than a separate call.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from oncelog_pipeline.arrow.buffers import content_of, sizes_of, starts_of
from oncelog_pipeline.sink.digest import MIX_MULTIPLIERS, MIX_SHIFT, MODULUS, NULL, Digest, started

PIECE: Final = 1024
"""The number of rows that are converted to Python objects in each step. The next step reuses the memory of these
objects.
"""
LARGE: Final = 512
"""If the fields are larger than this on average (in bytes), copying them costs more than a separate CRC call for each.
"""


def digest_of_columns(topic: str, keys: pa.Array | None, values: pa.Array, headers: pa.Array | None) -> Digest:
    """Return the digest of rows of one topic.

    The columns are binary or large binary, all of one type. `headers` are encoded as in the record, and empty for a row
    without headers; None means that no row has headers.
    """
    total = 0
    for first in range(0, len(values), PIECE):
        rows = slice(first, first + PIECE)
        start: Iterable[int] = repeat(started(topic))
        fields = [_without_nulls(values[rows])]
        if keys is not None:
            fields.insert(0, _without_nulls(keys[rows]))
            start = (started(topic) ^ sizes_of(fields[0])).tolist()
        if headers is not None:
            fields.append(headers[rows])
        if len(fields) > 1 and not any(map(_is_large, fields)):
            fields = [pc.binary_join_element_wise(*fields, pa.scalar(b"", values.type))]
        crcs = start
        for field in fields:
            crcs = map(crc32c, _contents(field), crcs)
        total += _mixed_sum(np.fromiter(crcs, np.uint64, len(fields[0])))
    return Digest(len(values), total % MODULUS)


def _contents(column: pa.Array) -> Iterable[bytes | memoryview]:
    """Yield the bytes of each value of the column. No value may be null."""
    if not _is_large(column):
        found: list[bytes] = column.to_numpy(zero_copy_only=False).tolist()
        return found
    starts = starts_of(column)
    content = memoryview(content_of(column))
    return [content[start:end] for start, end in pairwise((starts - starts[0]).tolist())]


def _is_large(column: pa.Array) -> bool:
    starts = starts_of(column)
    return bool(starts[-1] - starts[0] >= LARGE * len(column))


def _mixed_sum(crcs: Any) -> int:
    """Return the sum of `digest.mixed(crc)` over all CRCs, modulo 2**64."""
    for multiplier in MIX_MULTIPLIERS:
        crcs = (crcs ^ (crcs >> np.uint64(MIX_SHIFT))) * np.uint64(multiplier)
    return int((crcs ^ (crcs >> np.uint64(MIX_SHIFT))).sum(dtype=np.uint64))


def _without_nulls(column: pa.Array) -> pa.Array:
    return column.fill_null(NULL) if column.null_count else column
