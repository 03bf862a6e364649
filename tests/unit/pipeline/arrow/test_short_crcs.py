"""The vectorised CRC of short fields is that of the CRC function."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from oncelog_pipeline.arrow.short_crcs import LONGEST, continued_crcs

FIELD = st.binary(max_size=9) | st.integers(LONGEST - 2, LONGEST + 2).map(lambda size: b"x" * size)


@given(st.lists(st.tuples(FIELD, st.integers(0, 2**32 - 1)), max_size=12), st.booleans(), st.integers(0, 2))
@examples(200)
def test_the_crcs_are_those_of_the_function(rows: list[tuple[bytes, int]], is_large: bool, skipped: int) -> None:
    kind = pa.large_binary() if is_large else pa.binary()
    column = pa.array([b"skipped"] * skipped + [field for field, _ in rows], kind).slice(skipped)
    found = continued_crcs(column, np.array([crc for _, crc in rows], np.uint32))
    assert found.tolist() == [crc32c(field, crc) for field, crc in rows]
