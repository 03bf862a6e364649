"""Columns of variable-length integers equal the protocol's encoding of each number."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from oncelog_pipeline.arrow.varints import COUNTED, Codes, counted, joined, varints
from oncelog_protocol.records.varint import encode_varlong

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-130, 130) | st.integers(2**13 - 3, 2**13 + 3)


def bytes_of(codes: Codes) -> list[bytes]:
    return joined([codes], len(codes.content), pa.binary()).to_pylist()


@given(st.lists(NUMBERS, max_size=20))
@examples(200)
def test_each_number_is_encoded_as_the_protocol_does(numbers: list[int]) -> None:
    assert bytes_of(varints(np.array(numbers, np.int64))) == list(map(encode_varlong, numbers))


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=20), st.booleans())
@examples(100)
def test_codes_are_joined_row_by_row(numbers: list[tuple[int, int]], is_large: bool) -> None:
    columns = [varints(np.array([row[column] for row in numbers], np.int64)) for column in (0, 1)]
    found = joined([columns[0], b"between", columns[1]], len(numbers), pa.large_binary() if is_large else pa.binary())
    found.validate(full=True)
    assert found.to_pylist() == [encode_varlong(one) + b"between" + encode_varlong(other) for one, other in numbers]


@pytest.mark.parametrize("first", [0, 1, 62, 63, 64, 8190, 8192, COUNTED - 2, COUNTED, 1 << 20])
@pytest.mark.parametrize("count", [1, 2, 3, 200])
def test_numbers_in_a_row_are_encoded_as_each_of_them(first: int, count: int) -> None:
    assert bytes_of(counted(first, count)) == [encode_varlong(each) for each in range(first, first + count)]


def test_a_part_of_the_codes_is_joined() -> None:
    numbers = [0, 100, 1, 10_000]
    assert bytes_of(varints(np.array(numbers, np.int64)).only(1, 3)) == list(map(encode_varlong, numbers[1:3]))
