"""Continues the CRC32C of many rows with a column of short fields, such as keys, for all rows together.

A call of the CRC function for each row costs more than a tenth of a microsecond, however short the field is. Here each
vectorised step processes the next four bytes, or the next byte, of every field that has that many bytes left. Fields
longer than LONGEST are processed by a call each.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from oncelog_pipeline.arrow.buffers import content_of, starts_of

LONGEST: Final = 64
"""Fields up to this length, in bytes, are processed in vectorised steps."""
POLYNOMIAL: Final = 0x82F63B78
"""The polynomial of CRC32C (Castagnoli), with its lowest bit first."""
WORD: Final = 4
BYTE: Final = np.uint32(0xFF)


def continued_crcs(column: pa.Array, crcs: Any) -> Any:
    """Return for each row the CRC32C that `crc32c(field, crc)` returns, a uint32 array.

    `column` is binary or large binary without nulls; `crcs` is a uint32 array of the CRCs of the rows so far.
    """
    starts = starts_of(column)
    sizes = np.diff(starts)
    starts = starts[:-1] - starts[0]
    content = np.frombuffer(content_of(column), np.uint8)
    padded: Any = np.zeros(len(content) + WORD, np.uint8)
    padded[: len(content)] = content
    long_rows = np.flatnonzero(sizes > LONGEST)
    of_long = [crc32c(padded[starts[row] : starts[row] + sizes[row]], int(crcs[row])) for row in long_rows.tolist()]
    if len(long_rows):
        sizes = np.where(sizes > LONGEST, 0, sizes)
    # A word may begin at any byte.
    words = np.ndarray((len(content) + 1,), "<u4", padded, strides=(1,))
    found = ~crcs
    counts = sizes // WORD
    for step in range(int(counts.max(initial=0))):
        rows = _rows_above(counts, step)
        found[rows] = _after_word(found[rows] ^ words[starts[rows] + step * WORD])
    left = sizes % WORD
    starts = starts + counts * WORD
    first_table = _tables()[0]
    for step in range(int(left.max(initial=0))):
        rows = _rows_above(left, step)
        before = found[rows]
        found[rows] = first_table[(before ^ padded[starts[rows] + step]) & BYTE] ^ (before >> np.uint32(8))
    found = ~found
    found[long_rows] = of_long
    return found


def _rows_above(counts: Any, step: int) -> Any:
    """Return an index of the rows whose count is above `step`."""
    is_above = counts > step
    return slice(None) if is_above.all() else np.flatnonzero(is_above)


def _after_word(mixed: Any) -> Any:
    """Return the state after four bytes; `mixed` is the state before them, XORed with the bytes."""
    tables = _tables()
    found = tables[3][mixed & BYTE]
    for number, shift in ((2, 8), (1, 16), (0, 24)):
        found = found ^ tables[number][(mixed >> np.uint32(shift)) & BYTE]
    return found


@cache
def _tables() -> Any:
    """Return for each of four places, and each byte, the state after that byte and as many zero bytes as the place."""
    state: Any = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        state = np.where(state & np.uint32(1), (state >> np.uint32(1)) ^ np.uint32(POLYNOMIAL), state >> np.uint32(1))
    tables = [state]
    for _ in range(WORD - 1):
        tables.append(state[tables[-1] & BYTE] ^ (tables[-1] >> np.uint32(8)))
    return np.array(tables, np.uint32)
