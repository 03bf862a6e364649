"""Plans of `oncelog groups reset`: offsets that are shifted within a log, and the file format of a plan."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.cli.reset_plan import Bounds, from_csv, shifted, to_csv
from oncelog.cluster import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@pytest.mark.parametrize(("by", "expected"), [(-3, 7), (3, 13), (-100, 5), (100, 20), (0, 10)])
def test_a_shift_stays_within_what_the_partition_holds(by: int, expected: int) -> None:
    assert shifted({A0: 10}, by, {A0: Bounds(5, 20)}) == {A0: expected}


def test_a_partition_that_is_gone_is_left_out() -> None:
    assert shifted({A0: 10, A1: 10}, 1, {A0: Bounds(0, 20)}) == {A0: 11}


plans = st.dictionaries(
    st.builds(TopicPartition, st.from_regex(r"[a-z._-]{1,20}", fullmatch=True), st.integers(0, 1000)),
    st.integers(0, 2**63 - 1),
)


@given(plans)
def test_a_plan_survives_its_file(plan: dict[TopicPartition, int]) -> None:
    assert from_csv(to_csv(plan).splitlines()) == plan


@pytest.mark.parametrize("line", ["a", "a,0", "a,x,1", "a,0,-1", "a,-1,0", "a,0,1,2", f"a,0,{2**63}", "a,,1"])
def test_a_wrong_line_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        from_csv(["b,0,1", line])
