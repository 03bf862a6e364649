"""Single guarantees of a compaction; `tests/property/test_compaction.py` compares entire compactions with a model."""

import dataclasses
import shutil
import tempfile

import pytest
from tests.support.compacted import COMPACTED, all_batches, clean, compaction_of, end_transaction, entries, put
from tests.support.producers import committed
from tests.support.storage import NOW, CountingDisk, open_log

from oncelog_broker.log.compaction.batch_reader import READ_BYTES
from oncelog_broker.log.compaction.compaction import INLINE_BATCH_BYTES, MAX_SEGMENTS_PER_GROUP
from oncelog_broker.log.segments.segment import PRODUCER_SNAPSHOT_SUFFIX, file_prefix
from oncelog_broker.runtime.disk import RealDisk
from oncelog_broker.runtime.steps import run_steps
from oncelog_protocol.records.batch import PRODUCER_AT, CorruptBatch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.control import ControlType

RETENTION_MS = COMPACTED.delete_retention_ms


@pytest.fixture
def log(tmp_path):
    log = open_log(tmp_path, COMPACTED)
    yield log
    log.close()


def found(log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(entry.offset, entry.key, entry.value) for entry in entries(log)]


@pytest.mark.parametrize("codec", Compression)
def test_a_batch_that_keeps_all_is_copied_and_one_that_keeps_some_keeps_its_codec(log, codec):
    put(log, (b"a", b"1" * 500), (b"b", b"1" * 500), compression=codec)
    put(log, (b"c", b"1"), compression=codec)
    put(log, (b"b", b"2"), compression=codec)
    log.trimmer.roll()
    before = [bytes(batch.view) for batch in all_batches(log)]
    clean(log)
    after = all_batches(log)
    assert [bytes(batch.view) for batch in after[1:]] == before[1:]
    assert (after[0].compression, after[0].records_count, after[0].last_offset_delta) == (codec, 1, 1)
    assert found(log) == [(0, b"a", b"1" * 500), (2, b"c", b"1"), (3, b"b", b"2")]


def test_a_log_with_nothing_to_drop_is_not_written_again(log, tmp_path):
    put(log, (b"a", b"1"))
    put(log, (b"b", b"1"))
    log.trimmer.roll()
    inode = (tmp_path / f"{file_prefix(0)}.log").stat().st_ino
    assert clean(log) == 2
    assert (tmp_path / f"{file_prefix(0)}.log").stat().st_ino == inode


def test_discarded_output_files_are_removed_in_a_job(log):
    """A worker thread runs jobs. If the event loop removed a large file itself, all clients would wait."""
    log.update_config(dataclasses.replace(COMPACTED, segment_bytes=1_000_000))
    for number in range(20):
        put(log, (b"%d" % number, bytes(10_000)))
    log.trimmer.roll()
    disk = JobsOnlyDisk()
    steps = compaction_of(log, disk=disk).steps()
    sent = None
    try:
        while True:
            job = steps.send(sent)
            disk.is_in_job = True
            sent = job() if job is not None else None
            disk.is_in_job = False
    except StopIteration as finished:
        assert finished.value == 20
    assert disk.removed


class JobsOnlyDisk(RealDisk):
    """Permits the removal of files only in jobs."""

    __slots__ = ("is_in_job", "removed")

    def __init__(self) -> None:
        self.is_in_job = False
        self.removed: list[str] = []

    def remove(self, path: str) -> None:
        if self.exists(path):
            assert self.is_in_job
            self.removed.append(path)
        super().remove(path)


def test_small_segments_become_one(log):
    for number in range(MAX_SEGMENTS_PER_GROUP + 5):
        put(log, (b"k%d" % number, b"v"))
        log.trimmer.roll()
    clean(log)
    assert log.segment_base_offsets == [0, MAX_SEGMENTS_PER_GROUP, MAX_SEGMENTS_PER_GROUP + 5]


def test_the_active_segment_is_never_looked_at(log):
    put(log, (b"a", b"1"))
    log.trimmer.roll()
    put(log, (b"a", b"2"))
    assert clean(log) == 1
    assert found(log) == [(0, b"a", b"1"), (1, b"a", b"2")]


def test_keyless_records_go(log):
    put(log, (None, b"1"), (b"a", b"1"))
    put(log, (None, b"2"))
    put(log, (b"b", b"1"))
    log.trimmer.roll()
    clean(log)
    assert found(log) == [(1, b"a", b"1"), (3, b"b", b"1")]


