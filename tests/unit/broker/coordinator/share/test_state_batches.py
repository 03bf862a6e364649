"""State batches of share partitions are merged with later ones."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from oncelog_broker.coordinator.share.state_batches import StateBatch, merged


def of(*batches: tuple[int, int, int, int]) -> list[StateBatch]:
    return [StateBatch(*batch) for batch in batches]


def test_a_later_batch_replaces_what_is_known_of_its_offsets() -> None:
    known = of((0, 9, 0, 1), (10, 19, 0, 2))
    assert merged(known, of((5, 14, 2, 1)), 0) == tuple(of((0, 4, 0, 1), (5, 14, 2, 1), (15, 19, 0, 2)))


def test_a_batch_within_another_one_divides_it() -> None:
    assert merged(of((0, 9, 0, 1)), of((3, 5, 2, 1)), 0) == tuple(of((0, 2, 0, 1), (3, 5, 2, 1), (6, 9, 0, 1)))


def test_neighbours_that_are_alike_are_joined_and_gaps_stay() -> None:
    assert merged(of((0, 4, 2, 1)), of((5, 9, 2, 1), (11, 12, 2, 1)), 0) == tuple(of((0, 9, 2, 1), (11, 12, 2, 1)))


def test_what_is_below_the_start_offset_is_dropped() -> None:
    assert merged(of((0, 4, 2, 1), (5, 9, 0, 1)), (), 7) == tuple(of((7, 9, 0, 1)))


batches = st.builds(
    lambda first, length, state, count: StateBatch(first, first + length, state, count),
    st.integers(0, 40),
    st.integers(0, 15),
    st.sampled_from([0, 2, 4]),
    st.integers(0, 2),
)


@given(st.lists(batches, max_size=12), st.integers(0, 30))
def test_merging_is_what_writing_offset_by_offset_would_be(updates: list[StateBatch], start: int) -> None:
    result = merged((), updates, start)
    expected: dict[int, tuple[int, int]] = {}
    for first, last, state, count in updates:
        expected.update(dict.fromkeys(range(first, last + 1), (state, count)))
    found = {offset: batch[2:] for batch in result for offset in range(batch.first, batch.last + 1)}
    assert found == {offset: known for offset, known in expected.items() if offset >= start}
    for before, after in pairwise(result):
        assert before.last < after.first
        assert before.last + 1 < after.first or before[2:] != after[2:], "they are joined"
