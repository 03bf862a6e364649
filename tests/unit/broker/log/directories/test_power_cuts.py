"""A start after a power cut, or after a kill and then a power cut, relies only on synced data."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from tests.support.crashing_disk import CrashingDisk, Killed
from tests.support.logs import make_log
from tests.support.storage import NOW, SMALL, contents, fill, log_files, open_log

from oncelog_broker.log.directories.log_changes import WantedLog
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.directories.partition_metadata import PARTITION_METADATA_FILE
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk
from oncelog_protocol.errors import KafkaError

TOPIC_ID = bytes(range(16))
OTHER_ID = bytes(range(1, 17))


class Watched(RealDisk):
    """Records which directories were synced, and the names in them at that time."""

    __slots__ = ("fails_to_replace", "synced")

    def __init__(self):
        self.synced = []
        self.fails_to_replace = None

    def sync_directory(self, path):
        super().sync_directory(path)
        self.synced.append((os.path.basename(path), sorted(os.listdir(path))))

    def replace_file(self, path, data, *, is_durable=True, private=False):
        if self.fails_to_replace is not None and path.startswith(self.fails_to_replace):
            raise OSError(errno.EIO, "Input/output error", path)
        super().replace_file(path, data, is_durable=is_durable, private=private)

    def names_in(self, directory):
        """Return the names in the directory at its last sync."""
        return [names for name, names in self.synced if name == directory][-1]


@pytest.fixture
def start(tmp_path):
    running = []

    def start(disk=None, directories=("data",)):
        manager = LogManager.open(
            [tmp_path / name for name in directories], node_id=1, cluster_id="c", disk=disk or RealDisk(),
            clock=ManualClock(NOW), config_of=lambda topic: SMALL,
        )  # fmt: skip
        running.append(manager)
        return manager

    yield start
    for manager in running:
        kill(manager)


def kill(manager):
    for log in manager.logs():
        log.abandon()
    for directory in manager._directories:
        directory.close(clean=False)


def checkpoint_of(tmp_path, name, directory="data"):
    return (tmp_path / directory / name).read_text().splitlines()[2:]


def test_renames_of_a_killed_process_are_synced_first(start):
    kill(start())
    disk = Watched()
    start(disk)
    assert [name for name, _ in disk.synced][:1] == ["data"]


def test_a_log_start_is_written_down_as_long_as_deleted_segments_may_come_back(start, tmp_path):
    manager = start()
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 30)
    start_offset = log.segment_base_offsets[1]
    log.trimmer.delete_records_before(start_offset)
    assert log.segment_base_offsets[0] == start_offset
    manager.checkpoint_log_start_offsets()
    assert checkpoint_of(tmp_path, "log-start-offset-checkpoint") == [f"orders 0 {start_offset}"]
    log.flusher.flush()
    manager.checkpoint_log_start_offsets()
    assert checkpoint_of(tmp_path, "log-start-offset-checkpoint") == []


def test_a_log_start_is_noted_when_the_names_of_deleted_segments_are_gone_for_good(start):
    """Followers report their log start to the leader. The leader then confirms to the client that the records before
    that offset are deleted.
    """
    manager = start()
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 30)
    _, second, third, *_ = log.segment_base_offsets
    log.trimmer.delete_records_before(second)
    assert log.state.durable_start_offset == 0
    pending = log.flusher.prepare_flush()
    log.trimmer.delete_records_before(third)
    pending.sync()
    log.flusher.finish_flush(pending)
    assert (log.state.durable_start_offset, log.log_start_offset) == (second, third)
    log.flusher.flush()
    assert log.state.durable_start_offset == third
    manager.checkpoint_log_start_offsets()
    assert log.state.durable_start_offset == third


def test_a_log_that_was_cut_below_its_noted_start_keeps_what_it_gets_then(start):
    """A follower of an out-of-sync leader truncates its log below the log start. If a log ended before its log start, a
    restart would empty the log.
    """
    manager = start()
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 30)
    log.trimmer.delete_records_before(20)
    manager.checkpoint_log_start_offsets()
    log.trimmer.truncate_to(5)
    fill(log, 7)
    log.flusher.flush()
    kept = contents(log)
    kill(manager)
    (log,) = start().logs()
    assert contents(log) == kept
    assert (log.log_start_offset, log.log_end_offset) == (5, 12)


def test_a_log_start_that_is_being_written_down_does_not_outlive_a_cut_below_it(start, tmp_path):
    """One thread truncates the log after another thread has read its log start."""

    class CutsMeanwhile(RealDisk):
        """A disk on which another thread truncates the log just before the log starts are written."""

        def replace_file(self, path, data, **options):
            if path.endswith("log-start-offset-checkpoint") and not cutting.ident:
                cutting.start()
                assert has_cut.wait(60)
            super().replace_file(path, data, **options)

    def cut():
        log.trimmer.truncate_to(5)
        has_cut.set()

    def after_truncation(log):
        has_cut.set()
        lower(log)

    has_cut, cutting = threading.Event(), threading.Thread(target=cut)
    manager = start(CutsMeanwhile())
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    lower, log.trimmer.after_truncation = log.trimmer.after_truncation, after_truncation
    fill(log, 30)
    log.trimmer.delete_records_before(20)
    manager.checkpoint_log_start_offsets()
    cutting.join(60)
    assert checkpoint_of(tmp_path, "log-start-offset-checkpoint") == ["orders 0 5"]
    assert log.state.durable_start_offset == log.log_start_offset == 5
    fill(log, 7)
    kept = contents(log)
    kill(manager)
    (log,) = start().logs()
    assert contents(log) == kept


def test_a_log_that_returns_does_not_begin_before_its_start(start):
    """DeleteRecords removed some unsynced records before the log's disk failed. New records that get the offsets of
    lost records must not count as records before the log start.
    """
    manager = start()
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 30)
    log.flusher.flush(10)
    log.trimmer.delete_records_before(20)
    manager.checkpoint_log_start_offsets()
    log.flusher.flush_failed(OSError(errno.EIO, "Input/output error"))
    assert manager.begin_return(WantedLog("orders", 0, TOPIC_ID, SMALL), 0)
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 3)
    log.flusher.flush()
    kept = contents(log)
    kill(manager)
    (log,) = start().logs()
    assert contents(log) == kept
    assert (log.log_start_offset, log.log_end_offset) == (20, 23)


COMPACTED = replace(SMALL, cleanup_policy=frozenset({"compact"}))


def synced_log_that_failed(manager):
    """Create a compacted log that was fully synced and checkpointed before its disk failed."""
    log = make_log(manager, "orders", 0, TOPIC_ID, COMPACTED)
    fill(log, 30)
    log.flusher.flush()
    manager.checkpoint_recovery_points()
    log.flusher.flush_failed(OSError(errno.EIO, "Input/output error"))


def test_a_compacted_log_whose_return_fails_halfway_returns_the_next_time(start, tmp_path):
    """The log was truncated completely, and every later attempt to reopen it reported its records as missing (found by
    seed 5000 of the simulation).
    """
    disk = Watched()
    manager = start(disk)
    synced_log_that_failed(manager)
    disk.fails_to_replace = str(tmp_path / "data" / "orders-0" / "leader-epoch-checkpoint")
    wanted = WantedLog("orders", 0, TOPIC_ID, COMPACTED)
    assert manager.begin_return(wanted, 0)
    with pytest.raises(KafkaError, match="could not truncate"):
        make_log(manager, "orders", 0, TOPIC_ID, COMPACTED)
    disk.fails_to_replace = None
    assert manager.begin_return(wanted, 0)
    log = make_log(manager, "orders", 0, TOPIC_ID, COMPACTED)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)


def test_a_compacted_log_that_returned_just_before_a_kill_is_opened(start):
    """No checkpoint was written after the log was truncated to its log start."""
    manager = start()
    synced_log_that_failed(manager)
    assert manager.begin_return(WantedLog("orders", 0, TOPIC_ID, COMPACTED), 0)
    make_log(manager, "orders", 0, TOPIC_ID, COMPACTED)
    kill(manager)
    (log,) = start().logs()
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)


def test_a_log_start_that_was_found_after_a_kill_is_noted_again(start, tmp_path):
    manager = start()
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 30)
    log.flusher.flush()
    log.trimmer.delete_records_before(log.segment_base_offsets[1])
    kill(manager)
    manager = start()
    (log,) = manager.logs()
    assert log.state.durable_start_offset == 0 < log.log_start_offset == log.segment_base_offsets[0]
    manager.checkpoint_log_start_offsets()
    assert log.state.durable_start_offset == log.log_start_offset
    manager.close()
    manager = start()
    (log,) = manager.logs()
    assert log.state.durable_start_offset == log.log_start_offset == log.segment_base_offsets[0] > 0


def test_a_segment_that_returns_below_the_first_one_counts_as_unsynced(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 30)
    first, second, *_ = log.segment_base_offsets
    log.close()
    for path in (tmp_path / "orders-0").glob(f"{first:020}.*"):
        path.unlink()
    log = open_log(tmp_path / "orders-0", recovery_point=second - 1, log_start_offset=second)
    assert log.recovery_point == second - 1
    log.flusher.flush()
    assert log.recovery_point == 30


def test_records_that_were_deleted_are_no_loss_below_the_recovery_point(tmp_path):
    """A power cut interrupted the emptying of the log: the newest segments are deleted, but older ones reappeared."""
    directory = tmp_path / "orders-0"
    log = open_log(directory)
    fill(log, 30)
    log.close()
    for name in log_files(directory)[1:]:
        for path in directory.glob(name.replace(".log", ".*")):
            path.unlink()
    log = open_log(directory, recovery_point=25, log_start_offset=28)
    assert (log.log_start_offset, log.log_end_offset, contents(log)) == (28, 28, [])


def test_emptying_a_log_may_be_interrupted_at_any_change():
    interrupted = 0
    for changes in range(60):
        disk = CrashingDisk(Random(changes))
        manager = LogManager.open(
            ["/data"], node_id=1, cluster_id="c", disk=disk, clock=ManualClock(NOW), config_of=lambda topic: SMALL
        )
        log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
        fill(log, 30)
        log.flusher.flush()
        log.trimmer.delete_records_before(log.segment_base_offsets[-1])
        log.flusher.flush()
        manager.checkpoint_recovery_points()
        manager.checkpoint_log_start_offsets()
        log.trimmer.truncate_to(log.segment_base_offsets[-1] + 1)
        disk.changes_left = changes
        with suppress(Killed):
            log.trimmer.truncate_fully_and_start_at(40)
        interrupted += disk.changes_left < 0
        disk.kill()
        manager = LogManager.open(
            ["/data"], node_id=1, cluster_id="c", disk=disk, clock=ManualClock(NOW), config_of=lambda topic: SMALL
        )
        assert manager.failures == {}, changes
    assert 10 < interrupted < 60


class FailingNames(CrashingDisk):
    """A disk on which the data directory cannot be synced, as long as `fails` is True. A later sync does not make the
    renames durable that the failed sync has lost, unless the directory is renamed again.
    """

    fails = False
    lost = ()

    def sync_directory(self, path):
        if self.fails and path == "/data":
            self.lost = list(self._unsynced_moves)
            raise OSError(errno.EIO, "Input/output error", path)
        super().sync_directory(path)
        if path == "/data":
            self._unsynced_moves += [move for move in self.lost if self.exists(move[1])]


@pytest.mark.parametrize("is_retried", [False, True], ids=["first attempt", "retry"])
@pytest.mark.parametrize("is_power_cut", [False, True], ids=["kill", "power cut"])
def test_discarding_a_log_whose_name_was_not_synced_may_be_interrupted_at_any_change(is_power_cut, is_retried):
    """Seed 301005: a kill had left the newer segments, which the next start took for a log with a later start. A retry
    comes after a failed sync of the directory's new name.
    """
    interrupted, config = 0, replace(SMALL, cleanup_policy=frozenset({"compact"}))
    for changes in range(40):
        disk = FailingNames(Random(changes))
        manager = LogManager.open(
            ["/data"], node_id=1, cluster_id="c", disk=disk, clock=ManualClock(NOW), config_of=lambda topic: config
        )
        log = make_log(manager, "orders", 0, TOPIC_ID, config)
        fill(log, 30)
        disk.fails = True
        with pytest.raises(KafkaError):
            log.flusher.flush()
        assert manager.begin_return(WantedLog("orders", 0, TOPIC_ID, config), 0)
        if is_retried:
            with pytest.raises(KafkaError):
                make_log(manager, "orders", 0, TOPIC_ID, config)
            assert manager.begin_return(WantedLog("orders", 0, TOPIC_ID, config), 0)
        disk.fails = False
        disk.changes_left = changes
        with suppress(Killed):
            assert make_log(manager, "orders", 0, TOPIC_ID, config).log_end_offset == 0
        interrupted += disk.changes_left < 0
        disk.cut_power() if is_power_cut else disk.kill()
        manager = LogManager.open(
            ["/data"], node_id=1, cluster_id="c", disk=disk, clock=ManualClock(NOW), config_of=lambda topic: config
        )
        for log in manager.logs():
            assert log.segment_base_offsets[0] == 0, changes
            assert [record[0] for record in contents(log)] == list(range(log.log_end_offset)), changes
    assert 10 < interrupted < 40


@pytest.mark.parametrize("is_discarded", [False, True], ids=["deletion", "discarded log"])
def test_a_deleted_log_whose_new_name_was_not_synced_is_freed_and_never_comes_back(is_discarded):
    """The deletion is retried, or follows an attempt to discard the log."""
    interrupted, config, clock = 0, replace(SMALL, cleanup_policy=frozenset({"compact"})), ManualClock(NOW)
    for changes in range(30):
        disk = FailingNames(Random(changes))
        manager = LogManager.open(
            ["/data"], node_id=1, cluster_id="c", disk=disk, clock=clock, config_of=lambda topic: config
        )
        log = make_log(manager, "orders", 0, TOPIC_ID, config)
        fill(log, 30)
        disk.fails = is_discarded
        with suppress(KafkaError):
            log.flusher.flush()
        disk.fails = True
        if is_discarded:
            assert manager.begin_return(WantedLog("orders", 0, TOPIC_ID, config), 0)
        with pytest.raises(KafkaError):
            make_log(manager, "orders", 0, TOPIC_ID, config) if is_discarded else manager.delete("orders", 0)
        assert "orders-0" not in disk.list_directory("/data")
        disk.fails = False
        manager.delete("orders", 0)
        clock.advance_ms(config.file_delete_delay_ms)
        disk.changes_left = changes
        with suppress(Killed):
            assert manager.purge_deleted(clock.monotonic()) == 1
            assert not [name for name in disk.list_directory("/data") if name.startswith("orders")]
        interrupted += disk.changes_left < 0
        disk.cut_power()
        assert "orders-0" not in disk.list_directory("/data"), changes
    assert 5 < interrupted < 30


def test_a_topic_re_created_in_another_data_directory_is_not_missed(start, tmp_path):
    manager = start(directories=("one", "two"))
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 3)
    log.flusher.flush()
    manager.checkpoint_recovery_points()
    manager.checkpoint_high_watermarks({("orders", 0): 3})
    manager.delete("orders", 0)
    make_log(manager, "others", 0, TOPIC_ID, SMALL)
    log = make_log(manager, "orders", 0, OTHER_ID, SMALL)
    assert log.directory == str(tmp_path / "two" / "orders-0")
    kill(manager)
    shutil.rmtree(log.directory)
    for path in (tmp_path / "one").glob("*-delete"):
        shutil.rmtree(path)
    manager = start(directories=("one", "two"))
    manager.note_missing([("orders", 0)])
    assert manager.failures == {}


def test_a_disk_that_failed_does_not_keep_a_topic_from_another(start, tmp_path):
    disk = Watched()
    manager = start(disk, directories=("one", "two"))
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 3)
    manager.checkpoint_high_watermarks({("orders", 0): 3})
    manager.delete("orders", 0)
    make_log(manager, "others", 0, TOPIC_ID, SMALL)
    disk.fails_to_replace = str(tmp_path / "one")
    assert make_log(manager, "orders", 0, OTHER_ID, SMALL).directory == str(tmp_path / "two" / "orders-0")


def test_a_log_that_was_set_aside_is_not_missed(start, tmp_path):
    manager = start()
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 3)
    log.flusher.flush()
    manager.checkpoint_recovery_points()
    manager.checkpoint_high_watermarks({("orders", 0): 3})
    manager.set_aside("orders", 0)
    kill(manager)
    manager = start()
    manager.note_missing([("orders", 0)])
    assert manager.failures == {}


def test_renames_of_deleted_and_stray_logs_are_synced(start):
    disk = Watched()
    manager = start(disk)
    for partition in range(2):
        make_log(manager, "orders", partition, TOPIC_ID, SMALL)
    manager.delete("orders", 0)
    manager.set_aside("orders", 1)
    names = [name for name in disk.names_in("data") if name.startswith("orders")]
    assert [name.rpartition("-")[2] for name in names] == ["delete", "stray"]


def test_renames_of_stray_logs_at_a_start_are_synced(start, tmp_path):
    manager = start()
    fill(make_log(manager, "orders", 0, TOPIC_ID, SMALL), 3)
    kill(manager)
    (tmp_path / "data" / "orders-0" / PARTITION_METADATA_FILE).write_bytes(b"")
    disk = Watched()
    start(disk)
    (name,) = [name for name in disk.names_in("data") if name.startswith("orders")]
    assert name.endswith("-stray")


@pytest.mark.parametrize("topic_id", [TOPIC_ID, None])
def test_a_directory_that_was_there_is_synced_before_it_is_used(start, tmp_path, topic_id):
    """An earlier creation of the log failed after it had created the directory."""
    disk = Watched()
    manager = start(disk)
    (tmp_path / "data" / "orders-0").mkdir()
    disk.synced.clear()
    make_log(manager, "orders", 0, topic_id, SMALL)
    assert "orders-0" in disk.names_in("data")
    if topic_id is not None:
        assert PARTITION_METADATA_FILE in disk.names_in("orders-0")


def test_records_given_up_by_a_follower_do_not_come_back():
    """After the truncation, the leader gives the truncated offsets to other records."""
    for seed in range(20):
        disk = CrashingDisk(Random(seed))
        log = open_log("/logs/orders-0", disk=disk)
        for directory in ("/", "/logs"):
            disk.sync_directory(directory)
        fill(log, 30)
        log.flusher.flush()
        log.trimmer.truncate_to(13)
        disk.cut_power()
        log = open_log("/logs/orders-0", disk=disk, recovery_point=log.recovery_point)
        assert log.log_end_offset == 13, seed


def test_a_disk_that_fails_keeps_no_checkpoint_of_another_one_back(start, tmp_path):
    disk = Watched()
    manager = start(disk, directories=("one", "two"))
    logs = [make_log(manager, name, 0, TOPIC_ID, SMALL) for name in ("orders", "payments")]
    bad, good = (next(log for log in logs if f"/{name}/" in log.directory) for name in ("one", "two"))
    for log in logs:
        fill(log, 3)
        log.flusher.flush()
        log.trimmer.delete_records_before(2)
    disk.fails_to_replace = str(tmp_path / "one")
    for checkpoint in (
        manager.checkpoint_recovery_points,
        manager.checkpoint_log_start_offsets,
        lambda: manager.checkpoint_high_watermarks({(log.topic, 0): 3 for log in logs}),
    ):
        with pytest.raises(OSError, match="error"):
            checkpoint()
    assert (bad.state.durable_start_offset, good.state.durable_start_offset) == (0, 2)
    for name, offset in {"recovery-point": 3, "log-start": 2, "replication": 3}.items():
        assert checkpoint_of(tmp_path, f"{name}-offset-checkpoint", "two") == [f"{good.topic} 0 {offset}"]
    with pytest.raises(OSError, match="error"):
        manager.close()
    manager = start(directories=("one", "two"))
    assert [directory.clean_shutdown for directory in manager._directories] == [False, True]
