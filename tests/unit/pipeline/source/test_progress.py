"""The range of offsets in a batch, its division into tasks, and the report of deleted records."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog import TopicPartition
from oncelog_pipeline.source.admission import is_worth_a_batch, limited, sizes
from oncelog_pipeline.source.data_loss import DataLoss, losses
from oncelog_pipeline.source.progress import Limits, Log, next_batch
from oncelog_pipeline.source.ranges import OffsetRange, cut

A0, A1, A2 = (TopicPartition("a", index) for index in range(3))
OFFSETS = st.dictionaries(st.sampled_from([A0, A1, A2, TopicPartition("b", 0)]), st.integers(0, 1000), max_size=4)
COUNT = st.integers(1, 200)


@st.composite
def spans(draw: st.DrawFn) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    start = draw(OFFSETS)
    return start, {partition: offset + draw(st.integers(0, 500)) for partition, offset in start.items()}


@given(spans(), COUNT)
def test_a_limit_is_kept_shared_fairly_and_never_starves(
    span: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], most: int
) -> None:
    start, end = span
    there, found = sizes(start, end), sizes(start, limited(start, end, most))
    assert sum(found.values()) == min(most, sum(there.values()))
    assert all(found.get(partition, 0) <= size for partition, size in there.items())
    if most >= len(there):
        assert set(found) == set(there)
    assert limited(start, end, None) == end


@given(spans(), COUNT, st.integers(1, 20))
def test_batch_after_batch_everything_is_read_once(
    span: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], most: int, pieces: int
) -> None:
    start, end = span
    read: dict[TopicPartition, list[tuple[int, int]]] = {}
    at = start
    while sizes(at, end):
        then = limited(at, end, most)
        for piece in cut(at, then, min_partitions=pieces):
            read.setdefault(TopicPartition(*piece[:2]), []).append((piece.start, piece.end))
        at = then
    for partition, ranges in read.items():
        assert ranges[0][0] == start[partition]
        assert ranges[-1][1] == end[partition]
        assert all(before[1] == after[0] for before, after in pairwise(ranges))


@given(spans(), COUNT, COUNT)
def test_a_batch_is_cut_as_asked_and_always_alike(
    span: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], at_least: int, at_most: int
) -> None:
    start, end = span
    pieces = cut(start, end, min_partitions=at_least, max_records_per_partition=at_most)
    total = sum(sizes(start, end).values())
    assert sum(piece.size for piece in pieces) == total
    assert len(pieces) >= min(at_least, total)
    assert all(0 < piece.size <= at_most for piece in pieces)
    again = cut(
        dict(reversed(start.items())),
        dict(reversed(end.items())),
        min_partitions=at_least,
        max_records_per_partition=at_most,
    )
    assert pieces == again


def test_without_options_a_partition_is_a_task() -> None:
    assert cut({A0: 5, A1: 5}, {A0: 9, A1: 5, A2: 3}) == [OffsetRange("a", 0, 5, 9), OffsetRange("a", 2, 0, 3)]


def test_the_longest_ranges_are_split_first() -> None:
    pieces = cut({}, {A0: 10, A1: 100}, min_partitions=4)
    assert [(piece.partition, piece.size) for piece in pieces] == [(0, 10), (1, 33), (1, 33), (1, 34)]


def test_a_batch_waits_for_enough_or_long_enough() -> None:
    start, end = {A0: 0}, {A0: 5}
    worth = {"least": 6, "longest_s": 10.0}
    assert not is_worth_a_batch(start, end, waited_s=9.9, **worth)
    assert is_worth_a_batch(start, end, waited_s=10.0, **worth)
    assert not is_worth_a_batch(start, start, waited_s=10.0, **worth)
    assert is_worth_a_batch(start, {A0: 6}, waited_s=0.0, **worth)
    assert is_worth_a_batch(start, start, least=None, waited_s=0.0, longest_s=0.0)


def test_deleted_records_are_reported_with_their_offsets() -> None:
    wanted = {A0: 5, A1: 50, A2: 7}
    found = losses(wanted, {A0: 9, A1: 0}, {A0: 20, A1: 30})
    assert found == [
        "a-0: offsets 5 to 8 are deleted; the log begins at 9",
        "a-1 ends at offset 30, but was read up to 50: was it deleted and re-created?",
        "a-2 no longer exists; it was read up to offset 7",
    ]
    assert losses({A0: 9}, {A0: 9}, {A0: 9}) == []


LOG = Log({A0: 9, A1: 0}, {A0: 20, A1: 30})


def test_loss_fails_a_query_or_is_passed_over_with_a_warning() -> None:
    with pytest.raises(DataLoss, match=r"offsets 5 to 8 are deleted.*failOnDataLoss=false"):
        next_batch({A0: 5, A1: 3}, LOG, Limits())
    found = next_batch({A0: 5, A1: 50, A2: 7}, LOG, Limits(fails_on_data_loss=False))
    assert (found.start, found.end) == ({A0: 9, A1: 0}, {A0: 20, A1: 30})
    assert len(found.warnings) == 3


def test_a_topic_that_was_made_anew_is_lost_whatever_its_offsets() -> None:
    log = Log(LOG.earliest, LOG.latest, {"a": "new"})
    for known in ({"a": "new"}, {}, {"b": "gone"}):
        assert next_batch({A0: 10, A1: 3}, log, Limits(), ids=known).start == {A0: 10, A1: 3}
    with pytest.raises(DataLoss, match="a-0 was read up to offset 10 of a topic that was deleted"):
        next_batch({A0: 10, A1: 3}, log, Limits(), ids={"a": "old"})
    found = next_batch({A0: 10, A1: 3}, log, Limits(fails_on_data_loss=False), ids={"a": "old"})
    assert (found.start, found.end) == (LOG.earliest, LOG.latest)
    assert len(found.warnings) == 2


def test_a_partition_that_is_new_is_read_from_where_it_begins() -> None:
    found = next_batch({A1: 30}, LOG, Limits())
    assert (found.start, found.end, found.warnings) == ({A1: 30, A0: 9}, {A1: 30, A0: 20}, [])


def test_a_batch_that_is_not_worth_it_ends_where_it_begins() -> None:
    start = {A0: 15, A1: 30}
    limits = Limits(least=6, longest_s=10.0)
    assert next_batch(start, LOG, limits, waited_s=1.0).end == start
    assert next_batch(start, LOG, limits, waited_s=10.0).end == LOG.latest
    # The trigger availableNow takes all available offsets.
    assert next_batch(start, LOG, limits, target=LOG.latest).end == LOG.latest


def test_available_now_reads_the_existing_records_in_limited_batches() -> None:
    target, log = {A0: 15, A1: 10}, LOG
    at, count = {A0: 9, A1: 0}, 0
    while at != target:
        at, count = next_batch(at, log, Limits(most=4), target=target).end, count + 1
        log = Log(log.earliest, {partition: offset + 5 for partition, offset in log.latest.items()})
    assert count == 4
    assert next_batch(at, log, Limits(most=4), target=target).end == at


@pytest.mark.parametrize(
    ("mean_bytes", "most_bytes", "offsets"),
    [
        ({A0: 100.0, A1: 100.0}, 1000, 10),
        ({A0: 100.0, A1: 300.0}, 2000, 10),
        ({A0: 100.0}, 1000, 10),  # no offset of A1 is known
        ({A0: 100.0, A1: 100.0}, 1, 1),
        ({A0: 100.0, A1: 100.0}, 1_000_000, 100),
        ({}, 1, 100),
    ],
)
def test_a_batch_is_limited_by_bytes(mean_bytes: dict[TopicPartition, float], most_bytes: int, offsets: int) -> None:
    log = Log({A0: 0, A1: 0}, {A0: 50, A1: 50}, mean_bytes=mean_bytes)
    batch = next_batch({A0: 0, A1: 0}, log, Limits(most_bytes=most_bytes))
    assert sum(sizes(batch.start, batch.end).values()) == offsets


def test_record_and_byte_limits_hold_together() -> None:
    log = Log({A0: 0}, {A0: 50}, mean_bytes={A0: 100.0})
    assert next_batch({A0: 0}, log, Limits(7, 1000)).end == {A0: 7}
    assert next_batch({A0: 0}, log, Limits(20, 1000)).end == {A0: 10}
