"""Computes the digest of rows in Arrow columns; `oncelog_pipeline.sink.digest.digest_of` computes an equal digest from
Python objects.

The CRC over several fields equals the CRC over their concatenation. Small fields are therefore joined first, so that
each row needs only one call of the CRC function. Large fields are read in place, because copying them would cost more
than a separate call; short fields of the same rows, such as keys, are then processed for all rows together
(`short_crcs.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from oncelog_pipeline.arrow.buffers import content_of, sizes_of, starts_of
from oncelog_pipeline.arrow.short_crcs import continued_crcs
from oncelog_pipeline.arrow.without_pandas import binary_scalar, bytes_of
from oncelog_pipeline.sink.digest import MIX_MULTIPLIERS, MIX_SHIFT, NULL, Digest, started

PIECE: Final = 1024
"""The number of rows that are converted to Python objects in each step. The next step reuses the memory of these
objects.
"""
SHORT: Final = 32
"""If the fields of a column are not larger than this on average (in bytes), processing them for all rows together costs
less than a CRC call for each.
"""
LARGE: Final = 512
"""If the fields are larger than this on average (in bytes), copying them costs more than a separate CRC call for each.
"""


def digest_of_columns(topic: str, keys: pa.Array | None, values: pa.Array, headers: pa.Array | None) -> Digest:
    """Return the digest of rows of one topic.

    The columns are binary or large binary, all of one type. `headers` are encoded as in the record, and empty for a row
    without headers; None means that no row has headers.
    """
    fields = [_without_nulls(values)]
    crcs: Any = np.full(len(values), started(topic), np.uint32)
    if keys is not None:
        fields.insert(0, _without_nulls(keys))
        crcs ^= sizes_of(fields[0]).astype(np.uint32)
    if headers is not None:
        fields.append(headers)
    if len(fields) > 1 and not any(map(_is_large, fields)):
        fields = [pc.binary_join_element_wise(*fields, binary_scalar(b"", values.type))]
    for field in fields:
        is_short = len(fields) > 1 and _mean_size(field) <= SHORT
        crcs = continued_crcs(field, crcs) if is_short else _continued_by_calls(field, crcs)
    return Digest(len(values), _mixed_sum(crcs.astype(np.uint64)))


def _continued_by_calls(column: pa.Array, crcs: Any) -> Any:
    """Return the CRC of each row, continued with the row's field, a uint32 array. No field may be null."""
    found: Any = np.empty(len(column), np.uint32)
    for first in range(0, len(column), PIECE):
        piece = column[first : first + PIECE]
        end = first + len(piece)
        found[first:end] = list(map(crc32c, _contents(piece), crcs[first:end].tolist()))
    return found


def _contents(column: pa.Array) -> Iterable[Any]:
    """Yield the bytes of each value of the column, as an object with a buffer. No value may be null."""
    if not _is_large(column):
        return bytes_of(column)
    starts = starts_of(column)
    sizes = np.diff(starts)
    content = memoryview(content_of(column))
    if sizes[0] and (sizes == sizes[0]).all():
        # The rows of a numpy matrix cost less than slices of a memoryview.
        return np.frombuffer(content, np.uint8).reshape(len(column), int(sizes[0]))  # type: ignore[no-any-return]
    return [content[start:end] for start, end in pairwise((starts - starts[0]).tolist())]


def _is_large(column: pa.Array) -> bool:
    return _mean_size(column) >= LARGE


def _mean_size(column: pa.Array) -> float:
    """Return the mean size of the column's values in bytes, 0 without values."""
    starts = starts_of(column)
    return float(starts[-1] - starts[0]) / max(1, len(column))


def _mixed_sum(crcs: Any) -> int:
    """Return the sum of `digest.mixed(crc)` over all CRCs, modulo 2**64."""
    for multiplier in MIX_MULTIPLIERS:
        crcs = (crcs ^ (crcs >> np.uint64(MIX_SHIFT))) * np.uint64(multiplier)
    return int((crcs ^ (crcs >> np.uint64(MIX_SHIFT))).sum(dtype=np.uint64))


def _without_nulls(column: pa.Array) -> pa.Array:
    return column.fill_null(binary_scalar(NULL, column.type)) if column.null_count else column
