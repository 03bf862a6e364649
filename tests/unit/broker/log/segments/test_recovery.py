"""A log opens after a crash, after damage or failed writes, and in directories that Kafka left."""

import dataclasses
import errno
import os
import shutil
import struct
import subprocess
import sys

import pytest
from tests.support.descriptors import no_descriptors_left
from tests.support.storage import (
    NOW,
    SMALL,
    CountingDisk,
    FaultyDisk,
    append,
    contents,
    fill,
    locations,
    log_files,
    make_batch,
    open_log,
)

from oncelog_broker.log.producers.ended_transaction import EndedTransaction
from oncelog_broker.log.producers.transaction_index import format_aborted
from oncelog_broker.log.segments.batch_scan import HEADER_WINDOW
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.open_files import OPEN_FILES
from oncelog_broker.runtime.steps import run_steps
from oncelog_protocol.errors import ErrorCode, KafkaError

LONG = dataclasses.replace(SMALL, segment_bytes=1_000_000)


def name(base, suffix="log"):
    return f"{base:020d}.{suffix}"


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "orders-0"


def crashed(directory, count, *, flushed=0, config=SMALL):
    """Write the files of a log with `count` batches whose process was killed; the first `flushed` ones were flushed."""
    log = open_log(directory, config)
    for number in range(count):
        if number == flushed and flushed:
            log.flusher.flush()
        append(log, b"%070d" % number, timestamp=NOW + number, epoch=number // 10)
    return log


def expected(count):
    return [(n, b"%070d" % n) for n in range(count)]


class TestTornTail:
    def test_a_cut_at_any_byte_of_the_last_three_batches_is_recovered(self, directory, tmp_path):
        crashed(directory, 6, flushed=3, config=LONG)
        path = directory / name(0)
        whole = path.read_bytes()
        ends = [batch.start + batch.size for batch in locations(path)]
        for size in range(ends[2], ends[5] + 1):
            copy = tmp_path / "copy"
            shutil.copytree(directory, copy)
            (copy / name(0)).write_bytes(whole[:size])
            log = open_log(copy, LONG, recovery_point=3)
            left = sum(1 for end in ends if end <= size)
            assert log.log_end_offset == left
            assert (copy / name(0)).stat().st_size == ends[left - 1]
            assert contents(log) == expected(left)
            append(log, b"next")
            assert contents(log) == [*expected(left), (left, b"next")]
            log.close()
            shutil.rmtree(copy)

    @pytest.mark.parametrize("zeros", [1, 60, 61, 4096, 300_000])
    def test_a_tail_of_zeros_is_cut(self, directory, zeros):
        crashed(directory, 10, flushed=5)
        with (directory / log_files(directory)[-1]).open("ab") as file:
            file.write(bytes(zeros))
        log = open_log(directory, recovery_point=5)
        assert contents(log) == expected(10)
        assert log.size_bytes == 10 * len(make_batch(b"0" * 70))
        log.close()

    def test_zeros_at_the_end_of_the_last_batches_are_cut(self, directory):
        crashed(directory, 10, flushed=5, config=LONG)
        path = directory / name(0)
        data = path.read_bytes()
        path.write_bytes(data[:-400] + bytes(400))
        log = open_log(directory, LONG, recovery_point=5)
        assert contents(log) == expected(7)
        log.close()

    def test_segments_behind_the_cut_are_put_aside(self, directory, caplog):
        crashed(directory, 50, flushed=15)
        bases = [int(file[:20]) for file in log_files(directory)]
        assert len(bases) == 4
        path = directory / name(bases[1])
        path.write_bytes(path.read_bytes()[:-1])
        log = open_log(directory, recovery_point=15)
        assert log.log_end_offset == bases[2] - 1
        assert contents(log) == expected(bases[2] - 1)
        assert sorted(p.name for p in directory.glob("*.discarded")) == [name(b, "log.discarded") for b in bases[2:]]
        assert not (directory / name(bases[2], "index")).exists()
        assert "bytes" in caplog.text
        fill(log, 30, start=log.log_end_offset)
        assert contents(log) == expected(bases[2] - 1 + 30)
        log.close()

    @pytest.mark.parametrize("compacted_up_to", [None, 0, 15, 16])
    def test_segments_behind_a_lost_tail_are_put_aside_unless_compaction_made_the_hole(
        self, directory, compacted_up_to
    ):
        """A power cut may remove the end of a segment between two batches and leave the next segment intact."""
        crashed(directory, 50, flushed=15)
        bases = [int(file[:20]) for file in log_files(directory)]
        path = directory / name(bases[1])
        lost = locations(path)[-2]
        path.write_bytes(path.read_bytes()[: lost.start])
        log = open_log(directory, recovery_point=15, cleaner_checkpoint=compacted_up_to)
        if compacted_up_to == 16:
            assert log.log_end_offset == 50
        else:
            assert log.log_end_offset == lost.base_offset
            assert contents(log) == expected(lost.base_offset)
            assert [p.name for p in directory.glob("*.discarded")] == [name(b, "log.discarded") for b in bases[2:]]
            append(log, b"next")
            assert contents(log)[-1] == (lost.base_offset, b"next")
        log.close()

    def test_a_tail_lost_at_a_batch_boundary_is_recovered(self, directory):
        crashed(directory, 8, flushed=4, config=LONG)
        path = directory / name(0)
        path.write_bytes(path.read_bytes()[: 6 * len(make_batch(b"0" * 70))])
        log = open_log(directory, LONG, recovery_point=4)
        assert contents(log) == expected(6)
        log.close()

    def test_leader_epochs_of_lost_records_are_forgotten(self, directory):
        crashed(directory, 25, flushed=5, config=LONG)
        path = directory / name(0)
        path.write_bytes(path.read_bytes()[: 15 * len(make_batch(b"0" * 70)) + 3])
        log = open_log(directory, LONG, recovery_point=5)
        assert log.leader_epochs.entries == ((0, 0), (1, 10))
        log.close()


class TestBitFlips:
    def test_a_bit_flip_above_the_recovery_point_truncates_the_log_there(self, directory, tmp_path):
        crashed(directory, 6, flushed=3, config=LONG)
        path = directory / name(0)
        whole = path.read_bytes()
        size = len(whole) // 6
        for at in range(3 * size, 6 * size, 7):
            if at % size in range(12, 16):
                continue  # the CRC does not cover the leader epoch
            copy = tmp_path / "copy"
            shutil.copytree(directory, copy)
            flipped = bytearray(whole)
            flipped[at] ^= 1 << (at % 8)
            (copy / name(0)).write_bytes(flipped)
            log = open_log(copy, LONG, recovery_point=3)
            left = at // size
            # The CRC does not cover the base offset either, and a larger base offset looks like a compaction gap.
            if at % size >= 8:
                assert contents(log) == expected(left)
            else:
                assert contents(log)[:left] == expected(left)
            log.close()
            shutil.rmtree(copy)

    def test_a_bit_flip_below_the_recovery_point_leaves_the_log_offline_and_untouched(self, directory):
        crashed(directory, 8, flushed=8, config=dataclasses.replace(LONG, index_interval_bytes=10**6)).flusher.flush()
        path = directory / name(0)
        data = bytearray(path.read_bytes())
        data[3 * len(data) // 8 + 70] ^= 1
        path.write_bytes(data)
        before = sorted(p.name for p in directory.iterdir())
        with pytest.raises(KafkaError, match=r"CRC.*below the recovery point 8") as caught:
            open_log(directory, LONG, recovery_point=8)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert path.read_bytes() == data
        assert sorted(p.name for p in directory.iterdir()) == before

    @pytest.mark.parametrize("cut", [1, 150, 400])
    def test_records_missing_below_the_recovery_point_take_the_log_offline(self, directory, cut):
        crashed(directory, 8, flushed=4, config=LONG).flusher.flush()
        path = directory / name(0)
        path.write_bytes(path.read_bytes()[:-cut])
        with pytest.raises(KafkaError, match="recovery point 8"):
            open_log(directory, LONG, recovery_point=8)

    @pytest.mark.parametrize("clean", [True, False])
    def test_a_log_without_any_segment_below_the_recovery_point_stays_offline(self, directory, clean):
        crashed(directory, 8, config=LONG).close()
        (directory / name(0)).unlink()
        with pytest.raises(KafkaError, match=r"ends at offset 0.*recovery point 8"):
            open_log(directory, LONG, recovery_point=8, clean_shutdown=clean)
        assert not (directory / name(0)).exists()

    def test_a_log_whose_records_were_all_deleted_may_lack_its_segments(self, directory):
        log = open_log(directory, LONG, recovery_point=8, log_start_offset=8)
        assert (log.log_start_offset, log.log_end_offset) == (8, 8)

    def test_damage_after_a_clean_shutdown_is_found_if_it_is_at_the_end(self, directory):
        log = crashed(directory, 8, config=LONG)
        log.close()
        path = directory / name(0)
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(KafkaError, match="below the recovery point 8"):
            open_log(directory, LONG, recovery_point=8, clean_shutdown=True)


class TestIndexes:
    def test_indexes_lost_in_a_crash_are_rebuilt(self, directory):
        crashed(directory, 40, flushed=30)
        for path in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
            path.unlink()
        log = open_log(directory, recovery_point=30)
        assert contents(log) == expected(40)
        assert run_steps(log.reader.offset_for_timestamp(NOW + 17, upper_bound=40)) == (17, NOW + 17, 1)
        log.close()
        assert len(list(directory.glob("*.index"))) == len(log_files(directory))

    def test_indexes_lost_after_a_clean_shutdown_are_rebuilt(self, directory):
        crashed(directory, 40).close()
        for path in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
            path.unlink()
        log = open_log(directory, recovery_point=40, clean_shutdown=True)
        assert contents(log) == expected(40)
        assert run_steps(log.reader.max_timestamp_offset()) == (39, NOW + 39, 3)
        log.close()

    @pytest.mark.parametrize("suffix", ["index", "timeindex"])
    @pytest.mark.parametrize("clean", [True, False])
    def test_a_garbage_index_is_rebuilt_or_detected_when_used(self, directory, suffix, clean):
        crashed(directory, 40).close()
        originals = {path: path.read_bytes() for path in directory.glob(f"*.{suffix}")}
        for junk in (b"\x00\x00\x00\x05\x7f\xff\xff\xff\x00\x00\x00\x00" * 2, b"x", b"\xff" * 24, b""):
            for path in originals:
                path.write_bytes(junk)
            log = open_log(directory, recovery_point=40, clean_shutdown=clean)
            assert contents(log, max_bytes=1) == expected(40)
            for offset in range(40):
                assert log.reader.read(offset, 1, upper_bound=40, min_one_batch=True)
            log.close()

    def test_a_flipped_bit_of_an_offset_index_is_harmless(self, directory):
        crashed(directory, 14).close()
        path = directory / name(0, "index")
        good = path.read_bytes()
        for bit in range(len(good) * 8):
            flipped = bytearray(good)
            flipped[bit // 8] ^= 1 << (bit % 8)
            path.write_bytes(flipped)
            log = open_log(directory, recovery_point=14, clean_shutdown=True)
            found = [log.reader.read(n, 1, upper_bound=14, min_one_batch=True)[:8].hex() for n in range(14)]
            assert found == [f"{n:016x}" for n in range(14)]
            log.close()

    def test_preallocated_zeros_are_no_entries(self, directory):
        """Kafka leaves preallocated zeros in the indexes of an open data directory when it is killed."""
        crashed(directory, 40, flushed=39).flusher.flush()
        for path in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
            path.write_bytes(path.read_bytes() + bytes(10200 if path.suffix == ".timeindex" else 10240))
        for clean in (True, False):
            log = open_log(directory, recovery_point=39, clean_shutdown=clean)
            assert contents(log) == expected(40)
            assert run_steps(log.reader.offset_for_timestamp(NOW + 25, upper_bound=40)) == (25, NOW + 25, 2)
            append(log, b"%070d" % 40)
            log.trimmer.truncate_to(40)
            log.close()
        entries = (directory / log_files(directory)[-1]).with_suffix(".index").read_bytes()
        assert entries[-8:] != bytes(8)


class TestHowMuchIsRead:
    def test_recovery_reads_only_the_tail_behind_the_recovery_point(self, directory):
        log = open_log(directory, LONG)
        for number in range(30):
            if number == 28:
                log.flusher.flush()
            append(log, b"%030000d" % number)
        disk = CountingDisk()
        log = open_log(directory, LONG, recovery_point=28, disk=disk)
        assert log.log_end_offset == 30
        # Before the recovery point, only batch headers are read; they must be read because the producer state depends
        # on them.
        assert disk.bytes_read < 30 * HEADER_WINDOW + 5 * 30_000 < log.size_bytes / 2
        log.close()

    def test_recovery_reads_only_segments_from_the_recovery_point_on(self, directory):
        crashed(directory, 300, flushed=290)
        disk = CountingDisk()
        log = open_log(directory, recovery_point=290, high_watermark=300, disk=disk)
        assert log.log_end_offset == 300
        assert disk.bytes_read < 5000
        log.close()

    def test_recovery_reads_the_whole_segment_if_its_index_is_useless(self, directory):
        crashed(directory, 100, flushed=90, config=LONG)
        (directory / name(0, "index")).write_bytes(b"\xff" * 8)
        log = open_log(directory, LONG, recovery_point=90)
        assert contents(log) == expected(100)
        log.close()


class TestFailedWrites:
    @pytest.mark.parametrize("torn_bytes", [0, 1, 61, 70])
    def test_a_failed_append_takes_the_log_offline_and_no_offset_is_given_twice(self, directory, torn_bytes):
        disk = FaultyDisk()
        log = open_log(directory, disk=disk)
        fill(log, 5)
        disk.append_fault, disk.torn_bytes = errno.EIO, torn_bytes
        with pytest.raises(KafkaError, match=r"KAFKA_STORAGE_ERROR.*append.*Input/output"):
            append(log, b"lost")
        assert log.is_offline
        assert log.log_end_offset == 5
        disk.append_fault = None
        for call in (
            lambda: append(log, b"x"),
            lambda: log.reader.read(0, 100, upper_bound=5, min_one_batch=True),
            log.flusher.flush,
            log.trimmer.roll,
            lambda: log.trimmer.truncate_to(0),
            lambda: log.trimmer.apply_retention(NOW),
            lambda: run_steps(log.reader.offset_for_timestamp(0, upper_bound=5)),
        ):
            with pytest.raises(KafkaError, match=r"KAFKA_STORAGE_ERROR.*offline"):
                call()
        log.close()
        log = open_log(directory)
        append(log, b"after")
        assert contents(log) == [*expected(5), (5, b"after")]
        log.close()

    def test_a_failed_fsync_is_never_success(self, directory):
        disk = FaultyDisk()
        log = open_log(directory, disk=disk)
        fill(log, 5)
        disk.sync_fault = 5
        with pytest.raises(KafkaError, match=r"KAFKA_STORAGE_ERROR.*flush"):
            log.flusher.flush()
        disk.sync_fault = None
        with pytest.raises(KafkaError, match="offline"):
            log.flusher.flush()
        assert log.recovery_point == 0
        assert not log.is_cleanly_closed
        log.close()

    def test_a_failed_fsync_in_a_worker_thread_takes_the_log_offline(self, directory):
        disk = FaultyDisk()
        log = open_log(directory, disk=disk)
        fill(log, 5)
        pending = log.flusher.prepare_flush()
        disk.sync_fault = 5
        with pytest.raises(OSError, match="Input/output") as caught:
            pending.sync()
        assert log.flusher.flush_failed(caught.value).code is ErrorCode.KAFKA_STORAGE_ERROR
        assert log.is_offline
        log.close()

    @pytest.mark.parametrize("suffix", [".index", ".timeindex"])
    def test_a_failed_index_write_takes_the_log_offline(self, directory, suffix):
        disk = FaultyDisk()
        log = open_log(directory, disk=disk)
        fill(log, 8)
        disk.suffix = suffix
        disk.append_fault = errno.EIO
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
            log.trimmer.roll()
        assert log.is_offline
        log.close()
        log = open_log(directory)
        assert contents(log) == expected(8)
        log.close()

    def test_no_record_is_appended_in_an_epoch_that_cannot_be_written(self, directory, monkeypatch):
        disk = FaultyDisk()
        log = open_log(directory, disk=disk)
        fill(log, 2, epoch=1)

        def refuse(path, data, **_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(FaultyDisk, "replace_file", staticmethod(refuse))
        with pytest.raises(KafkaError, match="leader epochs"):
            append(log, b"x", epoch=2)
        assert log.log_end_offset == 2
        log.close()


class TestLeftovers:
    def test_files_left_by_deletions_and_compactions_are_cleared(self, directory):
        crashed(directory, 50).close()
        bases = [int(file[:20]) for file in log_files(directory)]
        (directory / name(7, "log.deleted")).write_bytes(b"x")
        (directory / name(7, "index.deleted")).write_bytes(b"x")
        (directory / name(9, "index")).write_bytes(b"")
        (directory / name(9, "txnindex")).write_bytes(b"")
        (directory / name(9, "snapshot")).write_bytes(b"a stray")
        (directory / "partition.metadata.tmp").write_bytes(b"x")
        (directory / "notes.txt").write_bytes(b"kept")
        (directory / "12.log").write_bytes(b"kept")
        # The compaction of the first two segments was completed, and the compaction of the last segment was not.
        compacted = make_batch(b"only", base_offset=bases[2] - 1, partition_leader_epoch=0)
        (directory / name(0, "log.swap")).write_bytes(compacted)
        (directory / name(0, "txnindex")).write_bytes(format_aborted([EndedTransaction(1, 0, 1, 2)]))
        # The interrupted compaction left these files.
        (directory / name(bases[3], "log.cleaned")).write_bytes(b"x")
        (directory / name(bases[3], "log.swap")).write_bytes(b"x")
        log = open_log(directory, recovery_point=50, clean_shutdown=True)
        assert contents(log) == [(bases[2] - 1, b"only"), *expected(50)[bases[2] :]]
        log.close()
        left = {path.name for path in directory.iterdir()}
        assert {"notes.txt", "12.log"} <= left
        assert name(9, "snapshot") not in left
        assert name(0, "txnindex") not in left, "of the segment that was compacted"
        assert not {n for n in left if n.endswith((".deleted", ".swap", ".cleaned", ".tmp"))}
        assert name(9, "index") not in left
        assert name(9, "txnindex") not in left

    def test_a_corrupt_epoch_checkpoint_is_made_anew(self, directory):
        crashed(directory, 35).close()
        good = (directory / "leader-epoch-checkpoint").read_bytes()
        assert good == b"0\n4\n0 0\n1 10\n2 20\n3 30\n"
        (directory / "leader-epoch-checkpoint").write_bytes(b"0\n4\n0 0\n")
        log = open_log(directory, recovery_point=35, clean_shutdown=True)
        log.close()
        assert (directory / "leader-epoch-checkpoint").read_bytes() == good

    def test_a_lost_epoch_checkpoint_after_a_crash_has_what_was_verified(self, directory):
        crashed(directory, 35)
        (directory / "leader-epoch-checkpoint").unlink()
        log = open_log(directory)
        assert log.leader_epochs.entries == ((0, 0), (1, 10), (2, 20), (3, 30))
        log.close()

    def test_a_log_that_ends_below_its_start_is_emptied(self, directory):
        crashed(directory, 5)
        log = open_log(directory, log_start_offset=9)
        assert (log.log_start_offset, log.log_end_offset) == (9, 9)
        log.close()

    @pytest.mark.parametrize("suffix", [".deleted", ".discarded"])
    def test_renames_before_a_kill_are_not_undone_by_a_power_cut(self, directory, suffix):
        crashed(directory, 30)
        last = directory / log_files(directory)[-1]
        last.rename(f"{last}{suffix}")
        synced = []

        class Watched(CountingDisk):
            __slots__ = ()

            def sync_directory(self, path):
                super().sync_directory(path)
                synced.append(sorted(os.listdir(path)))

        log = open_log(directory, disk=Watched())
        assert f"{last.name}{suffix}" in synced[0]
        assert last.name not in synced[0]
        log.close()

    def test_overlapping_segments_are_left_to_an_operator(self, directory):
        crashed(directory, 30)
        bases = [int(file[:20]) for file in log_files(directory)]
        (directory / name(bases[1])).rename(directory / name(bases[1] - 1))
        with pytest.raises(KafkaError, match="begins before the end"):
            open_log(directory)

    def test_old_message_formats_are_refused_with_a_reason(self, directory):
        directory.mkdir()
        (directory / name(0)).write_bytes(struct.pack(">qiIbb", 0, 30, 0, 1, 0) + bytes(60))
        (directory / name(5)).write_bytes(b"")
        with pytest.raises(KafkaError, match="magic 1"):
            open_log(directory, recovery_point=5)


KILLED = """
import os, sys
sys.path[:0] = sys.argv[2].split(os.pathsep)
from tests.support.storage import fill, open_log
log = open_log(sys.argv[1])
for number in range(0, 100, 10):
    fill(log, 10, start=number)
    if number == 50:
        log.flusher.flush()
print(log.recovery_point, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_killed_process_loses_nothing_that_was_written(directory):
    path = ":".join(["."] + [entry for entry in sys.path if entry])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(directory), path], capture_output=True, text=True, check=False
    )
    assert done.stdout == "60\n", done.stderr
    log = open_log(directory, recovery_point=60, clock=ManualClock(NOW))
    assert contents(log) == expected(100)
    log.close()


class TestNoDescriptorLeft:
    def test_a_log_without_descriptors_stays_online_and_continues_later(self, directory, monkeypatch):
        # No open file may give up its descriptor.
        monkeypatch.setattr(OPEN_FILES, "make_room", lambda: False)
        log = open_log(directory)
        fill(log, 12)
        log.flusher.flush()
        (base,) = log.segment_base_offsets
        with no_descriptors_left():
            for _ in range(3):
                with pytest.raises(KafkaError, match=r"KAFKA_STORAGE_ERROR.*Too many open files"):
                    append(log, b"%070d" % 12 + b"v" * 800)
            assert (log.is_offline, log.segment_base_offsets) == (False, [base])
            assert not (directory / name(12)).exists()
            # An append that needs no new segment is accepted, indexed and synced.
            append(log, b"%070d" % 12)
            log.flusher.flush()
            with pytest.raises(KafkaError, match="Too many open files"):
                log.trimmer.roll()
        assert (log.is_offline, log.log_end_offset, log.recovery_point) == (False, 13, 13)
        fill(log, 20, start=13)
        assert len(log.segment_base_offsets) > 1
        assert contents(log) == expected(33)
        log.close()
        assert contents(open_log(directory, recovery_point=33)) == expected(33)

    def test_a_log_that_cannot_be_opened_leaves_no_file_open(self, directory):
        crashed(directory, 30, flushed=5)
        (directory / name(0)).write_bytes((directory / name(0)).read_bytes()[:200])
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(KafkaError):
            open_log(directory, recovery_point=5)
        assert len(os.listdir("/proc/self/fd")) == before