def test_a_deletion_stays_until_its_horizon_and_then_goes(log):
    put(log, (b"a", b"1"))
    put(log, (b"a", None), (b"b", b"1"))
    log.trimmer.roll()
    assert clean(log) == 3
    assert found(log) == [(1, b"a", None), (2, b"b", b"1")]
    (batch,) = all_batches(log)
    assert batch.delete_horizon_ms == NOW + RETENTION_MS
    clean(log, first_dirty=3, now_ms=NOW + RETENTION_MS - 1)
    assert all_batches(log)[0].delete_horizon_ms == NOW + RETENTION_MS, "set once"
    assert found(log) == [(1, b"a", None), (2, b"b", b"1")]
    clean(log, first_dirty=3, now_ms=NOW + RETENTION_MS)
    assert found(log) == [(2, b"b", b"1")]
    assert [entry.timestamp for entry in entries(log)] == [NOW + 1]


def test_s56_e25_a_marker_outlives_its_data_and_then_its_horizon(log):
    put(log, (b"a", b"1"), producer=(7, 0, 0), transactional=True)
    marker = end_transaction(log, 7, ControlType.COMMIT)
    put(log, (b"a", b"2"), producer=(7, 0, 1))
    put(log, (b"z", b"last"))
    log.trimmer.roll()

    def markers() -> list[tuple[int, int | None]]:
        return [(batch.base_offset, batch.delete_horizon_ms) for batch in all_batches(log) if batch.is_control]

    clean(log)
    assert (found(log)[0][0], markers()) == (marker, [(marker, None)]), "the data is gone, the marker is there"
    clean(log, first_dirty=4)
    assert markers() == [(marker, NOW + RETENTION_MS)]
    clean(log, first_dirty=4, now_ms=NOW + RETENTION_MS - 1)
    assert markers() == [(marker, NOW + RETENTION_MS)]
    clean(log, first_dirty=4, now_ms=NOW + RETENTION_MS)
    assert markers() == []


def test_s56_tombstones_and_abort_markers_stay_while_a_replica_is_away(log):
    """The absent replica may have old records, but not the tombstones or abort markers that apply to these records."""
    put(log, (b"a", b"aborted"), producer=(7, 0, 0), transactional=True)
    marker = end_transaction(log, 7, ControlType.ABORT)
    put(log, (b"b", b"1"), producer=(7, 0, 1))
    put(log, (b"b", None), (b"c", b"1"))
    log.trimmer.roll()
    clean(log)
    clean(log, first_dirty=5, now_ms=NOW)

    def left() -> list[int]:
        return [entry.offset for entry in entries(log)]

    assert left() == [marker, 3, 4]
    after = NOW + RETENTION_MS
    compaction = compaction_of(log, first_dirty=5, now_ms=after, all_replicas_have_it=False)
    run_steps(compaction.steps())
    assert (left(), compaction.stats.kept_for_replicas) == ([marker, 3, 4], 2)
    clean(log, first_dirty=5, now_ms=after)
    assert left() == [4]


def test_s56_e25_aborted_data_goes_and_is_no_last_value(log):
    put(log, (b"a", b"committed"))
    put(log, (b"a", b"aborted"), producer=(7, 0, 0), transactional=True)
    marker = end_transaction(log, 7, ControlType.ABORT)
    log.trimmer.roll()
    clean(log)
    assert log.producers.aborted.all() == []
    assert [(entry.offset, entry.is_control) for entry in entries(log)] == [(0, False), (marker, True)]
    assert [batch.records_count for batch in all_batches(log)] == [1, 0, 1], "the producer's last sequence stays"


def test_e25_a_key_that_is_a_markers_key_is_a_key(log):
    abort_key = bytes(4)
    put(log, (b"a", b"1"), producer=(7, 0, 0), transactional=True)
    marker = end_transaction(log, 7, ControlType.COMMIT)
    put(log, (abort_key, b"data"))
    log.trimmer.roll()
    clean(log)
    assert [entry.offset for entry in entries(log)] == [0, marker, 2]


def test_s56_the_last_batch_of_a_producer_keeps_its_header(log):
    put(log, (b"a", b"1"), producer=(7, 3, 40))
    put(log, (b"a", b"2"))
    log.trimmer.roll()
    clean(log)
    header, last = all_batches(log)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.records_count) == (7, 3, 40, 0)
    assert last.base_offset == 1


def test_a_corrupt_batch_stops_it_and_nothing_is_changed(log, tmp_path):
    put(log, (b"a", b"1" * 50))
    put(log, (b"a", b"2"))
    log.trimmer.roll()
    path = tmp_path / f"{file_prefix(0)}.log"
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptBatch, match="CRC"):
        clean(log)
    assert path.read_bytes() == damaged
    assert [name for name in tmp_path.iterdir() if name.suffix in (".cleaned", ".swap")] == []


