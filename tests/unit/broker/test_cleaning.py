"""The log cleaner runs its steps between other work of the loop, and writes its checkpoint before a compaction."""

import dataclasses
import errno
from types import SimpleNamespace

import pytest
from tests.support.compacted import COMPACTED, all_batches, put
from tests.support.hosts import host_of
from tests.support.logs import make_log

from oncelog_broker.config import broker_keys as keys
from oncelog_broker.log.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offset_checkpoint,
)
from oncelog_broker.log.compaction.batch_reader import BatchReader
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.segments.recovery import SWAP_SUFFIX
from oncelog_broker.log.trimmer import LogTrimmer
from oncelog_broker.replication.partition import Partition
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.upkeep.cleaning import CleaningDelays, LogCleaner, Throttle


async def test_the_loop_is_left_alone_for_as_long_as_a_slice_took():
    pace = CleaningDelays(lambda: 7.0)
    assert pace.after_slice(0.004) == 0.004
    assert pace.after_slice(0.002) == 0.002
    assert pace.after_job() == 7.0
    assert pace.longest_seconds == 0.004


def test_throttle_pauses_as_long_as_the_bytes_are_ahead_of_the_time():
    clock = ManualClock()
    throttle = Throttle(lambda: 1000.0, clock)
    assert throttle.pause_after(500) == 0.5
    clock.advance_ms(400)
    assert throttle.pause_after(500) == pytest.approx(0.1)
    clock.advance_ms(400)
    assert throttle.pause_after(500) == 0


def test_a_throttle_that_is_changed_holds_for_the_bytes_from_then_on():
    clock, limit = ManualClock(), [10.0]
    throttle = Throttle(lambda: limit[0], clock)
    assert throttle.pause_after(500) == 50
    limit[0] = 1000.0
    assert throttle.pause_after(500) == 0
    assert throttle.pause_after(1000) == 0.5
    clock.advance_ms(500)
    assert throttle.pause_after(1000) == 0


async def test_the_cleaner_waits_as_long_as_the_backoff_says_now():
    clock, config = ManualClock(), {keys.LOG_CLEANER_BACKOFF_MS: 3_600_000}
    looks = []
    replicas = SimpleNamespace(partitions=lambda: looks.append(clock.monotonic()) or [])
    tasks = Tasks()
    cleaner = LogCleaner(lambda: config, None, replicas, host_of(clock, tasks, disk=None))
    assert cleaner.pause_seconds() == 1.0
    await cleaner.clean_after_backoff()
    assert not looks, "an hour has not passed"
    clock.advance_ms(2000)
    config[keys.LOG_CLEANER_BACKOFF_MS] = 500
    assert cleaner.pause_seconds() == 0
    await cleaner.clean_after_backoff()
    assert len(looks) == 1
    assert cleaner.pause_seconds() == 0.5


def cleaner_of(partition, logs, disk, clock, **settings):
    """Return a cleaner with one partition."""
    config = {
        keys.LOG_CLEANER_DEDUPE_BUFFER_SIZE: 1 << 20,
        keys.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND: 1e9,
        keys.PRODUCER_ID_EXPIRATION_MS: settings.get("producer_id_expiration_ms", 86_400_000),
    }
    is_whole = settings.get("is_whole", True)
    replicas = SimpleNamespace(partitions=lambda: [partition], all_are_in_sync=lambda asked: is_whole)
    tasks = Tasks()
    return LogCleaner(lambda: config, logs, replicas, host_of(clock, tasks, disk=disk))


@pytest.mark.parametrize(("expiration_ms", "kept"), [(5_000, 0), (50_000, 1)])
async def test_the_last_header_of_a_producer_stays_as_long_as_the_producer_is_known(tmp_path, expiration_ms, kept):
    disk, clock = RealDisk(), ManualClock()
    logs = LogManager.open([tmp_path], node_id=1, cluster_id="c", disk=disk, clock=clock)
    config = dataclasses.replace(COMPACTED, segment_bytes=100, min_cleanable_dirty_ratio=0.0)
    log = make_log(logs, "table", 0, None, config)
    put(log, (b"k", b"of a producer"), producer=(7, 0, 0), timestamp=clock.now_ms())
    for _ in range(3):
        put(log, (b"k", b"v"), timestamp=clock.now_ms())
    clock.advance_ms(10_000)
    partition = Partition("table", bytes(16), 0, log, broker_id=1, high_watermark=log.log_end_offset)
    await cleaner_of(partition, logs, disk, clock, producer_id_expiration_ms=expiration_ms).clean_due()
    assert sum(batch.producer_id == 7 for batch in all_batches(log)) == kept
    logs.close()


