"""PartitionLog appends, reads, rolls segments, looks up offsets by time, and deletes by retention."""

import dataclasses
import random
import struct

import pytest
from tests.support.storage import (
    NOW,
    SMALL,
    CountingDisk,
    append,
    contents,
    fill,
    log_files,
    make_batch,
    open_log,
)

from oncelog_broker.log.config import LOG_APPEND_TIME, LogConfig
from oncelog_broker.log.validation import AppendOrigin
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk
from oncelog_broker.runtime.steps import run_steps
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import RecordBatch, batches
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import read_records


@pytest.fixture
def clock():
    return ManualClock(NOW)


@pytest.fixture
def log(tmp_path, clock):
    opened = open_log(tmp_path / "orders-0", clock=clock)
    yield opened
    opened.close()


def read(log, offset, max_bytes=10_000, upper_bound=None, min_one_batch=True):
    bound = log.log_end_offset if upper_bound is None else upper_bound
    view = log.reader.read(offset, max_bytes, upper_bound=bound, min_one_batch=min_one_batch)
    return [(batch.base_offset, batch.last_offset) for batch in batches(bytes(view))]


def raises(code):
    return pytest.raises(KafkaError, match=f"^{code.name}")


class TestAppend:
    def test_offsets_and_epoch_are_written_into_the_batch(self, log):
        assert log.append_as_leader(make_batch(b"a", b"b"), leader_epoch=3) == (0, -1)
        assert log.append_as_leader(make_batch(b"c"), leader_epoch=4) == (2, -1)
        view = log.reader.read(0, 10_000, upper_bound=3, min_one_batch=True)
        found = list(batches(view))
        assert [(b.base_offset, b.partition_leader_epoch, b.crc_is_valid()) for b in found] == [
            (0, 3, True),
            (2, 4, True),
        ]
        assert contents(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
        assert log.latest_epoch == 4

    def test_records_are_patched_in_place(self, log):
        fill(log, 5)
        batch = make_batch(b"a")
        log.append_as_leader(memoryview(batch), leader_epoch=7)
        assert RecordBatch(batch).base_offset == 5
        assert RecordBatch(batch).partition_leader_epoch == 7

    def test_an_append_is_one_write(self, tmp_path):
        disk = CountingDisk()
        log = open_log(tmp_path / "orders-0", disk=disk)
        fill(log, 9)
        assert disk.writes == 9
        log.close()

    def test_log_append_time_is_stamped_with_a_new_crc(self, tmp_path, clock):
        config = dataclasses.replace(SMALL, message_timestamp_type=LOG_APPEND_TIME)
        log = open_log(tmp_path / "orders-0", config, clock=clock)
        clock.advance_ms(5)
        assert log.append_as_leader(make_batch(b"a", b"b", timestamp=12), leader_epoch=0) == (0, NOW + 5)
        batch = RecordBatch(log.reader.read(0, 1000, upper_bound=2, min_one_batch=True))
        assert batch.is_log_append_time
        assert batch.crc_is_valid()
        assert [record.timestamp for record in read_records(batch)] == [NOW + 5, NOW + 5]
        log.close()

    def test_a_coordinator_may_append_several_batches(self, log):
        fill(log, 1)
        records = make_batch(b"a", b"b") + make_batch(b"c")
        assert log.append_as_leader(records, leader_epoch=2, origin=AppendOrigin.COORDINATOR) == (1, -1)
        assert read(log, 0) == [(0, 0), (1, 2), (3, 3)]
        assert log.leader_epochs.entries[-1] == (2, 1)
        with raises(ErrorCode.INVALID_RECORD):
            log.append_as_leader(
                make_batch() + make_batch(producer_id=1, producer_epoch=0),
                leader_epoch=2,
                origin=AppendOrigin.COORDINATOR,
            )

    def test_several_batches_of_a_coordinator_take_the_append_time(self, tmp_path):
        config = dataclasses.replace(SMALL, message_timestamp_type=LOG_APPEND_TIME)
        log = open_log(tmp_path / "orders-0", config)
        records = make_batch(b"a") + make_batch(b"b")
        assert log.append_as_leader(records, leader_epoch=0, origin=AppendOrigin.COORDINATOR) == (0, NOW)
        found = list(batches(log.reader.read(0, 1000, upper_bound=2, min_one_batch=True)))
        assert [(b.crc_is_valid(), b.max_timestamp) for b in found] == [(True, NOW), (True, NOW)]
        log.close()

    def test_a_follower_keeps_offsets_gaps_and_epochs(self, log):
        log.append_as_follower(
            make_batch(b"a", base_offset=0, partition_leader_epoch=1)
            + make_batch(b"b", base_offset=5, partition_leader_epoch=1)
            + make_batch(b"c", base_offset=6, partition_leader_epoch=4)
        )
        assert log.log_end_offset == 7
        assert read(log, 1) == [(5, 5), (6, 6)]
        assert log.leader_epochs.entries == ((1, 0), (4, 6))

    def test_a_follower_spreads_a_large_fetch_over_segments(self, log, tmp_path):
        records = bytearray()
        for offset in range(60):
            records += make_batch(b"%070d" % offset, base_offset=offset, partition_leader_epoch=0)
        log.append_as_follower(records)
        assert len(log_files(tmp_path / "orders-0")) > 3
        assert contents(log) == [(n, b"%070d" % n) for n in range(60)]

    def test_a_follower_refuses_a_batch_out_of_order_or_damaged(self, log):
        fill(log, 3)
        with raises(ErrorCode.OFFSET_OUT_OF_RANGE):
            log.append_as_follower(make_batch(b"a", base_offset=2))
        damaged = make_batch(b"a", base_offset=3)
        damaged[-1] ^= 1
        with raises(ErrorCode.CORRUPT_MESSAGE):
            log.append_as_follower(damaged)
        with raises(ErrorCode.CORRUPT_MESSAGE):
            log.append_as_follower(make_batch(b"a", base_offset=3)[:-1])
        assert log.log_end_offset == 3


class TestRead:
    def test_an_offset_inside_a_batch_gives_the_whole_batch(self, log):
        append(log, b"a", b"b", b"c")
        append(log, b"d", b"e")
        assert read(log, 1) == [(0, 2), (3, 4)]
        assert read(log, 4) == [(3, 4)]

    def test_every_offset_of_many_segments_is_readable(self, log):
        for number in range(50):
            append(log, *[b"%040d" % number] * (number % 3 + 1))
        assert len(log.segment_base_offsets) > 3
        for offset in range(log.log_end_offset):
            first, last = read(log, offset, max_bytes=1)[0]
            assert first <= offset <= last

    def test_a_read_is_bounded_by_max_bytes(self, log):
        sizes = [len(make_batch(b"v" * n)) for n in (10, 20, 30)]
        for n in (10, 20, 30):
            append(log, b"v" * n)
        assert read(log, 0, sum(sizes[:2]), min_one_batch=False) == [(0, 0), (1, 1)]
        assert read(log, 0, sum(sizes[:2]) - 1, min_one_batch=False) == [(0, 0)]
        assert read(log, 0, sum(sizes), min_one_batch=False) == [(0, 0), (1, 1), (2, 2)]
        assert read(log, 0, sizes[0] - 1, min_one_batch=False) == []
        for max_bytes in (0, 1, 60, 61, sizes[0] - 1):
            assert read(log, 0, max_bytes, min_one_batch=True) == [(0, 0)]
            assert read(log, 0, max_bytes, min_one_batch=False) == []

    def test_no_batch_reaches_the_upper_bound(self, log):
        for _ in range(12):
            append(log, b"a" * 40, b"b", b"c")
        for bound in range(log.log_end_offset + 1):
            found = read(log, 0, upper_bound=bound)
            assert len(found) == bound // 3
            assert all(last < bound for _, last in found)
        assert read(log, 4, upper_bound=5) == []
        assert read(log, 4, upper_bound=4) == []

    def test_a_read_respects_max_bytes_and_upper_bound_together(self, tmp_path):
        log = open_log(tmp_path / "orders-0", dataclasses.replace(SMALL, segment_bytes=100_000))
        fill(log, 100)
        size = len(make_batch(b"0" * 70))
        for start in (0, 1, 17, 50, 98):
            for count in (1, 2, 9, 40, 99):
                for bound in (start + 1, start + 3, start + 30, 100):
                    for extra in (0, 1, size - 1):
                        expected = [(n, n) for n in range(start, min(start + count, bound, 100))]
                        assert read(log, start, count * size + extra, bound, min_one_batch=False) == expected
        log.close()

    def test_a_read_at_the_end_is_empty_and_beyond_it_refused(self, log):
        assert read(log, 0) == []
        fill(log, 2)
        assert read(log, 2) == []
        for offset in (-1, 3):
            with raises(ErrorCode.OFFSET_OUT_OF_RANGE):
                read(log, offset)

    def test_a_reader_that_follows_the_end_needs_no_search(self, tmp_path):
        disk = CountingDisk()
        log = open_log(tmp_path / "orders-0", dataclasses.replace(SMALL, segment_bytes=100_000), disk=disk)
        fill(log, 50)
        assert read(log, 0, 100_000)[-1] == (49, 49)
        fill(log, 1)
        disk.bytes_read = 0
        assert read(log, 50) == [(50, 50)]
        assert disk.bytes_read == len(make_batch(b"0" * 70))
        log.close()

    def test_a_sequential_reader_with_small_fetches_needs_no_search(self, tmp_path):
        disk = CountingDisk()
        log = open_log(tmp_path / "orders-0", dataclasses.replace(SMALL, segment_bytes=100_000), disk=disk)
        fill(log, 50)
        read(log, 0, 400)
        places = dict(log.local._reader._positions)
        assert set(places) == {2}
        read(log, 2, 400)
        assert set(log.local._reader._positions) == {2, 4}
        log.close()

    def test_remembered_positions_are_bounded(self, log):
        fill(log, 100)
        for offset in range(100):
            read(log, offset, 1)
        assert len(log.local._reader._positions) <= 32

    def test_gaps_of_compaction_are_skipped(self, log):
        for base in (0, 10, 20):
            log.append_as_follower(make_batch(b"a", b"b", base_offset=base, partition_leader_epoch=0))
        assert read(log, 5, 1) == [(10, 11)]
        assert read(log, 2, 1) == [(10, 11)]

    def test_reads_larger_than_a_small_read_are_whole_batches_too(self, tmp_path):
        log = open_log(tmp_path / "orders-0", LogConfig())
        for _ in range(5):
            append(log, b"x" * 60_000)
        assert read(log, 0, 200_000) == [(0, 0), (1, 1), (2, 2)]
        assert read(log, 0, 1_000_000) == [(n, n) for n in range(5)]
        log.close()

    def test_damage_is_reported_not_served_as_the_end(self, log, tmp_path):
        fill(log, 8)
        log.flusher.flush()
        path = tmp_path / "orders-0" / log_files(tmp_path / "orders-0")[0]
        size = len(make_batch(b"0" * 70))
        with path.open("r+b") as file:
            file.seek(2 * size)
            file.write(bytes(61))
        assert read(log, 0, 2 * size) == [(0, 0), (1, 1)]
        with raises(ErrorCode.CORRUPT_MESSAGE):
            read(log, 2, size)
        assert not log.is_offline


class TestRoll:
    def test_by_size(self, log, tmp_path):
        size = len(make_batch(b"0" * 70))
        fill(log, 2000 // size + 1)
        assert log_files(tmp_path / "orders-0") == [f"{0:020d}.log", f"{2000 // size:020d}.log"]

    def test_a_segment_is_rolled_by_message_time(self, tmp_path):
        log = open_log(tmp_path / "orders-0", dataclasses.replace(SMALL, segment_ms=1000))
        append(log, timestamp=NOW)
        append(log, timestamp=NOW + 1000)
        assert log.segment_base_offsets == [0]
        append(log, timestamp=NOW + 1001)
        assert log.segment_base_offsets == [0, 2]
        log.close()

    def test_a_segment_is_rolled_when_its_index_is_full(self, tmp_path):
        config = dataclasses.replace(SMALL, index_interval_bytes=0, segment_index_bytes=40, segment_bytes=100_000)
        log = open_log(tmp_path / "orders-0", config)
        for number in range(20):
            append(log, timestamp=NOW + number)
        assert len(log.segment_base_offsets) > 3
        assert len(contents(log)) == 20
        log.close()

    def test_a_segment_is_rolled_by_its_offset_range(self, tmp_path):
        log = open_log(tmp_path / "orders-0")
        log.append_as_follower(make_batch(b"a", base_offset=0))
        log.append_as_follower(make_batch(b"b", base_offset=2**31 - 1))
        log.append_as_follower(make_batch(b"c", base_offset=2**31))
        assert log.segment_base_offsets == [0, 2**31]
        assert contents(log) == [(0, b"a"), (2**31 - 1, b"b"), (2**31, b"c")]
        log.close()

    def test_a_closed_segment_has_its_indexes_on_disk(self, log, tmp_path):
        for number in range(8):
            append(log, b"%070d" % number, timestamp=NOW + number)
        log.trimmer.roll()
        directory = tmp_path / "orders-0"
        index = (directory / f"{0:020d}.index").read_bytes()
        entries = list(struct.iter_unpack(">ii", index))
        size = len(make_batch(b"0" * 70))
        assert entries == [(2, 2 * size), (4, 4 * size), (6, 6 * size)]
        times = list(struct.iter_unpack(">qi", (directory / f"{0:020d}.timeindex").read_bytes()))
        assert times == [(NOW + 2, 2), (NOW + 4, 4), (NOW + 6, 6), (NOW + 7, 7)]

    def test_changed_settings_take_effect_at_the_next_roll(self, log):
        log.update_config(dataclasses.replace(SMALL, segment_bytes=300, max_message_bytes=200))
        fill(log, 6)
        assert len(log.segment_base_offsets) == 3
        with raises(ErrorCode.MESSAGE_TOO_LARGE):
            append(log, b"x" * 200)


class TestTimestamps:
    def test_a_timestamp_lookup_finds_the_exact_record_inside_a_batch(self, log):
        append(log, b"a", b"b", b"c", timestamps=[NOW, NOW + 10, NOW + 20])
        append(log, b"d", timestamp=NOW + 5)
        append(log, b"e", timestamp=NOW + 30, epoch=2)
        find = lambda ts: run_steps(log.reader.offset_for_timestamp(ts, upper_bound=5))  # noqa: E731
        assert find(0) == (0, NOW, 0)
        assert find(NOW + 1) == (1, NOW + 10, 0)
        assert find(NOW + 20) == (2, NOW + 20, 0)
        assert find(NOW + 21) == (4, NOW + 30, 2)
        assert find(NOW + 31) is None

    @pytest.mark.parametrize("compression", list(Compression))
    def test_a_timestamp_lookup_finds_a_record_inside_a_compressed_batch(self, log, compression):
        append(log, b"a" * 50, b"b", b"c", timestamps=[NOW, NOW + 10, NOW + 20], compression=compression)
        assert run_steps(log.reader.offset_for_timestamp(NOW + 5, upper_bound=3)) == (1, NOW + 10, 0)

    def test_a_timestamp_lookup_works_across_segments(self, log):
        for number in range(60):
            append(log, b"%070d" % number, timestamp=NOW + 10 * number)
        assert len(log.segment_base_offsets) > 3
        for ts in range(-5, 600, 5):
            expected = None if ts > 590 else max(0, -(-ts // 10))
            found = run_steps(log.reader.offset_for_timestamp(NOW + ts, upper_bound=60))
            assert (found and found.offset) == expected

    def test_a_timestamp_lookup_works_with_log_append_time(self, tmp_path, clock):
        config = dataclasses.replace(SMALL, message_timestamp_type=LOG_APPEND_TIME)
        log = open_log(tmp_path / "orders-0", config, clock=clock)
        for _ in range(30):
            append(log, b"a" * 40, b"b", timestamp=1)
            clock.advance_ms(10)
        assert run_steps(log.reader.offset_for_timestamp(NOW + 11, upper_bound=60)) == (4, NOW + 20, 0)
        assert run_steps(log.reader.max_timestamp_offset()) == (58, NOW + 290, 0)
        log.close()

    def test_a_timestamp_lookup_respects_the_upper_bound_and_the_log_start(self, log):
        for number in range(30):
            append(log, b"%070d" % number, timestamp=NOW + number)
        assert run_steps(log.reader.offset_for_timestamp(NOW + 20, upper_bound=20)) is None
        assert run_steps(log.reader.offset_for_timestamp(NOW + 20, upper_bound=21)) == (20, NOW + 20, 0)
        log.trimmer.delete_records_before(15)
        assert run_steps(log.reader.offset_for_timestamp(0, upper_bound=30)) == (15, NOW + 15, 0)

    def test_the_largest_timestamp_is_found_at_its_first_record(self, log):
        for ts in (NOW, NOW + 50, NOW + 20, NOW + 50, NOW):
            append(log, b"a", timestamp=ts)
        log.trimmer.roll()
        assert run_steps(log.reader.max_timestamp_offset()) == (1, NOW + 50, 0)

    def test_the_largest_timestamp_below_the_upper_bound_is_found(self, log):
        """The search ignores records that DeleteRecords removed, and records above the last stable offset."""
        for ts in (60, 50, 10, 30, 20, 40, 70):
            append(log, b"a", timestamp=NOW + ts)
        assert run_steps(log.reader.max_timestamp_offset()) == (6, NOW + 70, 0)
        assert run_steps(log.reader.max_timestamp_offset(upper_bound=6)) == (0, NOW + 60, 0)
        log.trimmer.delete_records_before(1)
        assert run_steps(log.reader.max_timestamp_offset(upper_bound=6)) == (1, NOW + 50, 0)
        log.trimmer.delete_records_before(2)
        assert run_steps(log.reader.max_timestamp_offset(upper_bound=6)) == (5, NOW + 40, 0)
        assert run_steps(log.reader.max_timestamp_offset(upper_bound=5)) == (3, NOW + 30, 0)
        log.trimmer.delete_records_before(7)
        assert run_steps(log.reader.max_timestamp_offset()) is None

    def test_the_largest_timestamp_in_the_rest_of_a_batch_is_found(self, log):
        append(log, b"a", b"b", b"c", timestamps=(NOW + 9, NOW + 3, NOW + 5))
        log.trimmer.delete_records_before(1)
        assert run_steps(log.reader.max_timestamp_offset()) == (2, NOW + 5, 0)

    @pytest.mark.parametrize("seed", range(4))
    def test_the_largest_timestamp_in_every_range_is_found(self, tmp_path, seed):
        rng = random.Random(seed)
        times = [NOW + rng.randrange(40) for _ in range(60)]
        log = open_log(tmp_path / "orders-0")
        for ts in times:
            append(log, b"%070d" % ts, timestamp=ts)
        assert len(log.segment_base_offsets) > 3
        for start in range(0, 60, 3):
            log.trimmer.delete_records_before(start)
            for end in range(start + 1, 61):
                expected = min(range(start, end), key=lambda n: (-times[n], n))
                assert run_steps(log.reader.max_timestamp_offset(upper_bound=end)) == (expected, times[expected], 0)
        log.close()

    def test_records_without_timestamps_are_not_found(self, log):
        assert run_steps(log.reader.max_timestamp_offset()) is None
        append(log, b"a", timestamp=-1)
        log.trimmer.roll()
        assert run_steps(log.reader.max_timestamp_offset()) is None
        assert run_steps(log.reader.offset_for_timestamp(0, upper_bound=1)) is None


class TestLettingGo:
    def test_retention_by_time_deletes_segments(self, tmp_path, clock):
        log = open_log(tmp_path / "orders-0", dataclasses.replace(SMALL, retention_ms=1000), clock=clock)
        for number in range(30):
            append(log, b"%070d" % number, timestamp=NOW + number * 100)
        bases = log.segment_base_offsets
        gone = log.trimmer.apply_retention(NOW + bases[1] * 100 + 950)
        assert gone == bases[:1]
        assert log.log_start_offset == bases[1]
        assert contents(log)[0][0] == bases[1]
        with raises(ErrorCode.OFFSET_OUT_OF_RANGE):
            read(log, 0)
        log.close()

    def test_retention_by_time_deletes_the_active_segment_too(self, tmp_path, clock):
        log = open_log(tmp_path / "orders-0", dataclasses.replace(SMALL, retention_ms=1000), clock=clock)
        fill(log, 30)
        log.trimmer.apply_retention(NOW + 100_000)
        assert log.segment_base_offsets == [30]
        assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (30, 30, 0)
        assert log.trimmer.apply_retention(NOW + 200_000) == []
        fill(log, 1)
        assert contents(log)[0][0] == 30
        log.close()

    def test_by_size(self, tmp_path):
        log = open_log(tmp_path / "orders-0", dataclasses.replace(SMALL, retention_bytes=4000))
        fill(log, 60)
        log.trimmer.apply_retention(NOW)
        assert 4000 <= log.size_bytes < 6000
        assert log.log_start_offset == log.segment_base_offsets[0]
        log.close()

    def test_retention_stops_at_the_high_watermark(self, tmp_path):
        log = open_log(tmp_path / "orders-0", dataclasses.replace(SMALL, retention_bytes=0))
        fill(log, 30)
        bases = log.segment_base_offsets
        assert log.trimmer.apply_retention(NOW, upper_bound=bases[1]) == bases[:1]
        log.close()

    def test_files_are_freed_after_the_delay(self, log, tmp_path, clock):
        fill(log, 30)
        directory = tmp_path / "orders-0"
        (directory / f"{0:020d}.txnindex").write_bytes(b"")
        (directory / f"{0:020d}.snapshot").write_bytes(b"")
        log.trimmer.delete_records_before(log.segment_base_offsets[1])
        gone = [path.name for path in directory.iterdir() if path.name.startswith(f"{0:020d}.")]
        assert sorted(gone) == [f"{0:020d}.{s}.deleted" for s in ("index", "log", "snapshot", "timeindex", "txnindex")]
        assert log.trimmer.take_deleted(59.999) == []
        due = log.trimmer.take_deleted(60.0)
        assert sorted(due) == sorted(str(directory / name) for name in gone)
        assert log.trimmer.take_deleted(60.0) == []

    def test_delete_records_moves_the_log_start(self, log):
        fill(log, 30)
        assert log.trimmer.delete_records_before(7) == 7
        assert contents(log)[0][0] == 7
        assert log.trimmer.delete_records_before(3) == 7
        with raises(ErrorCode.OFFSET_OUT_OF_RANGE):
            log.trimmer.delete_records_before(31)
        assert log.trimmer.delete_records_before(30) == 30
        assert len(log.segment_base_offsets) == 1
        assert contents(log) == []

    def test_the_log_start_moves_the_first_epoch(self, log):
        fill(log, 5, epoch=1)
        fill(log, 5, epoch=2)
        log.trimmer.delete_records_before(3)
        assert log.leader_epochs.entries == ((1, 3), (2, 5))


class TestTruncate:
    @pytest.mark.parametrize("offset", range(31))
    def test_a_log_is_truncated_to_any_offset(self, log, offset):
        fill(log, 30)
        log.trimmer.truncate_to(offset)
        assert log.log_end_offset == offset
        fill(log, 2, start=offset)
        assert contents(log) == [(n, b"%070d" % n) for n in range(offset + 2)]

    def test_a_truncation_inside_a_batch_removes_the_whole_batch(self, log):
        append(log, b"a", b"b")
        append(log, b"c", b"d")
        log.trimmer.truncate_to(3)
        assert log.log_end_offset == 2
        assert contents(log) == [(0, b"a"), (1, b"b")]

    def test_epochs_and_recovery_point_follow_a_truncation(self, log):
        fill(log, 10, epoch=1)
        fill(log, 10, epoch=5)
        log.flusher.flush()
        seen = []
        log.trimmer.before_truncation = lambda _: seen.append((log.recovery_point, log.log_end_offset))
        log.trimmer.truncate_to(8)
        assert seen == [(8, 20)]
        assert log.recovery_point == 8
        assert log.leader_epochs.entries == ((1, 0),)

    def test_a_full_truncation_empties_the_log(self, log):
        fill(log, 30)
        log.flusher.flush()
        log.trimmer.truncate_fully_and_start_at(100)
        assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (100, 100, 100)
        assert log.leader_epochs.entries == ()
        fill(log, 1)
        assert contents(log)[0][0] == 100

    def test_a_truncation_below_the_log_start_is_a_full_one(self, log):
        fill(log, 30)
        log.trimmer.delete_records_before(20)
        log.trimmer.truncate_to(5)
        assert (log.log_start_offset, log.log_end_offset) == (5, 5)

    def test_segment_names_synced_before_a_truncation_prove_no_later_start(self, log):
        fill(log, 40)
        log.trimmer.delete_records_before(30)
        log.flusher.flush()
        log.flusher.flush()
        assert log.state.durable_start_offset > 5
        log.trimmer.truncate_fully_and_start_at(5)
        fill(log, 30)
        log.trimmer.delete_records_before(20)
        assert log.state.durable_start_offset == 5

    def test_timestamps_of_truncated_records_are_forgotten(self, log):
        append(log, b"a", timestamp=NOW)
        append(log, b"b", timestamp=NOW + 100)
        log.trimmer.truncate_to(1)
        append(log, b"c", timestamp=NOW + 5)
        assert run_steps(log.reader.max_timestamp_offset()) == (1, NOW + 5, 0)


class TestFlush:
    def test_a_flush_moves_the_recovery_point(self, log):
        fill(log, 30)
        assert log.recovery_point == 0
        log.flusher.flush(10)
        assert log.recovery_point == 10
        log.flusher.flush()
        assert log.recovery_point == 30
        assert log.flusher.prepare_flush() is None

    def test_a_flush_in_three_steps_allows_appends_in_between(self, log):
        fill(log, 20)
        pending = log.flusher.prepare_flush()
        fill(log, 20)
        pending.sync()
        log.flusher.finish_flush(pending)
        assert log.recovery_point == 20

    def test_a_truncation_during_a_flush_voids_the_flush(self, log):
        fill(log, 20)
        pending = log.flusher.prepare_flush()
        log.trimmer.truncate_to(5)
        fill(log, 15)
        pending.sync()
        log.flusher.finish_flush(pending)
        assert log.recovery_point <= 5

    def test_a_flush_that_ends_during_a_truncation_is_void(self, tmp_path, log):
        """If the flush moved the recovery point above the log end, that would look like damage, and records covered by
        a snapshot would be lost.
        """
        fill(log, 30)
        pending = log.flusher.prepare_flush()
        pending.sync()
        log.flusher.flush(10)
        log.trimmer.delete_records_before(4)
        bases = log.segment_base_offsets
        log.trimmer.before_truncation = lambda _: log.flusher.finish_flush(pending)
        log.state.is_truncating = True
        log.trimmer.truncate_to(8)
        log.state.is_truncating = False
        assert (log.recovery_point, log.segment_base_offsets) == (8, bases[:1])
        fill(log, 5, start=8)
        kept = contents(log)
        log.abandon()
        log = open_log(tmp_path / "orders-0", recovery_point=log.recovery_point, log_start_offset=4)
        assert contents(log) == kept

    def test_no_flush_begins_during_a_truncation(self, tmp_path):
        class WhileSynced(RealDisk):
            """A disk that begins a flush when a directory is synced: at that moment the end is truncated on disk, but
            the log object does not know it yet.
            """

            def sync_directory(self, path):
                super().sync_directory(path)
                if log.state.is_truncating:
                    begun.append(log.flusher.prepare_flush())

        begun = []
        log = open_log(tmp_path / "orders-0", disk=WhileSynced())
        fill(log, 30)
        log.state.is_truncating = True
        log.trimmer.truncate_to(8)
        log.state.is_truncating = False
        assert begun
        for pending in filter(None, begun):
            pending.sync()
            log.flusher.finish_flush(pending)
        assert log.recovery_point <= log.log_end_offset
        log.state.is_truncating = True
        log.close()
        assert not log.is_cleanly_closed

    def test_a_deletion_during_a_flush_is_harmless(self, log):
        fill(log, 40)
        pending = log.flusher.prepare_flush()
        log.trimmer.roll()
        pending.sync()
        log.flusher.finish_flush(pending)
        assert log.recovery_point == 40


def test_closing_and_opening_again_keeps_everything(tmp_path, clock):
    log = open_log(tmp_path / "orders-0", clock=clock)
    for number in range(40):
        append(log, b"%070d" % number, timestamp=NOW + number, epoch=number // 10)
    log.trimmer.delete_records_before(3)
    newest = run_steps(log.reader.max_timestamp_offset())
    before = contents(log), log.segment_base_offsets, log.leader_epochs.entries, newest
    log.close()
    with raises(ErrorCode.KAFKA_STORAGE_ERROR):
        fill(log, 1)
    disk = CountingDisk()
    log = open_log(
        tmp_path / "orders-0", clock=clock, clean_shutdown=True, log_start_offset=3, high_watermark=40, disk=disk
    )
    assert disk.bytes_read < 1500, "a clean start reads the tail behind the last index entry, and the indexes"
    newest = run_steps(log.reader.max_timestamp_offset())
    after = contents(log), log.segment_base_offsets, log.leader_epochs.entries, newest
    assert after == before
    assert log.recovery_point == 40
    fill(log, 1)
    assert log.log_end_offset == 41
    log.close()
