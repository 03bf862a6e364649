"""The producer state of a log survives deleted segments, a kill of the process, and damaged files (E16, S55).

These tests simulate a kill: they abandon the log without closing it, and reopen it with the earlier checkpoints.
"""

import dataclasses
import itertools
from random import Random

import pytest
from tests.support.compacted import COMPACTED, clean, put
from tests.support.crashing_disk import CrashingDisk, Killed
from tests.support.producers import ABORT, COMMIT, all_aborted, committed, mark, produce, producer_state
from tests.support.storage import NOW, SMALL, CountingDisk, append, fill, open_log

from oncelog_broker.log.producers.producers import MAX_PENDING_SNAPSHOTS
from oncelog_broker.log.producers.state import NOTHING_UNSTABLE
from oncelog_broker.runtime.clock import ManualClock
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.control import EndTransactionMarker

AGED = dataclasses.replace(SMALL, retention_ms=1000)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "orders-0"


def killed(log, **options):
    """Return the log after a kill and a start without any checkpoint."""
    log.abandon()
    return open_log(log.directory, log.config, **options)


def write_history(log) -> int:
    """Write an idempotent batch and an open transaction into the first segment. Returns the base offset of the second
    segment.
    """
    produce(log, 1, 0, 3)
    produce(log, 1, 3, 2)
    produce(log, 2, 0, 5, transactional=True)
    log.trimmer.roll()
    return log.log_end_offset


def assert_known(log):
    assert produce(log, 1, 3, 2) == 3, "a retry is answered with its offset"
    assert produce(log, 1, 0, 3) == 0
    with pytest.raises(KafkaError, match=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name):
        produce(log, 1, 9)
    produce(log, 2, 5, transactional=True)


class TestSegmentsThatGo:
    def test_e16_producer_state_survives_delete_records_and_a_kill(self, directory):
        log = open_log(directory)
        start = write_history(log)
        mark(log, 2, COMMIT)
        assert log.trimmer.delete_records_before(start) == start
        before = producer_state(log)
        log = killed(log, log_start_offset=start)
        assert producer_state(log) == before
        assert_known(log)
        log.close()

    def test_e16_segments_waiting_for_a_snapshot_are_deleted_by_the_next_flush(self, directory):
        log = open_log(directory)
        start = write_history(log)
        mark(log, 2, COMMIT)
        log.trimmer.delete_records_before(start)
        assert log.segment_base_offsets == [0, start], "the snapshot as of the second one is not on the disk"
        assert log.flusher.is_flush_due
        log.flusher.flush(start)
        assert log.segment_base_offsets == [start]
        assert not log.flusher.is_flush_due
        before = producer_state(log)
        log = killed(log)
        assert log.log_start_offset == start
        assert producer_state(log) == before
        assert_known(log)
        log.close()

    @pytest.mark.parametrize("flushed", [False, True])
    def test_e16_producer_state_survives_retention_of_all_segments_and_a_kill(self, directory, flushed):
        log = open_log(directory, AGED)
        write_history(log)
        mark(log, 2, ABORT)
        while log.trimmer.apply_retention(NOW + 10_000) and flushed:
            log.flusher.flush()
        before = producer_state(log)
        log = killed(log)
        assert producer_state(log) == before
        assert_known(log)
        log.close()

    def test_a_log_without_producers_deletes_segments_at_once(self, directory):
        log = open_log(directory)
        fill(log, 30)
        log.trimmer.delete_records_before(30)
        assert len(log.segment_base_offsets) == 1
        log.close()

    def test_a_snapshot_that_a_kill_took_is_taken_again(self, directory):
        """Without a new snapshot, an idle log could never delete a segment."""
        log = open_log(directory)
        start = write_history(log)
        log = killed(log)
        assert log.flusher.is_flush_due
        log.flusher.flush()
        log.trimmer.delete_records_before(start)
        assert log.segment_base_offsets == [start]
        log = killed(log)
        assert_known(log)
        log.close()

    def test_producer_state_survives_more_rolls_than_images_are_kept(self, directory):
        log = open_log(directory)
        write_history(log)
        for _ in range(MAX_PENDING_SNAPSHOTS + 3):
            append(log)
            log.trimmer.roll()
        log.trimmer.delete_records_before(log.log_end_offset)
        assert_known(killed(log))

    @pytest.mark.parametrize("rolls", [0, MAX_PENDING_SNAPSHOTS + 1])
    @pytest.mark.parametrize("cuts", [(1,), (2, 1)])
    def test_a_flush_writes_no_snapshot_of_records_truncated_during_it(self, directory, rolls, cuts):
        """The flush may wait for the disk for any length of time.

        If other records replaced the truncated ones before the next start, that start would use the producer state of
        the truncated records.
        """
        log = open_log(directory)
        produce(log, 1, 0)
        produce(log, 1, 1)
        log.trimmer.roll()
        pending = log.flusher.prepare_flush()
        for sequence in range(2, 2 + rolls):
            produce(log, 1, sequence)
            log.trimmer.roll()
        produce(log, 1, 2 + rolls)
        for offset in cuts:
            log.trimmer.truncate_to(offset)
        pending.sync()
        log.flusher.finish_flush(pending)
        produce(log, 2, 0)
        before = producer_state(log)
        log = killed(log)
        assert producer_state(log) == before
        assert produce(log, 1, 1) == 2
        log.close()

    def test_a_flush_writes_no_snapshot_into_the_log_that_comes_after(self, directory):
        """While the flush waits for the disk, a topic is deleted and re-created, or a failed log is reopened, in the
        same directory.
        """
        log = open_log(directory)
        produce(log, 1, 0, transactional=True)
        log.trimmer.roll()
        pending = log.flusher.prepare_flush()
        log.abandon()
        directory.rename(directory.with_name("deleted"))
        log = open_log(directory)
        pending.sync()
        produce(log, 2, 0)
        before = producer_state(log)
        log = killed(log)
        assert producer_state(log) == before
        log.close()

    def test_e16_v1_a_producer_of_whom_the_log_has_only_a_marker_continues(self, directory):
        """The producer's batches were deleted and the snapshots lost, so the log has only the marker of the producer's
        transaction.
        """
        log = open_log(directory)
        start = write_history(log)
        mark(log, 2, COMMIT)
        log.flusher.flush()
        log.trimmer.delete_records_before(start)
        log.abandon()
        for path in directory.glob("*.snapshot"):
            path.unlink()
        log = open_log(directory)
        offset = produce(log, 2, 5, 2, transactional=True)
        assert produce(log, 2, 5, 2, transactional=True) == offset
        log.close()


