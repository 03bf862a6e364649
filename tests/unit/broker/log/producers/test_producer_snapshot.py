"""Producer snapshot files and window files have Kafka's format, and damaged files are handled."""

import os
import struct

import pytest
from crc32c import crc32c
from tests.support.producers import produce, producer_state, sequenced
from tests.support.storage import SMALL, open_log

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.producers.entry import ProducerStateEntry
from oncelog_broker.log.producers.snapshot import (
    PendingSnapshot,
    ProducerSnapshots,
    SnapshotCorrupt,
    format_snapshot,
    format_window,
    parse_entries,
    parse_snapshot,
)
from oncelog_broker.log.producers.state import ProducerState
from oncelog_broker.runtime.disk import RealDisk
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import HEADER


def entries(producers=3, batches=7):
    state = ProducerState(LogConfig())
    offset = 0
    for n in range(batches):
        for pid in range(1, producers + 1):
            header = list(HEADER.unpack_from(sequenced(pid, 2 * n, 2, epoch=pid, transactional=pid == 2)))
            header[0] = offset
            state.follow(tuple(header))
            offset += 2
    return state.image()


@pytest.fixture
def snapshots(tmp_path):
    return ProducerSnapshots(RealDisk(), str(tmp_path))


def write(directory, offset, image):
    PendingSnapshot(RealDisk(), str(directory), offset, image).write()


def offsets(directory):
    return sorted(int(path.name[:20]) for path in directory.glob("0*.snapshot"))


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_s55_the_bytes_are_kafkas():
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 3, 3, 13, 41, 1, 1_700_000_000_000, -1, -1)
    data = format_snapshot(entries()[2:])
    assert data == struct.pack(">hI", 1, crc32c(body)) + body
    assert parse_snapshot(data) == [ProducerStateEntry(3, 3, 13, 41, 1, 1_700_000_000_000, -1, -1)]


def test_s55_a_snapshot_keeps_five_batches_with_its_window_and_one_without():
    image = entries()
    snapshot = format_snapshot(image)
    assert parse_entries(snapshot, format_window(image, snapshot)) == image
    short = parse_entries(snapshot, None)
    assert [entry[:46] for entry in short] == [entry[:46] for entry in image]
    assert {len(entry) for entry in short} == {58}


def test_s55_every_flipped_bit_of_a_snapshot_is_found():
    data = format_snapshot(entries(2))
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            with pytest.raises(SnapshotCorrupt):
                parse_snapshot(bytes(damaged))


def test_s55_every_cut_snapshot_is_found():
    data = format_snapshot(entries(2))
    for size in range(len(data)):
        with pytest.raises(SnapshotCorrupt):
            parse_snapshot(data[:size])


def test_a_snapshot_with_a_damaged_window_is_used_without_it():
    image = entries(2)
    snapshot, other = format_snapshot(image), format_snapshot(entries(2, batches=6))
    window, short = format_window(image, snapshot), parse_entries(snapshot, None)
    for size in range(len(window)):
        assert parse_entries(snapshot, window[:size]) == short
    for at in range(len(window)):
        damaged = bytearray(window)
        damaged[at] ^= 0x10
        assert parse_entries(snapshot, bytes(damaged)) == short
    assert parse_entries(snapshot, format_window(image, other)) == short


def test_s55_the_newest_valid_snapshot_is_loaded_and_damaged_ones_are_deleted(snapshots, tmp_path):
    for offset, batches in ((10, 1), (20, 2), (30, 3), (40, 4)):
        write(tmp_path, offset, entries(2, batches))
    path = tmp_path / f"{30:020d}.snapshot"
    path.write_bytes(path.read_bytes()[:-1])
    assert snapshots.load_newest(names(tmp_path), 35) == (20, entries(2, 2))
    assert offsets(tmp_path) == [10, 20, 40]
    assert not (tmp_path / f"{30:020d}.window").exists()
    assert snapshots.load_newest(names(tmp_path), 9) is None


def test_s55_one_snapshot_per_segment_and_the_newest_are_kept(snapshots, tmp_path):
    for offset in (0, 10, 15, 20, 25, 30):
        write(tmp_path, offset, entries(1, 1))
    (tmp_path / f"{7:020d}.window").write_bytes(b"x")
    (tmp_path / "7.snapshot").write_bytes(b"not ours")
    snapshots.remove_all_but(names(tmp_path), [10, 20, 30])
    assert offsets(tmp_path) == [10, 20, 30]
    left = [f"{offset:020d}.{suffix}" for offset in (10, 20, 30) for suffix in ("snapshot", "window")]
    assert names(tmp_path) == [*left, "7.snapshot"]


def test_a_snapshot_that_was_cancelled_is_not_written(tmp_path):
    pending = PendingSnapshot(RealDisk(), str(tmp_path), 5, entries())
    pending.is_cancelled = True
    pending.write()
    assert names(tmp_path) == []


