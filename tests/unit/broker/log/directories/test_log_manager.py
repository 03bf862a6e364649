"""LogManager opens data directories (Kafka's, too), creates and deletes logs, writes checkpoints, and closes."""

import dataclasses
import errno
import json
import logging
import os
import shutil
import struct
from contextlib import suppress

import pytest
from tests.support.descriptors import no_descriptors_left
from tests.support.logs import make_log
from tests.support.storage import NOW, SMALL, FaultyDisk, StoppingDisk, contents, fill, log_files, make_batch

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.data_directory import (
    DELETE_DIRECTORY_SUFFIX,
    marked_directory_name,
    parse_directory_name,
)
from oncelog_broker.log.directories.log_changes import WantedLog
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.directories.meta_properties import MetaPropertiesError
from oncelog_broker.log.producers.snapshot import format_snapshot
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk
from oncelog_broker.runtime.file_lock import LockHeld
from oncelog_broker.runtime.steps import run_steps
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.uuids import uuid_from_string

TOPIC_ID = uuid_from_string("WsbkLmZVRwqkK4gQkDLWNg")
OTHER_ID = bytes(range(16))
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def clock():
    return ManualClock(NOW)


@pytest.fixture
def start(tmp_path, clock):
    """A function that starts a manager on `tmp_path/data` or other directories; end the manager with `crash` to
    simulate a crash.
    """
    running = []

    def start(*directories, node_id=1, cluster_id="cluster", disk=None, **options):
        manager = LogManager.open(
            directories or [tmp_path / "data"],
            node_id=node_id,
            cluster_id=cluster_id,
            disk=disk or RealDisk(),
            clock=clock,
            config_of=lambda topic: SMALL,
            **options,
        )
        running.append(manager)
        return manager

    yield start
    for manager in running:
        crash(manager)


def crash(manager):
    """Release the locks and write no file, as when the broker's process dies."""
    for log in manager.logs():
        log.abandon()
    for directory in manager._directories:
        directory.close(clean=False)