class TestDamage:
    @pytest.mark.parametrize("is_truncated", [False, True])
    def test_a_flipped_bit_turns_no_abort_into_a_commit(self, directory, is_truncated):
        log = open_log(directory)
        produce(log, 1, 0, transactional=True)
        mark(log, 1, ABORT)
        end, size = log.log_end_offset, log.size_bytes
        append(log)
        log.flusher.flush()
        (path,) = directory.glob("*.log")
        content = bytearray(path.read_bytes())
        length_and_key = b"\x08" + EndTransactionMarker(ABORT, 0).key()
        content[content.rindex(length_and_key, 0, size) + len(length_and_key) - 1] ^= ABORT ^ COMMIT
        with path.open("r+b") as file:
            file.write(content)
        if is_truncated:
            with pytest.raises(KafkaError, match="CRC of the marker at offset 1 is wrong"):
                log.trimmer.truncate_to(end)
            assert log.is_offline
            return
        log.close()
        for snapshot in directory.glob("*.snapshot"):
            snapshot.unlink()
        with pytest.raises(KafkaError, match="CRC of the marker at offset 1 is wrong") as raised:
            open_log(directory, clean_shutdown=True)
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    def test_a_damaged_transaction_index_does_not_cost_the_producers(self, directory):
        """The newest snapshot may be the only record of the producers, and no older snapshot exists from which to
        rebuild the index.
        """
        log = open_log(directory)
        start = write_history(log)
        mark(log, 2, ABORT)
        produce(log, 3, 0, transactional=True)
        mark(log, 3, ABORT)
        append(log)
        log.trimmer.roll()
        log.flusher.flush()
        log.trimmer.delete_records_before(start)
        assert log.segment_base_offsets[0] == start
        before = producer_state(log)
        log.abandon()
        (index,) = directory.glob("*.txnindex")
        index.write_bytes(b"damaged")
        (directory / f"{start:020d}.snapshot").write_bytes(b"damaged")
        log = open_log(directory)
        assert producer_state(log)[:2] == before[:2]
        assert [aborted[0] for aborted in all_aborted(log)] == [3], "of the other one no record is left"
        assert_known(log)
        log.close()

    def test_s56_a_transaction_whose_marker_was_compacted_away_is_not_open_by_an_old_snapshot(self, directory):
        config = dataclasses.replace(COMPACTED, delete_retention_ms=0)
        log = open_log(directory, config)
        put(log, (b"a", b"1"))
        put(log, (b"b", b"aborted"), producer=(7, 0, 0), transactional=True)
        log.trimmer.roll()
        put(log, (b"c", b"1"))
        mark(log, 7, ABORT)
        put(log, (b"d", b"1"), producer=(7, 0, 1))
        log.trimmer.roll()
        log.flusher.flush()
        end = log.log_end_offset
        for number in range(4):
            assert clean_each_alone(log, now_ms=NOW + number) == end
        log.state.cleaner_checkpoint = end
        newest = max(directory.glob("*.snapshot"))
        log.abandon()
        newest.write_bytes(b"damaged")
        log = open_log(directory, config, cleaner_checkpoint=end, recovery_point=end)
        log.producers.state.on_high_watermark(end)
        assert log.reader.last_stable_offset(end) == end
        assert committed(log) == [b"1", b"1", b"1"]
        log.close()

    def test_s56_a_transaction_is_open_whose_producer_had_one_before_with_a_marker_that_was_compacted_away(
        self, directory
    ):
        """An older snapshot, used in place of a damaged one, still shows the previous transaction as open."""
        config = dataclasses.replace(COMPACTED, delete_retention_ms=0)
        log = open_log(directory, config)
        put(log, (b"a", b"1"))
        put(log, (b"b", b"aborted"), producer=(7, 0, 0), transactional=True)
        log.trimmer.roll()
        put(log, (b"c", b"1"))
        mark(log, 7, ABORT)
        put(log, (b"d", b"1"), producer=(7, 0, 1))
        log.trimmer.roll()
        log.flusher.flush()
        decided = log.log_end_offset
        for number in range(4):
            assert clean_each_alone(log, now_ms=NOW + number) == decided
        append(log)
        begin = put(log, (b"e", b"1"), producer=(7, 0, 2), transactional=True)
        put(log, (b"f", b"1"), producer=(7, 0, 3), transactional=True)
        put(log, (b"g", b"1"), producer=(8, 0, 0), transactional=True)
        log.flusher.flush()
        end = log.log_end_offset
        log.abandon()
        max(directory.glob("*.snapshot")).write_bytes(b"damaged")
        log = open_log(directory, config, cleaner_checkpoint=decided, recovery_point=end)
        log.producers.state.on_high_watermark(end)
        assert log.reader.last_stable_offset(end) == begin
        mark(log, 7, COMMIT)
        log.producers.state.on_high_watermark(log.log_end_offset)
        assert log.reader.last_stable_offset(log.log_end_offset) == begin + 2
        log.close()

    def test_a_snapshot_removed_because_the_log_ends_before_it_stays_removed(self, directory):
        """If the snapshot remained, a start after a power cut would take the snapshot for the producer state after
        later appends.
        """
        log = open_log(directory)
        write_history(log)
        log.close()
        path = directory / f"{log.log_end_offset:020d}.snapshot"
        path.rename(directory / f"{log.log_end_offset + 5:020d}.snapshot")
        disk = SyncCountingDisk()
        log = open_log(directory, disk=disk)
        assert disk.synced == [str(directory)]
        log.close()