@pytest.mark.parametrize("size", [1, 80_000])
def test_a_flipped_bit_that_makes_records_look_aborted_stops_it(log, tmp_path, size):
    """A batch of an aborted transaction is dropped without a look at its records. Here the flipped bit gives a batch
    of producer 7, whose transaction is committed, the id of producer 6, whose transaction is aborted.
    """
    put(log, (b"a", b"1"), producer=(6, 0, 0), transactional=True)
    put(log, (b"b", b"2" * size), producer=(7, 0, 0), transactional=True)
    end_transaction(log, 6, ControlType.ABORT)
    end_transaction(log, 7, ControlType.COMMIT)
    log.trimmer.roll()
    path = tmp_path / f"{file_prefix(0)}.log"
    damaged = bytearray(path.read_bytes())
    damaged[all_batches(log)[0].size + PRODUCER_AT + 7] ^= 6 ^ 7
    path.write_bytes(damaged)
    with pytest.raises(CorruptBatch, match="CRC"):
        clean(log)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_batches_larger_than_a_read(log, codec):
    noise = bytes(range(256)) * 4
    large = [(b"k%d" % n, noise[n % 256 :] + noise * (n % 5)) for n in range(200)]
    assert sum(len(value) for _, value in large) > max(READ_BYTES, INLINE_BATCH_BYTES)
    log.update_config(COMPACTED.__class__(cleanup_policy=COMPACTED.cleanup_policy))
    put(log, *large, compression=codec)
    put(log, (b"k0", b"new"))
    log.trimmer.roll()
    clean(log)
    assert found(log) == [(n, *large[n]) for n in range(1, 200)] + [(200, b"k0", b"new")]


def test_a_fully_superseded_segment_is_not_written_and_the_dirty_part_is_read_twice(log):
    for number in range(300):
        put(log, (b"a", b"%080d" % number))
    log.trimmer.roll()
    size, disk = log.size_bytes, CountingDisk()
    clean(log, disk=disk)
    assert disk.bytes_read < 2.5 * size
    assert found(log) == [(299, b"a", b"%080d" % 299)]


def test_the_producer_snapshot_of_the_first_segment_stays(log, tmp_path):
    for value in (b"1", b"2"):
        put(log, (b"a", value))
        (tmp_path / (file_prefix(log.segment_base_offsets[-1]) + PRODUCER_SNAPSHOT_SUFFIX)).write_bytes(b"state")
        log.trimmer.roll()
    clean(log)
    assert [path.name for path in tmp_path.glob("*.snapshot")] == [file_prefix(0) + PRODUCER_SNAPSHOT_SUFFIX]


@pytest.mark.parametrize("lost", ["nothing", "snapshots", "everything beside the logs"])
def test_e25_aborted_data_never_becomes_committed(log, tmp_path, lost):
    """Transactions span segments that are compacted one by one. After a restart, only the log files can be used to
    rebuild the index of aborted transactions.
    """
    wanted = []
    for number in range(12):
        put(log, (b"%d" % number, b"committed"), producer=(7, 0, number), transactional=True)
        put(log, (b"%d" % number, b"aborted"), producer=(8, 0, number), transactional=True)
        put(log, (b"plain %d" % number, b"plain"))
        wanted += [b"committed", b"plain"]
        if number % 3 == 2:
            end_transaction(log, 7, ControlType.COMMIT)
        if number % 4 == 3:
            end_transaction(log, 8, ControlType.ABORT)
        if number % 2 == 1:
            log.trimmer.roll()
    log.producers.state.on_high_watermark(log.log_end_offset)
    assert committed(log) == wanted
    for end in log.segment_base_offsets[1:]:
        clean(log, end=end)
        assert committed(log) == wanted
        again = reopened(log, tmp_path, lost)
        assert committed(again) == wanted
        again.abandon()


@pytest.mark.parametrize("room", [3, 5, 7, 100])
@pytest.mark.parametrize("lost", ["nothing", "snapshots", "everything beside the logs"])
def test_e25_a_round_that_ends_inside_a_segment_forgets_no_aborted_transaction(log, tmp_path, lost, room):
    """The compaction keeps all records after the offset at which its offset map was full. Index entries of aborted
    transactions must remain for these records.
    """
    put(log, (b"twice", b"old"))
    put(log, (b"twice", b"new"), (b"1", b"committed"), (b"2", b"committed"))
    put(log, (b"1", b"aborted"), (b"9", b"aborted"), producer=(8, 0, 0), transactional=True)
    put(log, (b"3", b"committed"), (b"4", b"committed"))
    put(log, (b"2", b"aborted"), (b"5", b"aborted"), producer=(8, 0, 2), transactional=True)
    end_transaction(log, 8, ControlType.ABORT)
    put(log, (b"6", b"committed"), producer=(8, 0, 4), transactional=True)
    end_transaction(log, 8, ControlType.COMMIT)
    log.trimmer.roll()
    log.producers.state.on_high_watermark(log.log_end_offset)
    wanted, end, first_dirty = [b"new", *[b"committed"] * 5], log.log_end_offset, 0
    while first_dirty < end:
        first_dirty = clean(log, first_dirty=first_dirty, memory=room * 216)
        assert committed(log) == wanted
        again = reopened(log, tmp_path, lost)
        assert committed(again) == wanted
        again.abandon()
    assert b"aborted" not in [entry.value for entry in entries(log)]
    assert log.producers.aborted.all() == [], "nothing that it speaks of is left"