def test_a_log_is_made_closed_and_reopened(start, tmp_path):
    manager = start()
    fill(make_log(manager, "orders", 0, TOPIC_ID, SMALL), 30)
    fill(make_log(manager, "orders", 1, TOPIC_ID, SMALL), 5)
    manager.get("orders", 0).trimmer.delete_records_before(3)
    manager.checkpoint_high_watermarks({("orders", 0): 28, ("orders", 1): 5, ("gone", 0): 3})
    manager.close(broker_epoch=12)
    data = tmp_path / "data"
    assert json.loads((data / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": 12}
    assert (data / "recovery-point-offset-checkpoint").read_text() == "0\n2\norders 0 30\norders 1 5\n"
    assert (data / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 3\n"
    assert (data / "replication-offset-checkpoint").read_text() == "0\n2\norders 0 28\norders 1 5\n"

    manager = start()
    assert not (data / ".kafka_cleanshutdown").exists()
    log = manager.get("orders", 0)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (3, 30, 30)
    assert manager.high_watermarks() == {("orders", 0): 28, ("orders", 1): 5}
    assert manager.topic_id("orders", 0) == TOPIC_ID
    assert manager.get("orders", 2) is None
    assert {log.name for log in manager.logs()} == {"orders-0", "orders-1"}
    assert make_log(manager, "orders", 0, TOPIC_ID, SMALL) is log


def flipped(content: bytes) -> bytes:
    return content[:-3] + bytes([content[-3] ^ 4]) + content[-2:]


@pytest.mark.parametrize(
    ("change", "is_cut"),
    [
        pytest.param(lambda content: content, False, id="whole"),
        pytest.param(flipped, True, id="a flipped bit in the last batch"),
        pytest.param(lambda content: content[:-5], True, id="an incomplete batch"),
        pytest.param(lambda content: content + bytes(100), True, id="bytes that are no batch"),
    ],
)
def test_s81_a_start_says_which_logs_lost_their_ends_in_recovery(start, tmp_path, change, is_cut):
    manager = start()
    fill(make_log(manager, "orders", 0, TOPIC_ID, SMALL), 3)
    fill(make_log(manager, "orders", 1, TOPIC_ID, SMALL), 3)
    crash(manager)
    directory = tmp_path / "data" / "orders-1"
    (file,) = directory.glob("*.log")
    file.write_bytes(change(file.read_bytes()))
    assert start().cut_at_start == ([str(directory)] if is_cut else [])


def test_the_cleaner_checkpoint_is_remembered(start, tmp_path):
    manager = start()
    for partition in (0, 1):
        log = make_log(manager, "orders", partition, TOPIC_ID, SMALL)
        fill(log, 4)
    manager.get("orders", 0).state.cleaner_checkpoint = 3
    manager.checkpoint_after_compaction(manager.get("orders", 0))
    assert (tmp_path / "data" / "cleaner-offset-checkpoint").read_text() == "0\n1\norders 0 3\n"
    crash(manager)
    again = start()
    assert [again.get("orders", partition).state.cleaner_checkpoint for partition in (0, 1)] == [3, None]
    again.get("orders", 0).trimmer.truncate_to(1)
    assert (tmp_path / "data" / "cleaner-offset-checkpoint").read_text() == "0\n1\norders 0 1\n"
    again.delete("orders", 0)
    assert make_log(again, "orders", 0, OTHER_ID, SMALL).state.cleaner_checkpoint is None
    assert (tmp_path / "data" / "cleaner-offset-checkpoint").read_text() == "0\n0\n"


def test_a_crash_is_recovered_from_the_checkpointed_point(start, tmp_path):
    manager = start()
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 20)
    log.flusher.flush()
    manager.checkpoint_recovery_points()
    fill(log, 10, start=20)
    crash(manager)
    path = tmp_path / "data" / "orders-0"
    last = path / log_files(path)[-1]
    last.write_bytes(last.read_bytes()[:-1])
    log = start().get("orders", 0)
    assert log.recovery_point == 20
    assert contents(log) == [(n, b"%070d" % n) for n in range(29)]


def test_a_damaged_log_leaves_the_other_logs_online(start, tmp_path):
    manager = start()
    for partition in (0, 1):
        log = make_log(manager, "orders", partition, TOPIC_ID, SMALL)
        fill(log, 5)
        log.flusher.flush()
    manager.checkpoint_recovery_points()
    crash(manager)
    path = tmp_path / "data" / "orders-0" / log_files(tmp_path / "data" / "orders-0")[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    manager = start()
    assert list(manager.failures) == [("orders", 0)]
    assert "recovery point 5" in manager.failures["orders", 0]
    with pytest.raises(KafkaError) as caught:
        manager.get("orders", 0)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    assert len(contents(manager.get("orders", 1))) == 5
    manager.close()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    # After the damaged file is repaired, the log opens with its former recovery point, which is still in the
    # checkpoint.
    path.write_bytes(whole)
    assert start().get("orders", 0).recovery_point == 5


def test_a_log_that_failed_keeps_the_shutdown_from_being_clean(start, tmp_path):
    disk = FaultyDisk()
    manager = start(disk=disk)
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 5)
    disk.append_fault = errno.EIO
    with pytest.raises(KafkaError):
        fill(log, 1)
    disk.append_fault = None
    manager.close()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert len(contents(start().get("orders", 0))) == 5


def test_a_limit_of_open_files_that_is_too_low_is_no_failure_of_a_log(start, tmp_path):
    manager = start()
    for partition in range(20):
        fill(make_log(manager, "orders", partition, TOPIC_ID, SMALL), 1)
    manager.close()
    with no_descriptors_left(but=10):
        manager = start()
        logs = list(manager.logs())
        assert len(logs) == 20
        for log in logs:
            fill(log, 1)
            assert log.log_end_offset == 2
        manager.close()


def test_a_log_with_another_topic_id_is_refused(start, tmp_path):
    manager = start()
    make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    with pytest.raises(KafkaError) as caught:
        make_log(manager, "orders", 0, OTHER_ID, SMALL)
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    make_log(manager, "old", 0, None, SMALL)
    assert manager.topic_id("old", 0) is None
    make_log(manager, "old", 0, OTHER_ID, SMALL)
    manager.close()
    assert start().topic_id("old", 0) == OTHER_ID


class TestManyAtOnce:
    WANTED = tuple(WantedLog("orders", partition, TOPIC_ID, SMALL) for partition in range(20))

    def make(self, manager):
        opening = manager.begin_opening(self.WANTED)
        opening.run()
        return manager.finish_opening(opening)

    def checkpoint(self, manager):
        manager.checkpoint_high_watermarks({("orders", partition): 1 for partition in range(20)})

    def test_new_logs_are_synced_only_when_a_checkpoint_names_them(self, start):
        disk = SyncingDisk()
        manager = start(disk=disk)
        disk.synced.clear()
        self.make(manager)
        manager.checkpoint_high_watermarks({("orders", partition): 0 for partition in range(20)})
        assert disk.synced == ["data"]
        disk.synced.clear()
        self.checkpoint(manager)
        assert sorted(disk.synced) == sorted(["data", *(f"orders-{partition}" for partition in range(20)), "data"])
        disk.synced.clear()
        manager.checkpoint_high_watermarks({("orders", partition): 2 for partition in range(20)})
        assert disk.synced == ["data"]

    def test_new_directories_are_not_searched(self, start):
        disk = WatchedDisk()
        manager = start(disk=disk)
        disk.listed.clear()
        assert [log.log_end_offset for log in self.make(manager)] == [0] * 20
        assert disk.listed == []

    def test_an_interrupted_creation_of_logs_is_continued_by_the_next_process(self, start, tmp_path):
        """All created logs are opened, and each log without a topic id gets a topic id."""
        total = self.changes_of_all(start, tmp_path / "all")
        assert total > 60
        failed = set()
        for stop_at in range(0, total, 7):
            data = tmp_path / f"stopped{stop_at}"
            manager = start(data, disk=(disk := StoppingDisk()))
            disk.stop_at = disk.changes + stop_at
            failed.add(sum(isinstance(log, KafkaError) for log in self.make(manager)))
            with suppress(OSError):
                self.checkpoint(manager)
            crash(manager)
            again = start(data)
            assert again.failures == {}
            assert [log.log_end_offset for log in self.make(again)] == [0] * 20
            assert {again.topic_id("orders", partition) for partition in range(20)} == {TOPIC_ID}
            again.close()
        assert max(failed) == 20
        assert min(failed) == 0

    def changes_of_all(self, start, data):
        manager = start(data, disk=(disk := StoppingDisk()))
        before = disk.changes
        self.make(manager)
        self.checkpoint(manager)
        return disk.changes - before


class SyncingDisk(RealDisk):
    """Records which directories were synced."""

    def __init__(self):
        self.synced = []

    def sync_directory(self, path):
        self.synced.append(os.path.basename(path))
        super().sync_directory(path)


class WatchedDisk(RealDisk):
    def __init__(self):
        self.listed = []

    def list_directory(self, path):
        self.listed.append(path)
        return super().list_directory(path)


class TestDelete:
    def test_a_deleted_log_disappears_at_once_and_is_freed_later(self, start, tmp_path, clock):
        manager = start()
        log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
        fill(log, 5)
        manager.delete("orders", 0)
        manager.delete("orders", 0)
        assert manager.get("orders", 0) is None
        assert log.is_offline
        (left,) = [path for path in (tmp_path / "data").iterdir() if path.is_dir()]
        assert left.name.startswith("orders-0.")
        assert left.name.endswith("-delete")
        assert manager.purge_deleted(SMALL.file_delete_delay_ms / 1000 - 0.001) == 0
        assert manager.purge_deleted(SMALL.file_delete_delay_ms / 1000) == 1
        assert not left.exists()
        manager.close()

    def test_a_re_created_log_is_empty_whatever_the_checkpoints_say(self, start):
        manager = start()
        fill(make_log(manager, "orders", 0, TOPIC_ID, SMALL), 30)
        manager.get("orders", 0).trimmer.delete_records_before(3)
        manager.get("orders", 0).flusher.flush()
        manager.checkpoint_recovery_points()
        manager.checkpoint_log_start_offsets()
        manager.delete("orders", 0)
        fill(make_log(manager, "orders", 0, OTHER_ID, SMALL), 2)
        crash(manager)
        log = start().get("orders", 0)
        assert (log.log_start_offset, log.log_end_offset) == (0, 2)

    def test_a_stray_log_is_set_aside_and_never_freed(self, start, tmp_path):
        manager = start()
        fill(make_log(manager, "orders", 0, TOPIC_ID, SMALL), 3)
        moved = manager.set_aside("orders", 0)
        assert manager.get("orders", 0) is None
        assert manager.partitions() == []
        assert manager.purge_deleted(SMALL.file_delete_delay_ms / 100) == 0
        assert moved.endswith("-stray")
        assert any(name.endswith(".log") for name in os.listdir(moved))
        manager.close()
        assert start().partitions() == []

    def test_logs_deleted_by_an_earlier_process_are_freed(self, start, tmp_path):
        manager = start()
        fill(make_log(manager, "orders", 0, TOPIC_ID, SMALL), 5)
        manager.delete("orders", 0)
        crash(manager)
        manager = start()
        assert manager.purge_deleted(10.0**6) == 1
        assert not [path for path in (tmp_path / "data").iterdir() if path.is_dir()]

    def test_a_failed_log_can_be_deleted(self, start, tmp_path):
        path = tmp_path / "data" / "orders-0"
        path.mkdir(parents=True)
        (path / "partition.metadata").write_bytes(b"junk")
        manager = start()
        assert ("orders", 0) in manager.failures
        manager.delete("orders", 0)
        assert not manager.failures
        fill(make_log(manager, "orders", 0, TOPIC_ID, SMALL), 1)


class TestDirectories:
    def test_a_directory_is_opened_once(self, start, tmp_path):
        start()
        with pytest.raises(LockHeld, match="already open"):
            start()

    def test_several_directories_share_the_logs(self, start, tmp_path):
        directories = [tmp_path / "a", tmp_path / "b"]
        manager = start(*directories)
        for partition in range(4):
            fill(make_log(manager, "orders", partition, TOPIC_ID, SMALL), 1)
        manager.close()
        assert [len(list(path.glob("orders-*"))) for path in directories] == [2, 2]
        assert len(list(start(*directories).logs())) == 4

    def test_the_same_partition_twice_is_an_error(self, start, tmp_path):
        for name in ("a", "b"):
            (tmp_path / name / "orders-0").mkdir(parents=True)
        with pytest.raises(OSError, match="remove the outdated directory"):
            start(tmp_path / "a", tmp_path / "b")
        start(tmp_path / "a")

    def test_a_directory_of_another_broker_or_cluster_is_refused(self, start, tmp_path):
        start().close()
        with pytest.raises(MetaPropertiesError, match="belongs to broker 1"):
            start(node_id=2)
        with pytest.raises(MetaPropertiesError, match="belongs to cluster"):
            start(cluster_id="other")
        assert start(cluster_id=None).cluster_id == "cluster"

    def test_meta_properties_are_written_once(self, start, tmp_path):
        start(cluster_id=None).close()
        path = tmp_path / "data" / "meta.properties"
        assert not path.exists()
        start().close()
        first = path.read_bytes()
        start().close()
        assert path.read_bytes() == first
        assert b"node.id=1" in first
        assert b"directory.id=" in first

    def test_a_refused_start_leaves_no_lock(self, start, tmp_path):
        start(tmp_path / "a").close()
        with pytest.raises(MetaPropertiesError):
            start(tmp_path / "b", tmp_path / "a", node_id=2)
        start(tmp_path / "b")

    @pytest.mark.parametrize(
        ("name", "parsed"),
        [
            ("orders-0", ("orders", 0)),
            ("a-b-12", ("a-b", 12)),
            ("__consumer_offsets-49", ("__consumer_offsets", 49)),
            ("__cluster_metadata-0", None),
            ("orders", None),
            ("orders-", None),
            ("orders-x", None),
            ("orders-01", None),
            ("-0", None),
            ("orders-0.0123456789abcdef0123456789abcdef-delete", None),
            ("orders-0.0123456789abcdef0123456789abcdef-future", None),
            ("lost+found", None),
            ("..-1", None),
        ],
    )
    def test_directory_names_are_parsed(self, name, parsed):
        assert parse_directory_name(name) == parsed

    def test_the_name_of_a_deleted_log_fits_the_file_system(self):
        name = marked_directory_name("t" * 249, 99999, "0" * 32, DELETE_DIRECTORY_SUFFIX)
        assert len(name) == 255
        assert name.endswith("-99999." + "0" * 32 + "-delete")


class TestPeriodic:
    def test_retention_deletes_old_segments(self, start, clock):
        manager = start()
        log = make_log(manager, "orders", 0, TOPIC_ID, dataclasses.replace(SMALL, retention_ms=1000))
        fill(log, 30)
        clock.advance_ms(2000)
        assert len(log.trimmer.apply_retention(clock.now_ms(), upper_bound=14)) == 1
        assert len(log.trimmer.apply_retention(clock.now_ms())) == 2
        assert manager.purge_deleted(clock.monotonic() + 60) > 0

    @pytest.mark.parametrize("ms", [30 * DAY_MS, -30 * DAY_MS])
    def test_s86_deleted_files_are_freed_whatever_the_wall_clock_does(self, start, clock, tmp_path, ms):
        """The wall clock is wrong while segments and a topic are deleted, and is corrected later."""
        manager = start()
        log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
        fill(log, 30)
        fill(make_log(manager, "gone", 0, OTHER_ID, SMALL), 3)
        clock.step_wall_ms(ms)
        log.trimmer.delete_records_before(log.segment_base_offsets[1])
        manager.delete("gone", 0)
        clock.step_wall_ms(-ms)
        log.trimmer.delete_records_before(log.segment_base_offsets[1])
        clock.advance_ms(SMALL.file_delete_delay_ms - 1)
        assert manager.purge_deleted(clock.monotonic()) == 0
        clock.advance_ms(1)
        assert manager.purge_deleted(clock.monotonic()) > 0
        left = [path.name for path in (tmp_path / "data").rglob("*")]
        assert not [name for name in left if name.endswith((".deleted", "-delete"))]
        manager.close()

    @pytest.mark.parametrize("ms", [30 * DAY_MS, -30 * DAY_MS])
    def test_s86_flush_ms_counts_whatever_the_wall_clock_does(self, start, clock, ms):
        manager = start()
        log = make_log(manager, "orders", 0, TOPIC_ID, dataclasses.replace(SMALL, flush_ms=1000))
        fill(log, 1)
        clock.step_wall_ms(ms)
        log.flusher.flush()
        clock.step_wall_ms(-ms)
        fill(log, 1)
        clock.advance_ms(999)
        assert manager.upkeep.logs_due_for_flush() == []
        clock.advance_ms(1)
        assert manager.upkeep.logs_due_for_flush() == [log]
        manager.close()

    def test_due_logs_are_flushed(self, start, clock):
        manager = start()
        by_count = make_log(manager, "a", 0, None, dataclasses.replace(SMALL, flush_messages=3))
        by_time = make_log(manager, "b", 0, None, dataclasses.replace(SMALL, flush_ms=100))
        never = make_log(manager, "c", 0, None, SMALL)
        for log in (by_count, by_time, never):
            fill(log, 2)
        assert manager.upkeep.logs_due_for_flush() == []
        fill(by_count, 1)
        clock.advance_ms(100)
        assert set(manager.upkeep.logs_due_for_flush()) == {by_count, by_time}
        by_count.flusher.flush()
        by_time.flusher.flush()
        clock.advance_ms(1000)
        assert manager.upkeep.logs_due_for_flush() == []
        assert never.recovery_point == 0

    def test_a_truncation_lowers_the_recovery_point_on_disk_first(self, start, tmp_path):
        manager = start()
        log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
        fill(log, 20)
        log.flusher.flush()
        manager.checkpoint_recovery_points()
        log.trimmer.truncate_to(10)
        assert (tmp_path / "data" / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 10\n"
        crash(manager)
        assert start().get("orders", 0).log_end_offset == 10

    def test_corrupt_checkpoints_are_done_without(self, start, tmp_path, caplog):
        manager = start()
        fill(make_log(manager, "orders", 0, TOPIC_ID, SMALL), 20)
        manager.close()
        for path in (tmp_path / "data").glob("*-checkpoint"):
            path.write_bytes(b"0\n5\n")
        log = start().get("orders", 0)
        assert len(contents(log)) == 20
        assert caplog.text.count("starting without") >= 2


def kafka_directory(data):
    """Create a data directory by hand from Kafka's formats, as Kafka 3.x (ZooKeeper) leaves it when it is killed."""
    log = data / "payments-0"
    log.mkdir(parents=True)
    (data / "meta.properties").write_text(
        "#\n#Tue Nov 12 10:00:00 UTC 2024\nversion=0\nbroker.id=1\ncluster.id=cluster\n"
    )
    (data / ".lock").write_bytes(b"")
    (data / "recovery-point-offset-checkpoint").write_text("0\n2\npayments 0 3\n__cluster_metadata 0 9\n")
    (data / "replication-offset-checkpoint").write_text("0\n1\npayments 0 5\n")
    (data / "log-start-offset-checkpoint").write_text("0\n0\n")
    (data / "cleaner-offset-checkpoint").write_text("0\n0\n")
    (data / "bootstrap.checkpoint").write_bytes(b"\x00binary")
    for other in ("__cluster_metadata-0", "payments-1.0123456789abcdef0123456789abcdef-delete", "stray"):
        (data / other).mkdir()
        (data / other / f"{0:020d}.log").write_bytes(b"x")
    (log / "partition.metadata").write_bytes(b"version: 0\ntopic_id: WsbkLmZVRwqkK4gQkDLWNg")
    (log / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    first = [make_batch(b"a", timestamp=NOW), make_batch(b"b", b"c", timestamp=NOW + 5, base_offset=1)]
    for batch in first:
        struct.pack_into(">i", batch, 12, 0)
    (log / f"{0:020d}.log").write_bytes(b"".join(first))
    (log / f"{0:020d}.index").write_bytes(b"")
    (log / f"{0:020d}.timeindex").write_bytes(struct.pack(">qi", NOW + 5, 2))
    second = [make_batch(b"%d" % n, timestamp=NOW + n, base_offset=n) for n in range(3, 6)]
    for batch in second:
        struct.pack_into(">i", batch, 12, 1)
    (log / f"{3:020d}.log").write_bytes(b"".join(second))
    # The indexes of the active segment are preallocated to their full size.
    (log / f"{3:020d}.index").write_bytes(bytes(10 * 1024 * 8))
    (log / f"{3:020d}.timeindex").write_bytes(bytes(10 * 1024 * 12))
    (log / f"{3:020d}.snapshot").write_bytes(format_snapshot([]))
    return log


@pytest.mark.parametrize("clean", [False, True])
def test_a_directory_written_by_kafka_is_opened(start, tmp_path, caplog, clean):
    data = tmp_path / "data"
    path = kafka_directory(data)
    if clean:
        (data / ".kafka_cleanshutdown").write_bytes(b"")
    caplog.set_level(logging.INFO)
    manager = start()
    assert not manager.failures
    (log,) = manager.logs()
    assert contents(log) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"3"), (4, b"4"), (5, b"5")]
    assert run_steps(log.reader.offset_for_timestamp(NOW + 1, upper_bound=6)) == (1, NOW + 5, 0)
    assert run_steps(log.reader.max_timestamp_offset()) == (1, NOW + 5, 0)
    assert manager.topic_id("payments", 0) == TOPIC_ID
    assert manager.high_watermarks() == {("payments", 0): 5}
    if not clean:
        assert log.leader_epochs.entries == ((0, 0), (1, 3))
    fill(log, 20, epoch=2)
    assert (path / f"{3:020d}.snapshot").exists()
    for name in ("__cluster_metadata-0", "stray"):
        assert (data / name / f"{0:020d}.log").exists()
        assert f"{name}: not the log of a partition" in caplog.text
    assert (data / "bootstrap.checkpoint").read_bytes() == b"\x00binary"
    manager.purge_deleted(10.0**6)
    assert not list(data.glob("*-delete"))
    manager.close()
    assert b"node.id=1" in (data / "meta.properties").read_bytes()
    assert LogConfig().segment_bytes == 1024**3


class TestMissing:
    """Tests logs that the metadata lists although no data directory has them."""

    @pytest.fixture
    def without_orders(self, start, tmp_path):
        """A data directory that lacks two partitions: one had records and was removed, the other never had any."""
        manager = start()
        fill(make_log(manager, "orders", 0, TOPIC_ID, SMALL), 30)
        make_log(manager, "orders", 1, TOPIC_ID, SMALL)
        manager.get("orders", 0).flusher.flush()
        manager.checkpoint_recovery_points()
        crash(manager)
        for partition in (0, 1):
            shutil.rmtree(tmp_path / "data" / f"orders-{partition}")
        return tmp_path / "data"

    def test_records_that_were_checkpointed_are_not_replaced_by_nothing(self, start, without_orders, caplog):
        manager = start()
        manager.note_missing([("orders", 0), ("orders", 1), ("new", 0)])
        with pytest.raises(KafkaError, match=r"orders-0 is missing.*up to offset 30") as caught:
            make_log(manager, "orders", 0, TOPIC_ID, SMALL)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        for key in (("orders", 1), ("new", 0)):
            assert make_log(manager, *key, TOPIC_ID, SMALL).log_end_offset == 0
        assert caplog.text.count("new, empty logs are created") == 1, "a broker with an empty disk says it once for all"
        assert "no logs of 2 partitions of this broker" in caplog.text
        assert "orders-1 new-0" in caplog.text
        manager.close()
        # Every start reports the missing log until an operator decides what happens to the partition.
        assert not (without_orders / ".kafka_cleanshutdown").exists()
        manager = start()
        manager.note_missing([("orders", 0)])
        assert "up to offset 30" in manager.failures["orders", 0]

    def test_s73_logs_of_a_lost_directory_are_not_replaced_by_empty_ones(self, start, without_orders):
        manager = start()
        manager.note_missing([("orders", 1)], ["/elsewhere"])
        with pytest.raises(KafkaError, match=r"orders-1 has no log; it may be in /elsewhere, which is missing"):
            make_log(manager, "orders", 1, TOPIC_ID, SMALL)
        manager.begin_anew("orders", 1)  # another replica leads the partition, and this replica is not in the ISR
        assert make_log(manager, "orders", 1, TOPIC_ID, SMALL).log_end_offset == 0
        manager.close()

    def test_acknowledged_records_count_that_were_never_synced(self, start, tmp_path):
        manager = start()
        fill(make_log(manager, "orders", 0, TOPIC_ID, SMALL), 30)
        manager.checkpoint_high_watermarks({("orders", 0): 28})
        crash(manager)
        shutil.rmtree(tmp_path / "data" / "orders-0")
        manager = start()
        manager.note_missing([("orders", 0)])
        assert "up to offset 28" in manager.failures["orders", 0]

    def test_the_loss_can_be_accepted_as_the_message_says(self, start, without_orders):
        (without_orders / "recovery-point-offset-checkpoint").write_text("0\n1\norders 1 0\n")
        manager = start()
        manager.note_missing([("orders", 0)])
        assert make_log(manager, "orders", 0, TOPIC_ID, SMALL).log_end_offset == 0

    def test_the_topic_can_be_deleted_and_made_again(self, start, without_orders):
        manager = start()
        manager.note_missing([("orders", 0)])
        manager.delete("orders", 0)
        assert not manager.failures
        assert make_log(manager, "orders", 0, OTHER_ID, SMALL).log_end_offset == 0
        crash(manager)
        assert start().get("orders", 0).log_end_offset == 0

    def test_checkpoints_still_speak_of_a_log_that_was_deleted(self, start, tmp_path):
        """The broker was killed after a topic was deleted and re-created, before the new topic had a directory."""
        manager = start()
        fill(make_log(manager, "orders", 0, TOPIC_ID, SMALL), 30)
        manager.checkpoint_high_watermarks({("orders", 0): 30})
        manager.delete("orders", 0)
        crash(manager)
        manager = start()
        manager.note_missing([("orders", 0)])
        assert make_log(manager, "orders", 0, OTHER_ID, SMALL).log_end_offset == 0
