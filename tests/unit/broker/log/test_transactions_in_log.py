"""Producers and transactions in a PartitionLog: appends and their results, index entries, and the state after a
restart.
"""

import dataclasses
import errno

import pytest
from tests.support.producers import (
    ABORT,
    COMMIT,
    all_aborted,
    committed,
    mark,
    produce,
    producer_state,
    sequenced,
)
from tests.support.storage import NOW, SMALL, FaultyDisk, append, fill, make_batch, open_log

from oncelog_broker.log.config import LOG_APPEND_TIME
from oncelog_broker.log.validation import AppendOrigin
from oncelog_broker.runtime.clock import ManualClock
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V2
from oncelog_protocol.records.batch import NO_SEQUENCE, RecordBatch
from oncelog_protocol.records.control import EndTransactionMarker, read_marker


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "orders-0"


@pytest.fixture
def log(directory):
    opened = open_log(directory)
    yield opened
    opened.close()


def raises(code):
    return pytest.raises(KafkaError, match=f"^{code.name}")


def txn(log, pid, sequence, count=1, **options):
    return produce(log, pid, sequence, count, transactional=True, **options)


def lso(log):
    return log.reader.last_stable_offset(log.log_end_offset)


class TestAppend:
    def test_s8_a_duplicate_is_answered_with_its_offset_and_appends_nothing(self, log):
        fill(log, 3)
        assert produce(log, 1, 0, 4) == 3
        append(log)
        size = log.size_bytes
        again = sequenced(1, 0, 4)
        assert log.append_as_leader(again, leader_epoch=0) == (3, -1)
        assert again == sequenced(1, 0, 4)
        assert (log.log_end_offset, log.size_bytes) == (8, size)

    def test_s8_a_duplicate_is_answered_with_its_log_append_time(self, directory):
        clock = ManualClock(NOW)
        log = open_log(directory, dataclasses.replace(SMALL, message_timestamp_type=LOG_APPEND_TIME), clock=clock)
        first = log.append_as_leader(sequenced(1, 0, transactional=True), leader_epoch=0)
        clock.advance_ms(500)
        assert log.append_as_leader(sequenced(1, 0, transactional=True), leader_epoch=0) == first == (0, NOW)
        log.close()

    def test_s59_a_bad_crc_is_found_before_a_duplicate(self, log):
        produce(log, 1, 0)
        damaged = sequenced(1, 0)
        damaged[-1] ^= 1
        with raises(ErrorCode.CORRUPT_MESSAGE):
            log.append_as_leader(damaged, leader_epoch=0)

    def test_e28_a_transactional_batch_has_a_producer(self, log):
        with raises(ErrorCode.INVALID_RECORD):
            append(log, transactional=True)

    @pytest.mark.parametrize(("epoch", "sequence"), [(0, -1), (-1, 0)])
    def test_a_producer_has_an_epoch_and_a_sequence(self, log, epoch, sequence):
        with raises(ErrorCode.INVALID_RECORD):
            append(log, producer_id=1, producer_epoch=epoch, base_sequence=sequence)

    def test_a_refused_batch_leaves_no_trace(self, log):
        produce(log, 1, 0)
        before = producer_state(log), log.log_end_offset, log.size_bytes
        with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            produce(log, 1, 5)
        assert (producer_state(log), log.log_end_offset, log.size_bytes) == before

    @pytest.mark.parametrize("transactional", [False, True])
    def test_e26_a_failed_write_leaves_the_producers_as_they_were(self, directory, transactional):
        disk = FaultyDisk()
        log = open_log(directory, disk=disk)
        txn(log, 1, 0)
        before = producer_state(log)
        disk.append_fault = errno.EIO
        with raises(ErrorCode.KAFKA_STORAGE_ERROR):
            produce(log, 1, 1, transactional=True)
        assert producer_state(log) == before
        with raises(ErrorCode.KAFKA_STORAGE_ERROR):
            produce(log, 2, 0, transactional=transactional)
        disk.append_fault = None
        log = open_log(directory, disk=disk)
        assert txn(log, 1, 0) == 0
        assert txn(log, 1, 1) == 1
        log.close()

    def test_e26_a_failed_write_of_the_index_takes_the_log_offline_and_reopening_mends_it(self, directory):
        disk = FaultyDisk()
        log = open_log(directory, disk=disk)
        txn(log, 1, 0)
        disk.suffix = ".txnindex"
        disk.append_fault = errno.EIO
        with raises(ErrorCode.KAFKA_STORAGE_ERROR):
            mark(log, 1, ABORT)
        assert log.is_offline
        disk.append_fault = None
        log = open_log(directory, disk=disk)
        assert all_aborted(log) == [(1, 0, 1, 2)]
        assert committed(log) == []
        log.close()


