"""Rows are taken from a column in several pieces as Arrow would take them from the whole column."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from oncelog_pipeline.arrow.buffers import is_valid, numbers_of, taken

VALUE = st.none() | st.binary(max_size=5) | st.integers(1000, 1010).map(bytes)
PIECE = st.lists(VALUE, max_size=6)


@given(st.lists(PIECE, min_size=1, max_size=4), st.sampled_from([pa.binary(), pa.large_binary()]), st.data())
@examples(200)
def test_any_rows_of_any_pieces(pieces: list[list[bytes | None]], kind: pa.DataType, data: st.DataObject) -> None:
    skipped = data.draw(st.integers(0, 2), "skipped")
    arrays = [pa.array([b"not a row"] * skipped + piece, kind).slice(skipped) for piece in pieces]
    every = [value for piece in pieces for value in piece]
    wanted = data.draw(st.lists(st.integers(0, len(every) - 1), max_size=10), "wanted") if every else []
    found = taken(arrays, np.array(wanted, np.int64))
    found.validate(full=True)
    assert found.type == pa.large_binary()
    assert found.to_pylist() == [every[row] for row in wanted]


def test_no_rows_need_no_memory_of_the_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy may give an array memory that still has other bytes in it, which would become a size."""
    sizes: list[int] = []
    foreign_buffer = pa.foreign_buffer

    def noted(address: int, size: int, base: object) -> pa.Buffer:
        sizes.append(size)
        return foreign_buffer(address, size, base)

    monkeypatch.setattr(np, "empty", lambda size, kind: np.full(size, 1 << 62, kind))
    monkeypatch.setattr(pa, "foreign_buffer", noted)
    found = taken([pa.array([b"x"], pa.binary())], np.array([], np.int64))
    found.validate(full=True)
    assert (found.type, found.to_pylist()) == (pa.large_binary(), [])
    assert max(sizes, default=0) <= 1, "no memory outside the pieces"


def test_arrow_reserves_no_more_memory_than_the_rows_need() -> None:
    """The pieces may lie far apart, and Arrow estimates the memory from the size of the whole column."""
    pieces = [pa.array([b"x" * 1000] * 10, pa.binary()) for _ in range(50)]
    before = pa.total_allocated_bytes()
    found = taken([pieces[0], pieces[-1]], np.arange(0, 20, 3))
    assert found.to_pylist() == [b"x" * 1000] * 7
    assert pa.total_allocated_bytes() - before < 20_000


@pytest.mark.parametrize("first", [0, 1, 7, 8, 13])
@pytest.mark.parametrize("size", [0, 1, 8, 20, 30])
def test_slices_know_their_nulls_and_numbers(first: int, size: int) -> None:
    values = [None if number % 3 == 0 or number % 7 == 0 else number for number in range(50)]
    for kind in (pa.int32(), pa.int64()):
        piece = pa.array(values, kind)[first : first + size]
        assert is_valid(piece).tolist() == [each is not None for each in values[first : first + size]]
        numbers = pa.array(range(50), kind)[first : first + size]
        assert numbers_of(numbers).tolist() == list(range(50))[first : first + size]
    assert is_valid(pa.nulls(size)).tolist() == [False] * size
    assert is_valid(pa.array(range(size))).tolist() == [True] * size
