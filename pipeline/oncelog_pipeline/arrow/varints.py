"""Columns of zig-zag variable-length integers, as `oncelog_protocol.records.varint` encodes one of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

BITS: Final = 7
"""Bits of the number in each byte."""
MORE: Final = 0x80
"""The bit that says that another byte follows."""
COUNTED: Final = 1 << 15
"""Offsets in a batch are encoded once, up to this one: 512 KB hold fewer records of 16 bytes."""


class Codes(NamedTuple):
    """One code for each row. Row i of `content` (a matrix of uint8) begins with its bytes."""

    content: Any
    widths: Any
    """Bytes of each row's code: an array, or an int if all are equal."""

    def only(self, first: int, end: int) -> Codes:
        """The rows from `first` up to `end`."""
        return Codes(self.content[first:end], self.widths if isinstance(self.widths, int) else self.widths[first:end])


def varints(numbers: Any) -> Codes:
    """The code of each number (an array of int64)."""
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
    """The codes of `count` consecutive numbers, the first of them not negative."""
    if first + count > COUNTED:
        return varints(np.arange(first, first + count, dtype=np.int64))
    found = _small().only(first, first + count)
    least, most = int(found.widths[0]), int(found.widths[-1])
    return Codes(found.content[:, :most], least) if least == most else Codes(found.content[:, :most], found.widths)


def _width(zigzag: int) -> int:
    return max(1, -(-zigzag.bit_length() // BITS))


def _content(zigzag: Any, widest: int, widths: Any) -> Any:
    """Return the bytes of the codes. `widths` is None if all are `widest` bytes long."""
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
    """Return one binary value for each of `count` rows: its codes, joined. An element of `codes` that is bytes is the
    same for all rows. `kind` is pa.binary() or pa.large_binary()."""
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
    size: Any = np.int64 if kind == pa.large_binary() else np.int32
    ends: Any
    if is_used is None:
        ends = np.arange(0, count * at + 1, at, dtype=size)
    else:
        content = content[is_used]
        ends = np.zeros(count + 1, size)
        np.cumsum(widths, out=ends[1:])
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(ends), pa.py_buffer(content)])
