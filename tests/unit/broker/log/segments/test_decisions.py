"""Tests the pure functions that decide about rolling and retention, and the index classes without a log."""

import pytest

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.segments.index import IndexCorrupt
from oncelog_broker.log.segments.offset_index import OffsetIndex
from oncelog_broker.log.segments.retention import SegmentFacts, deletable_segments
from oncelog_broker.log.segments.roll import RollParams, RollReason, roll_reason
from oncelog_broker.log.segments.time_index import TimeIndex
from oncelog_broker.runtime.disk import RealDisk

PARAMS = RollParams(max_size=1000, max_age_ms=60, max_offset_entries=10, max_time_entries=5, max_offset=500)


@pytest.mark.parametrize(
    ("size", "offsets", "times", "age", "batch", "last", "reason"),
    [
        (0, 0, 0, 0, 5000, 0, None),
        (900, 0, 0, 0, 100, 0, None),
        (900, 0, 0, 0, 101, 0, RollReason.SIZE),
        (900, 0, 0, 60, 1, 0, None),
        (900, 0, 0, 61, 1, 0, RollReason.TIME),
        (0, 0, 0, 61, 1, 0, None),
        (900, 9, 4, 0, 1, 0, None),
        (900, 10, 0, 0, 1, 0, RollReason.INDEX_FULL),
        (900, 0, 5, 0, 1, 0, RollReason.INDEX_FULL),
        (900, 0, 0, 0, 1, 500, None),
        (900, 0, 0, 0, 1, 501, RollReason.OFFSET_RANGE),
    ],
)
def test_a_segment_is_rolled_at_its_limits(size, offsets, times, age, batch, last, reason):
    found = roll_reason(
        PARAMS,
        segment_size=size,
        offset_entries=offsets,
        time_entries=times,
        age_ms=age,
        batch_size=batch,
        last_offset=last,
    )
    assert found is reason


def test_the_roll_parameters_follow_the_settings():
    params = RollParams.of(LogConfig(segment_index_bytes=120), 100, "orders-0")
    assert (params.max_offset_entries, params.max_time_entries) == (15, 9)
    assert params.max_offset == 100 + 2**31 - 1
    jittered = [
        RollParams.of(LogConfig(segment_ms=1000, segment_jitter_ms=100), base, "orders-0").max_age_ms
        for base in range(50)
    ]
    assert all(900 < age <= 1000 for age in jittered)
    assert len(set(jittered)) > 10


SEGMENTS = [SegmentFacts(0, 10, 100, 1000), SegmentFacts(10, 20, 100, 3000), SegmentFacts(20, 30, 50, 2000)]


@pytest.mark.parametrize(
    ("config", "now_ms", "log_start", "upper_bound", "count"),
    [
        ({"retention_ms": 500}, 1500, 0, 30, 0),
        ({"retention_ms": 500}, 1501, 0, 30, 1),
        ({"retention_ms": 500}, 3400, 0, 30, 1),
        ({"retention_ms": 500}, 9999, 0, 30, 3),
        ({"retention_ms": 500}, 9999, 0, 29, 2),
        ({"retention_ms": 500}, 9999, 0, 9, 0),
        ({"retention_ms": -1}, 10**12, 0, 30, 0),
        ({"retention_ms": -1, "retention_bytes": 150}, 0, 0, 30, 1),
        ({"retention_ms": -1, "retention_bytes": 151}, 0, 0, 30, 0),
        ({"retention_ms": -1, "retention_bytes": 50}, 0, 0, 30, 2),
        ({"retention_ms": -1, "retention_bytes": 0}, 0, 0, 30, 3),
        ({"retention_ms": -1}, 0, 10, 30, 1),
        ({"retention_ms": -1}, 0, 19, 30, 1),
        ({"retention_ms": 1, "cleanup_policy": frozenset({"compact"})}, 9999, 0, 30, 0),
        ({"retention_ms": 1, "cleanup_policy": frozenset({"compact"})}, 9999, 20, 30, 2),
    ],
)
def test_retention_selects_old_segments(config, now_ms, log_start, upper_bound, count):
    found = deletable_segments(
        SEGMENTS, LogConfig(**config), now_ms=now_ms, log_start_offset=log_start, upper_bound=upper_bound
    )
    assert found == count