@pytest.mark.parametrize("is_whole", [True, False])
async def test_s56_a_deletion_stays_while_a_replica_is_away(tmp_path, is_whole):
    disk, clock = RealDisk(), ManualClock()
    logs = LogManager.open([tmp_path], node_id=1, cluster_id="c", disk=disk, clock=clock)
    config = dataclasses.replace(COMPACTED, segment_bytes=100, min_cleanable_dirty_ratio=0.0, delete_retention_ms=0)
    log = make_log(logs, "table", 0, None, config)
    put(log, (b"gone", None))
    for _ in range(2):
        put(log, (b"k", b"v"))
        partition = Partition("table", bytes(16), 0, log, broker_id=1, high_watermark=log.log_end_offset)
        await cleaner_of(partition, logs, disk, clock, is_whole=is_whole).clean_due()
    assert (all_batches(log)[0].base_offset == 0) is not is_whole
    logs.close()


async def test_the_off_switch_starts_nothing():
    started = []
    tasks = SimpleNamespace(every=lambda name, seconds, action: started.append(name))
    for enabled in (False, True):
        config = {keys.LOG_CLEANER_ENABLE: enabled, keys.LOG_CLEANER_BACKOFF_MS: 50}
        LogCleaner(
            lambda config=config: config,
            logs=None,
            replicas=None,
            host=host_of(tasks=tasks),  # type: ignore[arg-type]
        ).start()
        assert started == ["log cleaner"] * enabled


async def test_a_compaction_is_noted_before_the_log_changes(tmp_path):
    """After a crash, the checkpoint distinguishes an emptied segment from a damaged one."""
    noted: list[str] = []

    class WatchedDisk(RealDisk):
        def rename(self, source: str, target: str) -> None:
            if target.endswith(SWAP_SUFFIX):
                noted.append((tmp_path / CLEANER_OFFSET_CHECKPOINT).read_text())
            super().rename(source, target)

    disk, clock = WatchedDisk(), ManualClock()
    logs = LogManager.open([tmp_path], node_id=1, cluster_id="c", disk=disk, clock=clock)
    config = dataclasses.replace(COMPACTED, segment_bytes=100, min_cleanable_dirty_ratio=0.0)
    log = make_log(logs, "table", 0, None, config)
    for _ in range(4):
        put(log, (b"k", b"v"))
    partition = Partition("table", bytes(16), 0, log, broker_id=1, high_watermark=log.log_end_offset)
    await cleaner_of(partition, logs, disk, clock).clean_due()
    assert noted[0] == "0\n1\ntable 0 0\n"
    assert (tmp_path / CLEANER_OFFSET_CHECKPOINT).read_text() == "0\n1\ntable 0 3\n"
    logs.close()


async def test_records_read_by_a_compaction_are_on_the_disk_before_it_begins(tmp_path, monkeypatch):
    """A compaction relies on later markers, on the producers' last batches, and on the offset below which a gap does
    not count as a loss, so all of these must be on disk first.
    """
    disk, clock = RealDisk(), ManualClock()
    logs = LogManager.open([tmp_path], node_id=1, cluster_id="c", disk=disk, clock=clock)
    log = make_log(logs, "table", 0, None, dataclasses.replace(COMPACTED, min_cleanable_dirty_ratio=0.0))
    for number in range(3):
        put(log, (b"k", b"%d" % number), producer=(7, 0, number))
    log.trimmer.roll()
    put(log, (b"k", b"active"))
    log.trimmer.delete_records_before(1)
    noted, replace_segments = [], LogTrimmer.replace_segments

    def watched(self, *args, **options):
        names = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)
        checkpoints = [read_offset_checkpoint(disk, str(tmp_path / name)) for name in names]
        noted.append((log.producers.saved_up_to, *checkpoints))
        return replace_segments(self, *args, **options)

    monkeypatch.setattr(LogTrimmer, "replace_segments", watched)
    partition = Partition("table", bytes(16), 0, log, broker_id=1, high_watermark=log.log_end_offset)
    await cleaner_of(partition, logs, disk, clock).clean_due()
    assert noted == [(3, {("table", 0): 4}, {("table", 0): 1})]
    logs.close()


