"""The plans of a stream are stored in the cluster and used to repeat batches."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog import TopicPartition
from oncelog_pipeline.source.offsets import Offsets
from oncelog_pipeline.source.plans import KEPT, KEPT_ENTRIES, Plans, plans_from
from oncelog_pipeline.source.progress import Limits, Log, next_batch

A0, A1, A2 = (TopicPartition("a", index) for index in range(3))
MOST_METADATA = 4096
"""The default value of Kafka's setting offset.metadata.max.bytes."""


class Group:
    """The offsets that a group has committed in a cluster."""

    def __init__(self) -> None:
        self.metadata: dict[TopicPartition, str] = {}
        self.offsets: Offsets = {}

    def commit(self, plans: Plans) -> None:
        for partition, (offset, metadata, _) in plans.to_commit().items():
            assert len(metadata) <= MOST_METADATA
            self.metadata[partition], self.offsets[partition] = metadata, offset

    @property
    def plans(self) -> Plans:
        return plans_from(self.metadata)


def test_a_batch_that_begins_where_a_plan_began_ends_where_it_ended() -> None:
    group = Group()
    group.commit(group.plans.with_batch({A0: 5, A1: 7}, {A0: 9, A1: 7}))
    assert group.offsets == {A0: 9}
    assert group.metadata[A0].endswith(":5-9")
    latest = {A0: 100, A1: 100}
    assert group.plans.end_after({A0: 5, A1: 7}, latest) == {A0: 9, A1: 7}
    assert group.plans.end_after({A0: 9, A1: 7}, latest) is None
    assert group.plans.end_after({A1: 7}, latest) is None
    assert group.plans.end_after({A0: 5, A1: 7}, {A0: 8, A1: 100}) is None, "the log ends before it"
    assert group.plans.end_after({A0: 5, A1: 7}, latest, most=3) is None
    assert group.plans.end_after({A0: 5, A1: 7}, latest, most=4) == {A0: 9, A1: 7}


@pytest.mark.parametrize(("a1", "a2"), [(11, 11), (10, 20), (100, 100)])
def test_a_plan_begins_where_it_began_in_all_partitions(a1: int, a2: int) -> None:
    """A plan applies only if its start offsets are equal for all partitions, including partitions from which the plan
    reads nothing.
    """
    plans = Plans().with_batch({A0: 5, A1: 10, A2: 10}, {A0: 9, A1: 10, A2: 10})
    latest = {A0: 200, A1: 200, A2: 200}
    assert plans.end_after({A0: 5, A1: 10, A2: 10}, latest) == {A0: 9, A1: 10, A2: 10}
    assert plans.end_after({A0: 5, A1: a1, A2: a2}, latest) is None


def test_a_plan_does_not_depend_on_the_order_of_partitions() -> None:
    plans = Plans().with_batch({A0: 5, A1: 7}, {A0: 9, A1: 7})
    assert plans.end_after({A1: 7, A0: 5}, {A0: 100, A1: 100}) == {A0: 9, A1: 7}


@pytest.mark.parametrize("moved", ["5-3", "5-5", "5-" + "9" * 5000, "\N{ARABIC-INDIC DIGIT FIVE}-9", "5-9-9", ""])
def test_foreign_commits_are_no_plan(moved: str) -> None:
    """Any client that may write to the group can commit offsets. A stored plan whose end is before its start would make
    the query read records twice.
    """
    group = Group()
    group.commit(Plans().with_batch({A0: 5}, {A0: 9}))
    kept, _, _ = group.metadata[A0].rpartition(":")
    assert plans_from({A0: f"{kept}:5-9"}).end_after({A0: 5}, {A0: 100}) == {A0: 9}
    assert not plans_from({A0: f"{kept}:{moved}"}).plans


def test_the_newest_of_the_plans_that_begin_there_counts() -> None:
    plans = Plans().with_batch({A0: 0}, {A0: 5}).with_batch({A0: 5}, {A0: 9}).with_batch({A0: 0}, {A0: 7})
    assert plans.end_after({A0: 0}, {A0: 100}) == {A0: 7}


@pytest.mark.parametrize("end", [{A0: 5}, {A0: 9}])
def test_a_batch_that_is_known_or_empty_is_not_committed_again(end: Offsets) -> None:
    plans = Plans().with_batch({A0: 5}, {A0: 9})
    assert plans.with_batch({A0: 5}, end) is plans


def test_a_plan_that_not_all_of_its_partitions_have_does_not_count() -> None:
    """The plan's topic was deleted, another driver has overwritten the plan, or its offset has expired."""
    group = Group()
    group.commit(group.plans.with_batch({A0: 0, A1: 0}, {A0: 5, A1: 5}))
    del group.metadata[A1]
    assert group.plans.plans == ()
    group.commit(group.plans.with_batch({A2: 0}, {A2: 5}))
    assert group.metadata[A2] == "1/1/0:0-5", "the number of the lost plan is not given again"
    group.metadata[A0] = "no plan,1/2/0:3-4"
    assert group.plans.plans == ()


@given(st.lists(st.dictionaries(st.sampled_from([A0, A1, A2]), st.integers(1, 9), max_size=3), max_size=40))
def test_the_last_plans_are_known_whoever_reads_them(batches: list[dict[TopicPartition, int]]) -> None:
    """A newly started driver commits each batch; later the checkpoint is set back by at most KEPT batches."""
    group, at, ends = Group(), {A0: 0, A1: 0, A2: 0}, [{A0: 0, A1: 0, A2: 0}]
    for moves in batches:
        end = {partition: offset + moves.get(partition, 0) for partition, offset in at.items()}
        group.commit(group.plans.with_batch(at, end))
        if end != at:
            ends.append(end)
        at = end
    kept = ends[-KEPT - 1 :]
    for begin, end in pairwise(kept):
        assert group.plans.end_after(begin, at) == end


def test_many_partitions_keep_fewer_plans() -> None:
    many = [TopicPartition("a", index) for index in range(1000)]
    group = Group()
    for number in range(5):
        group.commit(group.plans.with_batch(dict.fromkeys(many, number), dict.fromkeys(many, number + 1)))
    assert len(group.plans.plans) == KEPT_ENTRIES // 1000
    assert sum(map(len, group.metadata.values())) < 45_000
    assert group.plans.end_after(dict.fromkeys(many, 4), dict.fromkeys(many, 9)) == dict.fromkeys(many, 5)


def test_limits_and_waiting_are_not_for_a_batch_that_was_planned() -> None:
    log = Log({A0: 0, A1: 0}, {A0: 50, A1: 50})
    plans = Plans().with_batch({A0: 0}, {A0: 9})
    known = next_batch({A0: 0, A1: 0}, log, Limits(most=10, least=500, longest_s=60), plans=plans)
    assert known.end == {A0: 9, A1: 0}
    assert next_batch(known.end, log, Limits(most=10), plans=plans).end == {A0: 14, A1: 5}