def test_a_snapshot_that_is_cancelled_while_it_is_written_does_not_stay(tmp_path):
    class Disk(RealDisk):
        def replace_file(self, path, data, **options):
            super().replace_file(path, data, **options)
            pending.is_cancelled = True

    pending = PendingSnapshot(Disk(), str(tmp_path), 5, entries())
    pending.write()
    assert names(tmp_path) == []


class TestInALog:
    @pytest.fixture
    def directory(self, tmp_path):
        return tmp_path / "orders-0"

    def test_s55_a_snapshot_is_taken_at_each_roll_and_at_the_close(self, directory):
        log = open_log(directory)
        for n in range(80):
            produce(log, n % 3, n // 3)
        bases = log.segment_base_offsets
        assert len(bases) > 2
        log.flusher.flush()
        assert offsets(directory) == bases[1:]
        log.close()
        assert offsets(directory) == [*bases[1:], 80]

    def test_a_close_without_changes_writes_no_snapshot(self, directory):
        log = open_log(directory)
        produce(log, 1, 0)
        log.close()
        path = directory / f"{1:020d}.snapshot"
        before = path.stat().st_ino
        open_log(directory, clean_shutdown=True, recovery_point=1).close()
        assert path.stat().st_ino == before

    def test_s55_e15_the_whole_window_survives_a_clean_restart(self, directory):
        log = open_log(directory)
        offsets = [produce(log, 1, 2 * n, 2) for n in range(6)]
        log.close()
        log = open_log(directory, clean_shutdown=True, recovery_point=12)
        assert [produce(log, 1, 2 * n, 2) for n in range(1, 6)] == offsets[1:]
        with pytest.raises(KafkaError, match=ErrorCode.DUPLICATE_SEQUENCE_NUMBER.name):
            produce(log, 1, 0, 2)
        log.close()

    def test_s55_kafkas_own_snapshot_is_enough(self, directory):
        """Apache Kafka used the log directory in between, so oncelog's window file is missing or does not match Kafka's
        snapshot.
        """
        log = open_log(directory)
        offsets = [produce(log, 1, n) for n in range(6)]
        log.close()
        next(directory.glob("*.window")).unlink()
        log = open_log(directory, clean_shutdown=True, recovery_point=6)
        assert produce(log, 1, 5) == offsets[5]
        with pytest.raises(KafkaError, match=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name):
            produce(log, 1, 4)
        assert produce(log, 1, 6) == 6
        log.close()

    @pytest.mark.parametrize("clean", [True, False])
    def test_s55_with_all_snapshots_damaged_the_log_is_replayed(self, directory, clean):
        log = open_log(directory)
        for n in range(60):
            produce(log, n % 3, n // 3, transactional=n % 3 == 2)
        state = producer_state(log)
        log.close()
        for path in directory.glob("*.snapshot"):
            path.write_bytes(path.read_bytes()[:-3])
        log = open_log(directory, clean_shutdown=clean, recovery_point=60 if clean else 0)
        assert producer_state(log) == state
        log.close()

    def test_snapshots_are_deleted_with_their_segments(self, directory):
        log = open_log(directory)
        for n in range(60):
            produce(log, 1, n)
        log.flusher.flush()
        log.trimmer.delete_records_before(40)
        for path in log.trimmer.take_deleted(10.0**9):
            os.unlink(path)
        left = {int(path.name[:20]) for path in directory.glob("*.snapshot")}
        assert left == set(log.segment_base_offsets)
        assert {int(path.name[:20]) for path in directory.glob("*.window")} == left
        log.close()

    def test_e16_state_survives_its_records(self, directory):
        log = open_log(directory)
        for n in range(30):
            produce(log, 1, n)
        log.trimmer.delete_records_before(30)
        log.trimmer.apply_retention(10**15)
        assert produce(log, 1, 29) == 29
        log.close()
        log = open_log(directory, clean_shutdown=True, recovery_point=30, log_start_offset=30)
        assert produce(log, 1, 29) == 29
        assert produce(log, 1, 30) == 30
        log.close()

    def test_e16_after_its_state_has_expired_a_producer_continues(self, directory):
        log = open_log(directory)
        produce(log, 1, 0, 5)
        assert list(log.producers.state.expire(10**15, 1)) == [1]
        assert produce(log, 1, 5) == 5
        log.close()

    def test_a_snapshot_beyond_the_end_of_the_log_is_ignored(self, directory):
        log = open_log(directory, SMALL)
        for n in range(5):
            produce(log, 1, n)
        log.close()
        path = directory / f"{0:020d}.log"
        path.write_bytes(path.read_bytes()[:-1])
        log = open_log(directory, SMALL)
        assert log.log_end_offset == 4
        assert produce(log, 1, 3) == 3
        assert produce(log, 1, 4) == 4
        log.close()