def test_an_empty_last_segment_stays():
    segments = [*SEGMENTS[:2], SegmentFacts(20, 20, 0, 0)]
    config = LogConfig(retention_ms=1)
    assert deletable_segments(segments, config, now_ms=9999, log_start_offset=0, upper_bound=30) == 2


class TestOffsetIndex:
    @pytest.fixture
    def index(self, tmp_path):
        made = OffsetIndex(RealDisk(), str(tmp_path / "x.index"), 1000)
        made.reset()
        for offset, position in [(1004, 300), (1010, 700), (1011, 1100)]:
            made.append(offset, position)
        return made

    @pytest.mark.parametrize("sealed", [False, True])
    def test_an_index_is_looked_up(self, index, sealed):
        if sealed:
            index.seal()
        assert [index.lookup(o).position for o in (1000, 1003, 1004, 1009, 1010, 1011, 9999)] == [
            0,
            0,
            300,
            300,
            700,
            1100,
            1100,
        ]
        assert [index.lookup_position(p).offset for p in (0, 299, 300, 1100, 9999)] == [1000, 1000, 1004, 1011, 1011]
        assert index.last() == (1011, 1100)
        assert len(index) == 3

    @pytest.mark.parametrize(("offset", "left"), [(1004, 0), (1005, 1), (1010, 1), (1011, 2), (1012, 3)])
    def test_an_offset_index_is_truncated(self, index, offset, left):
        index.persist()
        index.truncate_to(offset)
        index.seal()
        assert len(index) == left

    def test_only_new_index_entries_are_written(self, index, tmp_path):
        path = tmp_path / "x.index"
        index.persist()
        first = path.read_bytes()
        index.append(1020, 1500)
        index.persist()
        assert path.read_bytes()[: len(first)] == first
        assert len(path.read_bytes()) == len(first) + 8

    def test_an_index_is_checked_for_sane_entries(self, index):
        index.check(1101)
        with pytest.raises(IndexCorrupt):
            index.check(1100)
        index.append(1011, 2000)
        with pytest.raises(IndexCorrupt):
            index.check(9999)

    def test_missing_and_cut_index_files_are_corrupt(self, tmp_path):
        index = OffsetIndex(RealDisk(), str(tmp_path / "y.index"), 0)
        with pytest.raises(IndexCorrupt, match="missing"):
            index.lookup(5)
        (tmp_path / "y.index").write_bytes(bytes(9))
        with pytest.raises(IndexCorrupt, match="multiple"):
            index.activate()


class TestTimeIndex:
    @pytest.fixture
    def index(self, tmp_path):
        made = TimeIndex(RealDisk(), str(tmp_path / "x.timeindex"), 1000)
        made.reset()
        for timestamp, offset in [(50, 1004), (60, 1010), (60, 1011), (40, 1012), (70, 1013)]:
            made.append(timestamp, offset)
        return made

    def test_only_larger_timestamps_become_entries(self, index):
        assert len(index) == 3
        assert index.last() == (70, 1013)
        index.check(0)

    def test_an_index_is_looked_up(self, index):
        index.seal()
        assert [index.lookup(t).offset for t in (0, 49, 50, 59, 60, 69, 70, 99)] == [
            1000,
            1000,
            1004,
            1004,
            1010,
            1010,
            1013,
            1013,
        ]

    def test_after_truncation_smaller_timestamps_count_again(self, index):
        index.truncate_to(1013)
        index.append(65, 1013)
        assert index.last() == (65, 1013)

    def test_after_activation_the_last_timestamp_is_known(self, index):
        index.seal()
        index.activate()
        index.append(70, 1020)
        assert len(index) == 3

    def test_an_index_is_checked_for_sane_entries(self, index, tmp_path):
        index.seal()
        data = (tmp_path / "x.timeindex").read_bytes()
        (tmp_path / "x.timeindex").write_bytes(data[12:] + data[:12])
        fresh = TimeIndex(RealDisk(), str(tmp_path / "x.timeindex"), 1000)
        with pytest.raises(IndexCorrupt, match="after"):
            fresh.check(0)