class TestPowerCuts:
    """A power cut loses all unsynced data, even if the previous process could still read it from the file."""

    def test_a_transaction_index_that_a_killed_process_wrote_is_synced_before_a_snapshot_says_so(self):
        disk = CrashingDisk(Random(1))
        log = open_log("/orders-0", disk=disk)
        produce(log, 1, 0, transactional=True)
        mark(log, 1, ABORT)
        disk.kill()
        log = open_log("/orders-0", disk=disk)
        log.trimmer.roll()
        log.flusher.flush()
        lose_unsynced(disk)
        assert all_aborted(open_log("/orders-0", disk=disk, recovery_point=2)) == [(1, 0, 1, 2)]

    def test_an_abandoned_flush_is_done_by_the_next_one(self):
        """A flush does not finish if its task is cancelled, or if another flush of the log finishes first."""
        disk = CrashingDisk(Random(1))
        log = open_log("/orders-0", disk=disk)
        produce(log, 1, 0, transactional=True)
        mark(log, 1, ABORT)
        log.trimmer.roll()
        assert log.flusher.prepare_flush() is not None
        log.flusher.flush()
        lose_unsynced(disk)
        assert all_aborted(open_log("/orders-0", disk=disk, recovery_point=2)) == [(1, 0, 1, 2)]

    def test_e16_producers_outlive_a_log_whose_records_were_all_deleted_or_lost(self):
        disk = CrashingDisk(Random(1))
        log = open_log("/orders-0", disk=disk)
        write_history(log)
        log.flusher.flush()
        append(log)
        before = producer_state(log)
        log.trimmer.delete_records_before(log.log_end_offset)
        lose_unsynced(disk)
        for _ in range(2):
            log = open_log("/orders-0", disk=disk, log_start_offset=log.log_end_offset)
            assert (log.log_start_offset, log.size_bytes) == (log.log_end_offset, 0)
            assert producer_state(log) == before
            lose_unsynced(disk)

    def test_e16_producers_outlive_a_kill_while_the_log_is_emptied_that_ends_below_its_start(self):
        """If the newest segments are already deleted, the older ones have an older producer state."""
        for changes in itertools.count():
            disk = CrashingDisk(Random(1))
            log = open_log("/orders-0", disk=disk)
            write_history(log)
            produce(log, 3, 0)
            log.trimmer.roll()
            produce(log, 4, 0)
            log.flusher.flush()
            append(log)
            start, before = log.log_end_offset, producer_state(log)
            lose_unsynced(disk)
            disk.changes_left = changes
            try:
                open_log("/orders-0", disk=disk, log_start_offset=start)
                break
            except Killed:
                disk.kill()
            log = open_log("/orders-0", disk=disk, log_start_offset=start)
            assert producer_state(log) == before
        assert changes > 3, "at each of its steps"