class TestMarkers:
    def test_s39_the_batch_is_kafkas(self, log):
        txn(log, 1, 0)
        offset = mark(log, 1, COMMIT, epoch=3, coordinator_epoch=9)
        batch = RecordBatch(log.reader.read(offset, 1000, upper_bound=2, min_one_batch=True))
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1, 3, NO_SEQUENCE)
        assert batch.is_control
        assert batch.is_transactional
        assert batch.crc_is_valid()
        assert read_marker(batch) == EndTransactionMarker(COMMIT, 9)

    def test_s39_s51_only_aborts_with_data_are_indexed(self, log):
        txn(log, 1, 0)
        mark(log, 1, COMMIT)
        mark(log, 1, ABORT)
        txn(log, 2, 0)
        mark(log, 2, ABORT)
        mark(log, 2, ABORT)
        assert all_aborted(log) == [(2, 3, 4, 5)]
        assert log.log_end_offset == 6

    def test_s40_a_fenced_coordinator_appends_nothing(self, log):
        txn(log, 1, 0)
        mark(log, 1, COMMIT, coordinator_epoch=2)
        end = log.log_end_offset
        with raises(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
            mark(log, 1, ABORT, coordinator_epoch=1)
        with raises(ErrorCode.INVALID_PRODUCER_EPOCH):
            mark(log, 1, ABORT, coordinator_epoch=2, version=TRANSACTIONS_V2)
        assert log.log_end_offset == end

    def test_clients_cannot_write_markers(self, log):
        control = make_batch(b"x", control=True, transactional=True, producer_id=1, producer_epoch=0)
        with raises(ErrorCode.INVALID_RECORD):
            log.append_as_leader(control, leader_epoch=0)

    def test_other_control_records_are_refused_from_coordinators_too(self, log):
        control = make_batch(b"x", key=b"\0\0\0\7", control=True, producer_id=1, producer_epoch=0)
        with raises(ErrorCode.INVALID_RECORD):
            log.append_as_leader(control, leader_epoch=0, origin=AppendOrigin.COORDINATOR)


class TestReadCommitted:
    def test_s50_readers_stop_at_the_oldest_open_transaction(self, log):
        append(log, b"plain")
        txn(log, 1, 0)
        txn(log, 2, 0)
        mark(log, 2, COMMIT)
        append(log, b"later")
        assert lso(log) == 1
        assert committed(log) == [b"plain"]
        mark(log, 1, COMMIT)
        log.producers.state.on_high_watermark(log.log_end_offset)
        assert lso(log) == log.log_end_offset
        assert committed(log) == [b"plain", b"1/0", b"2/0", b"later"]

    def test_s50_a_decision_counts_when_it_is_replicated(self, log):
        txn(log, 1, 0)
        mark(log, 1, COMMIT)
        assert log.reader.last_stable_offset(1) == 0
        log.producers.state.on_high_watermark(1)
        assert log.reader.last_stable_offset(1) == 0
        log.producers.state.on_high_watermark(2)
        assert log.reader.last_stable_offset(2) == 2

    def test_s50_the_last_stable_offset_is_not_below_the_log_start(self, log):
        txn(log, 1, 0)
        fill(log, 5)
        log.trimmer.delete_records_before(3)
        assert lso(log) == 3

    def test_s52_aborted_records_are_not_seen(self, log):
        txn(log, 1, 0, 2)
        txn(log, 2, 0, 2)
        mark(log, 1, ABORT)
        txn(log, 1, 2)
        mark(log, 2, COMMIT)
        mark(log, 1, COMMIT)
        log.producers.state.on_high_watermark(log.log_end_offset)
        assert committed(log) == [b"2/0", b"2/1", b"1/2"]
        assert committed(log, start=3) == [b"2/1", b"1/2"]

    def test_s52_an_aborted_transaction_over_many_segments_is_found(self, log):
        txn(log, 1, 0)
        txn(log, 2, 0)
        fill(log, 30)
        txn(log, 1, 1)
        fill(log, 30, start=30)
        mark(log, 1, ABORT)
        fill(log, 30, start=60)
        mark(log, 2, COMMIT)
        log.producers.state.on_high_watermark(log.log_end_offset)
        assert len(log.segment_base_offsets) > 4
        wanted = [b"2/0", *(b"%070d" % n for n in range(90))]
        assert committed(log) == wanted
        assert committed(log, max_bytes=10**6) == wanted

    def test_s52_only_aborted_transactions_of_the_read_range_are_listed(self, log):
        for n in range(4):
            txn(log, n, 0)
            mark(log, n, ABORT)
        upper = log.log_end_offset
        view, aborted = log.reader.read_committed(2, 160, upper_bound=upper, min_one_batch=True)
        assert RecordBatch(view).base_offset == 2
        assert [entry.producer_id for entry in aborted] == [1]
        assert log.reader.read_committed(upper, 100, upper_bound=upper, min_one_batch=True) == (b"", [])
        assert log.reader.read_committed(2, 100, upper_bound=2, min_one_batch=True) == (b"", [])
        with raises(ErrorCode.OFFSET_OUT_OF_RANGE):
            log.reader.read_committed(upper + 1, 100, upper_bound=upper, min_one_batch=True)

    def test_s53_a_log_that_holds_only_an_abort_marker(self, log):
        mark(log, 1, ABORT)
        log.producers.state.on_high_watermark(1)
        assert lso(log) == 1
        assert committed(log) == []


class TestRestart:
    def build(self, log):
        for n in range(30):
            txn(log, n % 3, n // 3)
            produce(log, 10 + n % 2, n // 2)
            if n % 7 == 6:
                mark(log, n % 3, ABORT if n % 2 else COMMIT, coordinator_epoch=n)
        mark(log, 2, ABORT, epoch=1, coordinator_epoch=40, version=TRANSACTIONS_V2)

    @pytest.mark.parametrize("flushed", [False, True])
    def test_s55_the_producer_state_survives_a_crash(self, directory, flushed):
        log = open_log(directory)
        self.build(log)
        if flushed:
            log.flusher.flush()
        state = producer_state(log)
        assert state[1]
        assert state[2]
        again = open_log(directory, recovery_point=log.recovery_point)
        assert producer_state(again) == state
        for reopened in (log, again):  # markers that a snapshot covers count as replicated
            reopened.producers.state.on_high_watermark(log.log_end_offset)
        assert lso(again) == lso(log) == state[1][0][0]
        again.close()

    def test_s55_a_start_after_a_clean_shutdown_replays_nothing(self, directory, monkeypatch):
        log = open_log(directory)
        self.build(log)
        state, end = producer_state(log), log.log_end_offset
        log.close()
        monkeypatch.setattr("oncelog_broker.log.producers.state.ProducerState.follow", None)
        again = open_log(directory, recovery_point=end, clean_shutdown=True)
        assert producer_state(again) == state
        again.close()

    def test_s51_a_lost_or_damaged_index_is_made_anew(self, directory):
        log = open_log(directory)
        self.build(log)
        state, end = producer_state(log), log.log_end_offset
        log.close()
        paths = sorted(directory.glob("*.txnindex"))
        assert len(paths) > 1
        paths[0].write_bytes(paths[0].read_bytes()[:-1])
        again = open_log(directory, recovery_point=end, clean_shutdown=True)
        assert producer_state(again) == state
        again.close()
        for path in paths:
            path.unlink()
        for path in directory.glob("*.snapshot"):
            path.unlink()
        again = open_log(directory, recovery_point=end, clean_shutdown=True)
        assert producer_state(again) == state
        again.close()

    def test_s51_entries_of_a_torn_tail_do_not_stay(self, directory):
        log = open_log(directory)
        txn(log, 1, 0)
        mark(log, 1, ABORT)
        log.close()
        path = directory / f"{0:020d}.log"
        path.write_bytes(path.read_bytes()[:-1])
        log = open_log(directory)
        assert (log.log_end_offset, lso(log)) == (1, 0)
        assert all_aborted(log) == []
        mark(log, 1, COMMIT)
        log.producers.state.on_high_watermark(2)
        assert committed(log) == [b"1/0"]
        log.close()

    def test_a_damaged_batch_in_an_old_segment_does_not_keep_the_log_from_opening(self, directory):
        log = open_log(directory)
        for n in range(60):
            produce(log, 1, n)
        log.close()
        for path in directory.glob("*.snapshot"):
            path.unlink()
        path = directory / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        data[16] = 9
        path.write_bytes(data)
        log = open_log(directory, recovery_point=60, clean_shutdown=True)
        assert produce(log, 1, 60) == 60
        log.close()


class TestFollower:
    def records(self, leader, start=0):
        parts, offset = [], start
        while view := leader.reader.read(offset, 1000, upper_bound=leader.log_end_offset, min_one_batch=True):
            parts.append(bytes(view))
            position = 0
            while position < len(view):
                batch = RecordBatch(view, position)
                position += batch.size
                offset = batch.next_offset
        return b"".join(parts)

    def test_e27_a_follower_has_the_producer_state_of_its_leader(self, log, tmp_path):
        TestRestart().build(log)
        follower = open_log(tmp_path / "follower")
        follower.append_as_follower(self.records(log))
        assert producer_state(follower) == producer_state(log)
        follower.close()

    def test_e27_a_follower_accepts_any_sequence(self, log):
        log.append_as_follower(sequenced(1, 100, partition_leader_epoch=0))
        log.append_as_follower(sequenced(1, 50, base_offset=1, partition_leader_epoch=0))
        assert log.producers.state.get(1).last_sequence == 50

    @pytest.mark.parametrize("flushed", [False, True])
    def test_a_truncation_takes_the_producer_state_back(self, directory, flushed):
        log = open_log(directory)
        states = {}
        for n in range(24):
            txn(log, n % 3, n // 3)
            states[log.log_end_offset] = producer_state(log)
            if n % 5 == 4:
                mark(log, n % 3, ABORT)
                states[log.log_end_offset] = producer_state(log)
        if flushed:
            log.flusher.flush()
        for end in sorted(states, reverse=True):
            log.trimmer.truncate_to(end)
            assert log.log_end_offset == end
            assert producer_state(log) == states[end]
        log.close()
        log = open_log(directory, recovery_point=1, clean_shutdown=True)
        assert producer_state(log) == states[1]
        log.close()

    def test_a_full_truncation_forgets_all_producers(self, directory):
        log = open_log(directory)
        TestRestart().build(log)
        log.flusher.flush()
        log.trimmer.truncate_fully_and_start_at(100)
        assert producer_state(log) == ([], [], [])
        assert produce(log, 1, 55) == 100
        log.close()
        assert {path.name[:20] for path in directory.glob("*.snapshot")} == {f"{101:020d}"}

    def test_a_snapshot_from_before_a_full_truncation_is_ignored_after_it(self, directory):
        log = open_log(directory)
        for n in range(8):
            produce(log, 1, n)
        log.close()
        log = open_log(directory, clean_shutdown=True, recovery_point=8)
        log.trimmer.truncate_fully_and_start_at(2)
        for n in range(10):
            produce(log, 2, n)
        state = producer_state(log)
        again = open_log(directory, recovery_point=2)
        assert producer_state(again) == state
        again.close()
