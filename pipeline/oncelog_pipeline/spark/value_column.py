"""The values of many records as one Arrow column.

Records that differ in content only are a matrix (`FieldRun`), of which numpy takes the values' columns in one step: a
value is copied once, from what was fetched to what Spark gets, and no object is made for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from oncelog import ColumnBatch
from oncelog_protocol.records.columns import FieldRun

MAX_BYTES: Final = 2**31 - 1
"""Of one Arrow column with offsets of 32 bits."""


def values_size(part: ColumnBatch) -> int:
    """Bytes of all values."""
    return sum(map(len, filter(None, part.values))) + sum(run.length * run.rows for run in part.value_runs)


def value_column(parts: Sequence[ColumnBatch], size: int) -> pa.Array:
    """The values of all parts, `size` bytes in all. Raises ValueError where these are more than MAX_BYTES."""
    if size > MAX_BYTES:
        raise ValueError(f"{size:,} bytes of values in one batch: an Arrow batch holds {MAX_BYTES:,}")
    if not any(part.value_runs for part in parts):
        return pa.array([value for part in parts for value in part.values], pa.binary())
    column = _Column(sum(len(part.values) for part in parts), size)
    for part in parts:
        at = 0
        for run in part.value_runs:
            if run.first > at:
                column.add_values(part.values[at : run.first])
            column.add_run(run)
            at = run.end
        if at < len(part.values):
            column.add_values(part.values[at:])
    return column.finished()


class _Column:
    """Invariant: the first `_rows` rows are there, and have the first `_filled` bytes of the content."""

    def __init__(self, count: int, size: int) -> None:
        self._ends: Any = np.zeros(count + 1, np.int32)  # lengths, until it is finished
        self._content: Any = np.empty(size, np.uint8)
        self._is_valid: Any = None  # None: all of them
        self._rows = 0
        self._filled = 0

    def add_run(self, run: FieldRun) -> None:
        count, stride, length = run.rows, run.stride, run.length
        rows = np.frombuffer(run.data, np.uint8, count * stride, run.start).reshape(count, stride)
        room = self._content[self._filled : self._filled + count * length].reshape(count, length)
        room[:] = rows[:, run.at : run.at + length]
        self._ends[self._rows + 1 : self._rows + 1 + count] = length
        self._rows += count
        self._filled += count * length

    def add_values(self, values: Sequence[bytes | None]) -> None:
        first, end = self._rows, self._rows + len(values)
        found = b"".join(filter(None, values))
        self._content[self._filled : self._filled + len(found)] = np.frombuffer(found, np.uint8)
        self._ends[first + 1 : end + 1] = [0 if value is None else len(value) for value in values]
        if None in values:
            if self._is_valid is None:
                self._is_valid = np.ones(len(self._ends) - 1, np.bool_)
            self._is_valid[first:end] = [value is not None for value in values]
        self._rows = end
        self._filled += len(found)

    def finished(self) -> pa.Array:
        np.cumsum(self._ends, out=self._ends)
        valid = None if self._is_valid is None else pa.py_buffer(np.packbits(self._is_valid, bitorder="little"))
        buffers = [valid, pa.py_buffer(self._ends), pa.py_buffer(self._content)]
        return pa.Array.from_buffers(pa.binary(), len(self._ends) - 1, buffers)