class LosingAll(Random):
    """A random source that makes each power cut lose as much as possible."""

    def choice(self, seq):
        return seq[0]

    def random(self):
        return 0.999


def lose_unsynced(disk: CrashingDisk) -> None:
    disk.random = LosingAll()
    disk.cut_power()


class SyncCountingDisk(CountingDisk):
    """Records which directories were synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def sync_directory(self, path: str) -> None:
        self.synced.append(path)
        super().sync_directory(path)


def clean_each_alone(log, *, now_ms):
    """Compact the segments without merging them, because each is larger than the segment size."""
    log.update_config(dataclasses.replace(log.config, segment_bytes=100))
    result = clean(log, now_ms=now_ms)
    log.update_config(dataclasses.replace(log.config, segment_bytes=COMPACTED.segment_bytes))
    return result


def test_a_log_is_compacted_where_the_producers_are_saved(directory):
    """After compaction removes a producer's last five batches, only the snapshot has them."""
    log = open_log(directory, COMPACTED, clock=ManualClock(NOW))
    put(log, (b"a", b"1"), producer=(1, 0, 0))
    log.trimmer.roll()
    assert log.producers.saved_up_to == 0
    log.flusher.flush()
    assert log.producers.saved_up_to == 1
    log.close()


class TestMarkersThatAreNotReplicated:
    """A restart keeps the last stable offset below each transaction whose marker is at or above the high watermark."""

    @pytest.fixture(params=["begun before the snapshot", "begun after the snapshot"])
    def stopped(self, request, directory):
        """A log after a clean shutdown: a transaction from offset 2 on, its marker at offset 5."""
        log = open_log(directory)
        produce(log, 1, 0, 2)
        if request.param == "begun after the snapshot":
            log.trimmer.roll()
        produce(log, 2, 0, 2, transactional=True)
        if request.param == "begun before the snapshot":
            log.trimmer.roll()
        produce(log, 2, 2, 1, transactional=True)
        mark(log, 2, COMMIT)
        log.close()
        return log

    @pytest.mark.parametrize("high_watermark", [0, 3, 5])
    def test_a_transaction_is_unstable_until_its_marker_is_replicated(self, stopped, high_watermark):
        log = open_log(stopped.directory, clean_shutdown=True, recovery_point=6, high_watermark=high_watermark)
        state = log.producer_state
        assert state.first_unstable_offset == 2
        state.on_high_watermark(5)
        assert state.first_unstable_offset == 2
        state.on_high_watermark(6)
        assert state.first_unstable_offset == NOTHING_UNSTABLE
        log.close()

    def test_a_replicated_marker_holds_nothing_back(self, stopped):
        log = open_log(stopped.directory, clean_shutdown=True, recovery_point=6, high_watermark=6)
        assert log.producer_state.first_unstable_offset == NOTHING_UNSTABLE
        log.close()

    def test_truncation_keeps_remaining_markers_unstable(self, directory):
        log = open_log(directory)
        produce(log, 2, 0, 2, transactional=True)
        mark(log, 2, COMMIT)
        log.trimmer.roll()
        produce(log, 1, 0, 3)
        log.flusher.flush()
        log.trimmer.truncate_to(4)
        assert log.producer_state.first_unstable_offset == 0
        log.producer_state.on_high_watermark(3)
        assert log.producer_state.first_unstable_offset == NOTHING_UNSTABLE
        log.close()
