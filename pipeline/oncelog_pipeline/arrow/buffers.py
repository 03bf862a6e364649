"""The buffers of a binary Arrow column: offsets, content, sizes, validity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def starts_of(column: pa.Array) -> Any:
    """Return the offset at which each value begins in the column's content, and last the end of the last value: an
    int64 array. A null has no content, or content that means nothing."""
    size = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    offsets = column.buffers()[1]
    if offsets is None or not len(column):
        return np.zeros(len(column) + 1, np.int64)
    first = column.offset * np.dtype(size).itemsize
    return np.frombuffer(offsets, size, len(column) + 1, first).astype(np.int64)


def content_of(column: pa.Array) -> bytes | memoryview:
    """Return the bytes of all values, one after another, from the start of the first one."""
    starts, content = starts_of(column), column.buffers()[2]
    return b"" if content is None else memoryview(content)[int(starts[0]) : int(starts[-1])]


def sizes_of(column: pa.Array) -> Any:
    """Return the length of each value in bytes, -1 for null: an int64 array."""
    sizes = np.diff(starts_of(column))
    if column.null_count:
        sizes[~is_valid(column)] = -1
    return sizes


def is_valid(column: pa.Array) -> Any:
    """Return for each value whether it is not null: a bool array."""
    return column.is_valid().to_numpy(zero_copy_only=False)
