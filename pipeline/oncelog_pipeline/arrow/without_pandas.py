"""Converts to and from Arrow without `pa.array`, `pa.scalar` and `to_numpy`.

The first call of one of them in a process imports pandas, if it is installed. `pa.array` and `pa.scalar` find out in
this way whether their argument is an object of pandas. The import takes 150 to 330 ms of CPU, and 30 MB of memory in
each process, which is more than most tasks need for their rows.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np
import pyarrow as pa

FAST_LISTS: Final = int(pa.__version__.partition(".")[0]) >= 26
"""Whether `to_pylist` takes no longer than `to_numpy` and `tolist`: 15 to 26 ns for each value with pyarrow 26."""


def arrow_array(values: Any, kind: Any, is_null: Any = None) -> Any:
    """Return an Arrow array of this type that uses the memory of a numpy array. `is_null` is an array of bool, or None
    if no value is null.
    """
    valid = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if is_null is not None and is_null.any() else None
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(np.ascontiguousarray(values))])


def one_value(value: bytes, kind: pa.DataType) -> pa.Array:
    """Return an array with one value, of the type `kind`: pa.binary() or pa.large_binary()."""
    ends = np.array([0, len(value)], np.int64 if kind == pa.large_binary() else np.int32)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(ends), pa.py_buffer(value)])


def binary_scalar(value: bytes, kind: pa.DataType) -> pa.Scalar:
    """Return a scalar of the type `kind`: pa.binary() or pa.large_binary()."""
    return one_value(value, kind)[0]


def zero(kind: pa.DataType) -> pa.Scalar:
    """Return the number 0 as a scalar of an integer type."""
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(8))])[0]


def bytes_of(column: pa.Array) -> list[bytes]:
    """Return the values of a binary column without nulls. With older releases of pyarrow this imports pandas."""
    found: list[bytes] = column.to_pylist() if FAST_LISTS else column.to_numpy(zero_copy_only=False).tolist()
    return found


def patch_next_pa_array() -> None:
    """Replace `pa.array` for its next call, so that `pa.array([message])` with one bytes object does not import pandas.

    PySpark passes the message of a writing task to the JVM in such an array. The replacement restores the original
    function when it is called, and passes all other arguments to it. Does nothing if pandas is imported already.
    """
    if "pandas" not in sys.modules and pa.array is _array:
        pa.array = _next_array


_array = pa.array


def _next_array(*arguments: Any, **options: Any) -> Any:
    pa.array = _array
    if len(arguments) == 1 and not options:
        (values,) = arguments
        if type(values) is list and len(values) == 1 and type(values[0]) is bytes:
            return one_value(values[0], pa.binary())
    return _array(*arguments, **options)
