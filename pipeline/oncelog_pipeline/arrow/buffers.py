"""The buffers of a binary Arrow column: offsets, content, sizes, validity; and rows of a column in several pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncelog_pipeline.arrow.without_pandas import arrow_array, one_value

EMPTY: Final = pa.py_buffer(b"\x00")
"""Takes the place of the content of a column that has none."""


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
    if column.null_count in (0, len(column)):
        return np.full(len(column), not column.null_count)
    first, skipped = divmod(column.offset, 8)
    bits = np.frombuffer(column.buffers()[0], np.uint8, (skipped + len(column) + 7) // 8, first)
    return np.unpackbits(bits, count=skipped + len(column), bitorder="little")[skipped:].view(np.bool_)


def numbers_of(column: pa.Array) -> Any:
    """Return the numbers of a column of signed integers without nulls, as a numpy array."""
    size = column.type.bit_width // 8
    content = column.buffers()[1]
    if content is None or not len(column):
        return np.zeros(0, f"i{size}")
    return np.frombuffer(content, f"i{size}", len(column), column.offset * size)


def taken(pieces: Sequence[pa.Array], rows: Any) -> pa.Array:
    """Return these rows (an int64 array of row numbers) of a column in several pieces, as a large binary array. The
    rows of all pieces are numbered together.

    Each value is copied once, directly from its piece, whereas Arrow would first copy all pieces into one array. All
    memory from the first byte of the pieces to the last becomes one binary array, which is cut where each wanted value
    begins and ends. Every second element of this array is a wanted value. The other elements are never read, because
    they consist of memory that may belong to other objects.
    """
    if not len(rows):
        return one_value(b"", pa.large_binary())[:0]
    starts = np.concatenate([starts_of(each)[:-1] + _address(each) for each in pieces])[rows]
    sizes = np.concatenate([sizes_of(each) for each in pieces])[rows]
    bounds: Any = np.empty(2 * len(rows) + 1, np.int64)
    bounds[:-1:2] = starts
    bounds[1::2] = starts + np.maximum(sizes, 0)
    first = min(map(_address, pieces))
    bounds -= first
    # Arrow reserves memory for as many bytes as elements of the array's mean size would have, so let the array's size
    # be twice that of the wanted values.
    bounds[-1] = bounds[0] + 2 * int(np.maximum(sizes, 0).sum())
    memory = pa.foreign_buffer(first, int(bounds.max()), pieces)
    every = pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), memory])
    return pc.take(every, arrow_array(np.arange(0, len(bounds) - 1, 2), pa.int64(), sizes < 0), boundscheck=False)


def _address(column: pa.Array) -> int:
    address: int = (column.buffers()[2] or EMPTY).address
    return address
