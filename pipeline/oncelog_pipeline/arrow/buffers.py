"""The buffers of a binary Arrow column: offsets, content, sizes, validity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def starts_of(column: pa.Array) -> Any:
    """Return an int64 array: the offset at which each value begins in the column's content, followed by the offset at
    which the last value ends. For a null, the content between its two offsets is empty or undefined.
    """
    size = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    offsets = column.buffers()[1]
    if offsets is None or not len(column):
        return np.zeros(len(column) + 1, np.int64)
    first = column.offset * np.dtype(size).itemsize
    return np.frombuffer(offsets, size, len(column) + 1, first).astype(np.int64)


def content_of(column: pa.Array) -> bytes | memoryview:
    """Return the bytes of all values of the column, one after another, beginning with the first value."""
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