class OneFails(RealDisk):
    """A disk on which one data directory, or one checkpoint, cannot be written."""

    __slots__ = ("failing",)

    def __init__(self) -> None:
        self.failing: str | None = None

    def replace_file(self, path: str, data: bytes, *, is_durable: bool = True, private: bool = False) -> None:
        if self.failing is not None and self.failing in path:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        super().replace_file(path, data, is_durable=is_durable, private=private)


def full_table(logs, number=0):
    """Create a log that has records to compact; return the log and its partition."""
    config = dataclasses.replace(COMPACTED, segment_bytes=100, min_cleanable_dirty_ratio=0.0)
    log = make_log(logs, "table", number, None, config)
    for _ in range(4):
        put(log, (b"k", b"v"))
    return log, Partition("table", bytes(16), number, log, broker_id=1, high_watermark=log.log_end_offset)


async def test_a_disk_that_fails_keeps_no_log_of_another_one_from_being_compacted(tmp_path):
    disk, clock = OneFails(), ManualClock()
    logs = LogManager.open([tmp_path / "one", tmp_path / "two"], node_id=1, cluster_id="c", disk=disk, clock=clock)
    for log, partition in [full_table(logs, number) for number in (0, 1)]:
        fails = "one" if "/two/" in log.directory else "two"
        disk.failing = str(tmp_path / fails)
        await cleaner_of(partition, logs, disk, clock).clean_due()
        assert log.state.cleaner_checkpoint == 3
        assert len(all_batches(log)) == 2
    disk.failing = None
    logs.close()


async def test_no_log_is_compacted_before_its_note_is_written(tmp_path):
    """After a crash without the checkpoint, an emptied segment would look like a segment that lost its records."""
    disk, clock = OneFails(), ManualClock()
    logs = LogManager.open([tmp_path], node_id=1, cluster_id="c", disk=disk, clock=clock)
    log, partition = full_table(logs)
    disk.failing = CLEANER_OFFSET_CHECKPOINT
    for _ in range(2):
        await cleaner_of(partition, logs, disk, clock).clean_due()
        assert len(all_batches(log)) == 4
    disk.failing = None
    logs.close()


async def test_a_log_truncated_meanwhile_is_not_compacted_before_it_is_synced(tmp_path, monkeypatch):
    """If compaction removed records above the recovery point, the next start would take these records for lost."""
    disk, clock = RealDisk(), ManualClock()
    logs = LogManager.open([tmp_path], node_id=1, cluster_id="c", disk=disk, clock=clock)
    log, partition = full_table(logs)
    checkpoint = LogManager.checkpoint_before_compaction

    def cut_and_grown(self, log):
        checkpoint(self, log)
        if log.trimmer.generation == 0:
            log.trimmer.truncate_to(1)
            for _ in range(4):
                put(log, (b"k", b"v"))

    monkeypatch.setattr(LogManager, "checkpoint_before_compaction", cut_and_grown)
    await cleaner_of(partition, logs, disk, clock).clean_due()
    assert log.recovery_point <= 1
    assert len(all_batches(log)) == 5
    logs.close()


async def test_a_log_that_is_cut_while_it_is_read_is_not_taken_for_a_corrupt_one(tmp_path, monkeypatch):
    disk, clock = RealDisk(), ManualClock()
    logs = LogManager.open([tmp_path], node_id=1, cluster_id="c", disk=disk, clock=clock)
    config = dataclasses.replace(COMPACTED, min_cleanable_dirty_ratio=0.0)
    log = make_log(logs, "table", 0, None, config)
    for number in range(4):
        put(log, (b"k", b"%d" % number))
    log.trimmer.roll()
    put(log, (b"k", b"active"))
    partition = Partition("table", bytes(16), 0, log, broker_id=1, high_watermark=log.log_end_offset)
    cleaner, read = cleaner_of(partition, logs, disk, clock), BatchReader.read

    def cut_first(self):
        if log.trimmer.generation == 0:
            log.trimmer.truncate_to(2)
        return read(self)

    monkeypatch.setattr(BatchReader, "read", cut_first)
    await cleaner.clean_due()
    assert len(all_batches(log)) == 2
    log.trimmer.roll()
    await cleaner.clean_due()
    assert len(all_batches(log)) == 1, "the next one takes it on"
    logs.close()
