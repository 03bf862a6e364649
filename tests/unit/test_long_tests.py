"""The order in which the workers of `make test` get the tests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.long_tests import in_pieces, is_long


def test_each_worker_begins_with_its_share_of_the_long_tests() -> None:
    assert "".join(in_pieces("abcXdefghYijZ", "XYZ", 3)) == "XabcYdefZghij"


def test_one_process_runs_the_long_tests_first() -> None:
    assert "".join(in_pieces("abXcY", "XY", 1)) == "XYabc"


@given(st.sets(st.integers(0, 60)), st.integers(1, 8), st.data())
def test_every_test_runs_once_and_the_others_keep_their_order(
    items: set[int], pieces: int, data: st.DataObject
) -> None:
    long = data.draw(st.sets(st.sampled_from(sorted(items)))) if items else set()
    ordered = in_pieces(sorted(items), sorted(long), pieces)
    assert sorted(ordered) == sorted(items)
    assert [item for item in ordered if item not in long] == sorted(items - long)


@pytest.mark.timeout(400)
def test_a_test_with_a_longer_timeout_is_long(request: pytest.FixtureRequest) -> None:
    assert is_long(request.node, 120)
    assert not is_long(request.node, 400)
