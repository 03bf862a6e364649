"""Encodes a column of record headers for all rows at once, as `records.builder.encode_headers` does for one record.

The column has Spark's type array<struct<key: string, value: binary>>. This module first encodes all headers of all
rows, one after another. The headers of one row are adjacent in these bytes, so each row is encoded as its number of
headers, followed by a slice of these bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncelog_pipeline.arrow.buffers import numbers_of, sizes_of, starts_of
from oncelog_pipeline.arrow.varints import joined, varints
from oncelog_pipeline.arrow.without_pandas import binary_scalar, zero
from oncelog_protocol.records.columns import NO_HEADERS

Headers = Sequence[tuple[str, bytes | None]]


def check_headers(column: pa.Array) -> None:
    """Raise ValueError if any row of the column has a header without a name."""
    names, _ = column.flatten().flatten()
    if names.null_count:
        raise ValueError('column "headers": a header without a key (null)')


def encoded_headers(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the encoded headers of each row's record (the number of headers, then the headers) as an array of the
    Arrow type `kind`: pa.binary() or pa.large_binary().
    """
    names, values = (each.cast(kind) for each in column.flatten().flatten())
    counts = header_counts(column)
    each_header = pc.binary_join_element_wise(
        joined([varints(sizes_of(names))], len(names), kind),
        names,
        joined([varints(sizes_of(values))], len(values), kind),
        values,
        binary_scalar(b"", kind),
        null_handling="replace",
    )
    bounds: Any = np.zeros(len(column) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    size: Any = np.int64 if kind == pa.large_binary() else np.int32
    ends = starts_of(each_header)[bounds].astype(size)
    of_rows = pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(ends), each_header.buffers()[2]])
    return pc.binary_join_element_wise(joined([varints(counts)], len(column), kind), of_rows, binary_scalar(b"", kind))


def header_counts(column: pa.Array) -> Any:
    """Return how many headers each row has, 0 for a null: an int64 array."""
    return numbers_of(column.value_lengths().fill_null(zero(pa.int32()))).astype(np.int64)


def headers_of_row(found: list[dict[str, Any]] | None) -> Headers:
    """Convert one row's headers to (name, value) pairs; Arrow's `to_pylist` and `as_py` return them as dicts."""
    return [(header["key"], header["value"]) for header in found] if found else NO_HEADERS
