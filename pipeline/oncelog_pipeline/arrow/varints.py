"""Encodes columns of zig-zag variable-length integers, as `oncelog_protocol.records.varint` encodes a single
integer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

BITS: Final = 7
"""Each encoded byte contains this many bits of the encoded number."""
MORE: Final = 0x80
"""This bit of an encoded byte is set if another byte follows."""
COUNTED: Final = 1 << 15
"""The codes of offset deltas below this number are cached: a batch of 768 KB holds fewer records, provided that each
has at least 24 bytes.
"""


class Codes(NamedTuple):
    """The varint codes of a column: one code for each row. Row i of `content` (a matrix of uint8) begins with the bytes
    of code i.
    """

    content: Any
    widths: Any
    """The size of each row's code in bytes: an array, or an int if all codes have the same size."""

    def only(self, first: int, end: int) -> Codes:
        """Return the codes of the rows from `first` up to `end` (excluded)."""
        return Codes(self.content[first:end], self.widths if isinstance(self.widths, int) else self.widths[first:end])


def varints(numbers: Any) -> Codes:
    """Return the varint code of each number (an int64 array)."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    if not len(zigzag):
        return Codes(np.empty((0, 1), np.uint8), 1)
    widest = _width(int(zigzag.max()))
    if widest == _width(int(zigzag.min())):
        return Codes(_content(zigzag, widest, None), widest)
    widths: Any = np.ones(len(zigzag), np.int64)
    for each in range(1, widest):
        widths += zigzag >= 1 << BITS * each
    return Codes(_content(zigzag, widest, widths), widths)


def counted(first: int, count: int) -> Codes:
    """Return the codes of `count` consecutive numbers from `first` on, which must not be negative."""
    if first + count > COUNTED:
        return varints(np.arange(first, first + count, dtype=np.int64))
    found = _small().only(first, first + count)
    least, most = int(found.widths[0]), int(found.widths[-1])
    return Codes(found.content[:, :most], least) if least == most else Codes(found.content[:, :most], found.widths)


def width(number: int) -> int:
    """Return the size of the code of a number, in bytes."""
    return _width(2 * number if number >= 0 else -2 * number - 1)


def _width(zigzag: int) -> int:
    return max(1, -(-zigzag.bit_length() // BITS))


def _content(zigzag: Any, widest: int, widths: Any) -> Any:
    """Return the bytes of the codes as a matrix. `widths` is None if all codes are `widest` bytes long."""
    content: Any = np.empty((len(zigzag), widest), np.uint8)
    for each in range(widest):
        byte = (zigzag >> BITS * each & MORE - 1).astype(np.uint8)
        if each < widest - 1:
            byte |= MORE if widths is None else np.where(widths > each + 1, MORE, 0).astype(np.uint8)
        content[:, each] = byte
    return content


@cache
def _small() -> Codes:
    return varints(np.arange(COUNTED, dtype=np.int64))


def joined(codes: Sequence[Codes | bytes], count: int, kind: pa.DataType) -> pa.Array:
    """Return an array of `count` binary values, each of which is the concatenation of that row's codes. If an element
    of `codes` is a bytes object, every row gets these same bytes. `kind` is pa.binary() or pa.large_binary().
    """
    content, ends = content_and_ends(codes, count)
    size: Any = np.int64 if kind == pa.large_binary() else np.int32
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(ends.astype(size)), pa.py_buffer(content)])


def content_and_ends(codes: Sequence[Codes | bytes], count: int) -> tuple[Any, Any]:
    """Return the concatenated codes of all rows (uint8), and an int64 array: 0, followed by the place at which the
    codes of each row end. If an element of `codes` is a bytes object, every row gets these same bytes.
    """
    columns = [len(each) if isinstance(each, bytes) else each.content.shape[1] for each in codes]
    content: Any = np.empty((count, sum(columns)), np.uint8)
    is_used: Any = None
    widths: Any = 0
    at = 0
    for each, width in zip(codes, columns, strict=True):
        if isinstance(each, bytes):
            content[:, at : at + width] = np.frombuffer(each, np.uint8)
            widths += width
        else:
            content[:, at : at + width] = each.content
            widths += each.widths
            if not isinstance(each.widths, int):
                if is_used is None:
                    is_used = np.ones(content.shape, np.bool_)
                np.less(np.arange(width), each.widths[:, np.newaxis], out=is_used[:, at : at + width])
        at += width
    if is_used is None:
        return content.reshape(-1), np.arange(0, count * at + 1, at, dtype=np.int64)
    ends: Any = np.zeros(count + 1, np.int64)
    np.cumsum(widths, out=ends[1:])
    return content[is_used], ends