def reopened(log, tmp_path, lost):
    """Copy the files and open the copy as another log, as after a crash."""
    copy = tempfile.mkdtemp(dir=tmp_path)
    for path in tmp_path.iterdir():
        kinds = {".snapshot", ".window"} if lost == "snapshots" else {".txnindex", ".snapshot", ".window"}
        if path.is_file() and (lost == "nothing" or path.suffix not in kinds):
            shutil.copy(path, copy)
    again = open_log(copy, log.config)
    again.producers.state.on_high_watermark(again.log_end_offset)
    return again


def test_timestamps_are_found_after_a_compaction(log):
    for number in range(60):
        put(log, (b"k%d" % (number % 4), b"%d" % number), producer=(5, 0, number), timestamp=NOW + number)
    log.trimmer.roll()
    clean(log)
    end = log.log_end_offset
    assert [run_steps(log.reader.offset_for_timestamp(NOW + n, upper_bound=end))[0] for n in (0, 56, 57, 59)] == [
        56,
        56,
        57,
        59,
    ]
    assert run_steps(log.reader.offset_for_timestamp(NOW + 60, upper_bound=end)) is None
    assert run_steps(log.reader.max_timestamp_offset())[0] == 59


def test_truncation_takes_the_cleaner_checkpoint_back(log):
    for number in range(4):
        put(log, (b"a", b"%d" % number))
        log.trimmer.roll()
    lowered = []
    log.trimmer.before_truncation = lambda state: lowered.append(state.cleaner_checkpoint)
    log.state.cleaner_checkpoint = 4
    log.trimmer.truncate_to(2)
    assert (log.state.cleaner_checkpoint, lowered) == (2, [2])


def test_steps_get_what_their_jobs_raise():
    def steps():
        try:
            yield lambda: int("no number")
        except ValueError:
            answer = yield lambda: 42
        yield None
        return answer

    assert run_steps(steps()) == 42


def test_segments_at_the_end_of_which_nothing_is_left_are_emptied(log, tmp_path):
    put(log, (b"a", b"1"))
    log.trimmer.roll()
    for _ in range(3):
        put(log, (b"b", b"old"))
        log.trimmer.roll()
    first_group = log.log_end_offset
    log.update_config(dataclasses.replace(COMPACTED, segment_bytes=log.size_bytes))
    put(log, (b"b", b"new" * 20))
    log.trimmer.roll()
    clean(log)
    assert found(log) == [(0, b"a", b"1"), (first_group, b"b", b"new" * 20)]
    assert [path.stat().st_size > 0 for path in sorted(tmp_path.glob("*.log"))] == [
        True,
        False,
        False,
        False,
        True,
        False,
    ]
    assert all(batch.records_count for batch in all_batches(log)), "no header without need: librdkafka trips over them"
    clean(log, first_dirty=first_group + 1)
    assert log.segment_base_offsets == [0, first_group + 1], "and join a group that goes on later"


def test_a_fully_rewritten_log_does_not_gather_empty_segments(log):
    """The log resembles that of a group that keeps committing: each compaction removes all records that the previous
    compaction left.
    """
    log.update_config(dataclasses.replace(COMPACTED, segment_bytes=2000))
    first_dirty = 0
    for _ in range(12):
        for number in range(20):
            put(log, (b"k%d" % (number % 3), b"v" * 40))
        log.flusher.flush()
        first_dirty = clean(log, first_dirty=first_dirty)
        assert len(log.segment_base_offsets) <= 5


class RenamingDisk(RealDisk):
    """Counts renames."""

    renames = 0

    def rename(self, source, target):
        self.renames += 1
        super().rename(source, target)


def test_s87_no_step_renames_the_files_of_many_segments(tmp_path):
    """Each rename waits for the file system, and blocks the event loop if called there."""
    disk = RenamingDisk()
    log = open_log(tmp_path, COMPACTED, disk=disk)
    for number in range(5 * MAX_SEGMENTS_PER_GROUP):
        put(log, (b"a%d" % (number % 3), b"1"))
        log.trimmer.roll()
    steps, most, result = compaction_of(log, disk=disk).steps(), 0, None
    while True:
        before = disk.renames
        try:
            job = steps.send(result)
        except StopIteration:
            break
        finally:
            most = max(most, disk.renames - before)
        result = None if job is None else job()
    assert 0 < most <= 100
    log.close()
