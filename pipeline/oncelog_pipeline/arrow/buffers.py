"""What lies below a binary column of Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def starts_of(column: pa.Array) -> Any:
    """Where each value begins in the column's content, and, as the last one, where the last value ends: an array of
    int64. A null takes no place, or some that means nothing."""
    size = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    offsets = column.buffers()[1]
    if offsets is None or not len(column):
        return np.zeros(len(column) + 1, np.int64)
    first = column.offset * np.dtype(size).itemsize
    return np.frombuffer(offsets, size, len(column) + 1, first).astype(np.int64)


def content_of(column: pa.Array) -> bytes | memoryview:
    """All values one after another, from where the first one begins."""
    starts, content = starts_of(column), column.buffers()[2]
    return b"" if content is None else memoryview(content)[int(starts[0]) : int(starts[-1])]


def sizes_of(column: pa.Array) -> Any:
    """Of each value its bytes, -1 for null: an array of int64."""
    sizes = np.diff(starts_of(column))
    if column.null_count:
        sizes[~is_valid(column)] = -1
    return sizes


def is_valid(column: pa.Array) -> Any:
    """Of each value whether it is not null: an array of bool."""
    return column.is_valid().to_numpy(zero_copy_only=False)
