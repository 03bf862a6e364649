import dataclasses

import pytest

from oncelog_broker.log.compaction.due import (
    CleanableRange,
    GroupLimits,
    SegmentSummary,
    cleanable_range,
    dirtiest,
    first_dirty_offset,
    group_segments,
)
from oncelog_broker.log.config import COMPACT, LogConfig

NOW = 1_000_000
CONFIG = LogConfig(cleanup_policy=frozenset({COMPACT}))


def segments(*sizes: int, **facts) -> list[SegmentSummary]:
    """Return segments of ten offsets each; the age of each segment is its position."""
    return [SegmentSummary(n * 10, n * 10 + 10, size, n, n, **facts) for n, size in enumerate(sizes)]


def range_of(closed, config=CONFIG, *, first_dirty=0, upper_bound=10_000) -> CleanableRange:
    return cleanable_range(closed, config, first_dirty=first_dirty, upper_bound=upper_bound, now_ms=NOW)


@pytest.mark.parametrize(("checkpoint", "expected"), [(None, 5), (3, 5), (5, 5), (50, 50), (100, 100), (101, 5)])
def test_a_checkpoint_outside_the_log_is_none(checkpoint, expected):
    assert first_dirty_offset(checkpoint, 5, 100) == expected


def test_clean_and_dirty_bytes_are_those_of_whole_segments():
    found = range_of(segments(100, 20, 30), first_dirty=10)
    assert (found.clean_bytes, found.dirty_bytes, found.end) == (100, 50, 30)
    assert found.dirty_ratio == pytest.approx(1 / 3)
    assert range_of(segments(100, 20, 30), first_dirty=15).dirty_bytes == 50, "a segment half clean is dirty"


@pytest.mark.parametrize(("upper_bound", "end"), [(30, 30), (29, 20), (20, 20), (19, 10), (5, 0), (0, 0)])
def test_no_segment_that_reaches_the_last_stable_offset_is_cleaned(upper_bound, end):
    found = range_of(segments(1, 1, 1), upper_bound=upper_bound)
    assert (found.end, found.dirty_bytes) == (end, end // 10)


def test_min_compaction_lag_holds_back_young_records_and_all_later_ones():
    closed = [s._replace(largest_timestamp_ms=at) for s, at in zip(segments(1, 1, 1), (5, NOW - 99, 5), strict=True)]
    assert range_of(closed, dataclasses.replace(CONFIG, min_compaction_lag_ms=100)).end == 10
    assert range_of(closed, dataclasses.replace(CONFIG, min_compaction_lag_ms=99)).end == 30


@pytest.mark.parametrize(("dirty", "due"), [(49, False), (50, False), (51, True)])
def test_a_log_above_the_dirty_ratio_is_due(dirty, due):
    assert range_of(segments(100 - dirty, dirty), first_dirty=10).is_due(CONFIG) is due


def test_a_log_without_dirty_bytes_is_never_due():
    eager = dataclasses.replace(CONFIG, min_cleanable_dirty_ratio=0.0, max_compaction_lag_ms=1)
    assert not range_of(segments(5), eager, first_dirty=10).is_due(eager)
    assert not range_of([], eager).is_due(eager)


@pytest.mark.parametrize(("lag", "due"), [(NOW - 1, False), (NOW - 2, True)])
def test_max_compaction_lag_makes_a_log_due_whatever_its_ratio(lag, due):
    config = dataclasses.replace(CONFIG, max_compaction_lag_ms=lag, min_cleanable_dirty_ratio=1.0)
    assert range_of(segments(100, 1, 1), config, first_dirty=10).is_due(config) is due


def test_records_without_timestamps_are_never_overdue():
    config = dataclasses.replace(CONFIG, max_compaction_lag_ms=1)
    closed = [segment._replace(first_timestamp_ms=-1) for segment in segments(1)]
    assert not range_of(closed, config).is_overdue


def test_the_dirtiest_due_log_is_chosen():
    def log(name, clean, dirty, *, overdue=False):
        return name, CleanableRange(0, 10, clean, dirty, overdue), CONFIG

    assert dirtiest([]) is None
    assert dirtiest([log("a", 60, 40), log("b", 0, 0)]) is None
    assert dirtiest([log("a", 40, 60), log("b", 10, 90), log("c", 30, 70)]) == "b"
    assert dirtiest([log("a", 99, 1, overdue=True)]) == "a"


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([100], [1]),
        ([50, 50, 1], [2, 1]),
        ([300, 10, 10], [1, 2]),
        ([0] * 7, [4, 3]),
        ([60, 60, 60], [1, 1, 1]),
    ],
)
def test_groups_are_no_larger_than_a_segment(sizes, groups):
    assert group_segments(segments(*sizes), GroupLimits(max_bytes=100, max_segments=4)) == groups


def test_offsets_in_a_group_fit_an_index_entry():
    far = [
        SegmentSummary(0, 10, 1, 0, 0),
        SegmentSummary(10, 2**31, 1, 0, 0),
        SegmentSummary(2**31, 2**31 + 1, 1, 0, 0),
    ]
    assert group_segments(far, GroupLimits(max_bytes=100, max_segments=4)) == [2, 1]
