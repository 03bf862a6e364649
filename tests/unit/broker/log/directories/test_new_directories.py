"""A power cut may lose the unsynced directories of logs, and a directory may fail to be synced."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event
from types import SimpleNamespace

import pytest
from tests.support.logs import make_log
from tests.support.storage import NOW, SMALL, fill

from oncelog_broker.log.directories.log_changes import WantedLog
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.directories.partition_metadata import PARTITION_METADATA_FILE, partition_metadata
from oncelog_broker.log.new_directory import NewDirectory
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk, RealFile
from oncelog_protocol.errors import ErrorCode, KafkaError

TOPIC_ID = bytes(range(16))
OTHER_ID = bytes(range(1, 17))
WHOLE = partition_metadata(TOPIC_ID)
CUT = [b"", WHOLE[:5], WHOLE[:-1], bytes(len(WHOLE)), WHOLE[:12] + bytes(len(WHOLE) - 12)]


class FailingSync(RealDisk):
    """A disk on which the identity file of a log cannot be synced."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        return FailingFile(path, create=create)


class FailingFile(RealFile):
    def sync(self) -> None:
        if self.path.endswith(PARTITION_METADATA_FILE):
            raise OSError(errno.EIO, "Input/output error")
        super().sync()


@pytest.fixture
def start(tmp_path):
    running = []

    def start(disk=None, data=tmp_path / "data"):
        manager = LogManager.open(
            [data], node_id=1, cluster_id="c", disk=disk or RealDisk(), clock=ManualClock(NOW),
            config_of=lambda topic: SMALL,
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


def tear(tmp_path, left):
    (tmp_path / "data" / "orders-0" / PARTITION_METADATA_FILE).write_bytes(left)


@pytest.mark.parametrize("left", CUT)
def test_records_of_an_unknown_topic_id_are_set_aside(start, tmp_path, left):
    manager = start()
    fill(make_log(manager, "orders", 0, TOPIC_ID, SMALL), 3)
    kill(manager)
    tear(tmp_path, left)
    manager = start()
    assert manager.failures == {}
    assert manager.partitions() == []
    (aside,) = [path for path in (tmp_path / "data").iterdir() if path.is_dir()]
    assert aside.name.endswith("-stray")
    assert any(path.stat().st_size for path in aside.glob("*.log"))
    assert make_log(manager, "orders", 0, OTHER_ID, SMALL).log_end_offset == 0


@pytest.mark.parametrize("left", CUT)
def test_an_empty_log_is_identified_again(start, tmp_path, left):
    manager = start()
    make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    kill(manager)
    tear(tmp_path, left)
    manager = start()
    assert manager.failures == {}
    make_log(manager, "orders", 0, OTHER_ID, SMALL)
    assert (tmp_path / "data" / "orders-0" / PARTITION_METADATA_FILE).read_bytes() == partition_metadata(OTHER_ID)


@pytest.mark.parametrize("left", [*CUT, b"version: 0\ntopic_id: not-one", b"junk"])
def test_damage_to_synced_files_is_left_to_an_operator(start, tmp_path, left):
    manager = start()
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 3)
    log.flusher.flush()
    manager.checkpoint_recovery_points()
    kill(manager)
    tear(tmp_path, left)
    manager = start()
    assert PARTITION_METADATA_FILE in manager.failures["orders", 0]


def test_no_checkpoint_names_a_log_that_cannot_be_synced(start, tmp_path):
    manager = start(FailingSync())
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 3)
    manager.checkpoint_high_watermarks({("orders", 0): 3})
    assert "orders" not in (tmp_path / "data" / "replication-offset-checkpoint").read_text()
    with pytest.raises(KafkaError) as caught:
        log.flusher.flush()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.is_offline
    assert log.recovery_point == 0


def test_a_log_deleted_before_its_sync_delays_no_other(start):
    manager = start()
    directory = make_log(manager, "orders", 0, TOPIC_ID, SMALL).flusher.new_directory
    manager.delete("orders", 0)
    directory.sync()
    assert directory.failure is None


def test_the_next_process_syncs_logs_that_a_killed_one_made(start, tmp_path, monkeypatch):
    manager = start()
    fill(make_log(manager, "orders", 0, TOPIC_ID, SMALL), 3)
    kill(manager)
    manager = start()
    synced = []
    monkeypatch.setattr(RealDisk, "sync_directory", lambda self, path: synced.append(os.path.basename(path)))
    manager.get("orders", 0).flusher.flush()
    assert synced.index("orders-0") < synced.index("data")


def test_a_log_that_cannot_be_synced_goes_offline_soon(start):
    """The log goes offline immediately, because the log's first flush, which would fail too, may be days away."""
    manager = start(FailingSync())
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 3)
    assert manager.upkeep.logs_due_for_flush() == []
    manager.checkpoint_high_watermarks({("orders", 0): 3})
    assert manager.upkeep.logs_due_for_flush() == [log]


def test_an_empty_log_that_cannot_be_synced_goes_offline_too(start):
    manager = start(FailingSync())
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    manager._checkpoints.sync_new([("orders", 0)])
    assert manager.upkeep.logs_due_for_flush() == [log]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_sync_without_a_free_descriptor_is_retried(start, tmp_path, number):
    disk = NoDescriptors()
    manager = start(disk)
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 3)
    disk.number = number
    manager.checkpoint_high_watermarks({("orders", 0): 3})
    assert "orders" not in (tmp_path / "data" / "replication-offset-checkpoint").read_text()
    assert manager.upkeep.logs_due_for_flush() == []
    disk.number = None
    manager.checkpoint_high_watermarks({("orders", 0): 3})
    assert "orders 0 3" in (tmp_path / "data" / "replication-offset-checkpoint").read_text()
    log.flusher.flush()
    assert log.recovery_point == 3


class NoDescriptors(RealDisk):
    """A disk that has no file descriptor left for the identity file of a log."""

    __slots__ = ("number",)

    def __init__(self):
        self.number = None

    def open_briefly(self, path, *, create=False):
        if self.number is not None and path.endswith(PARTITION_METADATA_FILE):
            raise OSError(self.number, os.strerror(self.number), path)
        return super().open_briefly(path, create=create)


def test_no_log_start_counts_as_noted_before_it_is_on_the_disk(start, tmp_path):
    """The broker confirms to a client, and a follower to its leader, that deleted records are permanently gone."""
    manager = start(FailingSync())
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 3)
    log.trimmer.delete_records_before(2)
    manager.checkpoint_log_start_offsets()
    assert "orders" not in (tmp_path / "data" / "log-start-offset-checkpoint").read_text()
    assert log.state.durable_start_offset == 0


def test_no_note_of_a_deleted_log_applies_to_its_successor(start, tmp_path):
    """The broker collects the high watermarks, then syncs the new logs, and then writes the high watermarks. A topic
    may be deleted and re-created between these steps.
    """
    manager = start()
    fill(make_log(manager, "orders", 0, TOPIC_ID, SMALL), 3)
    fill(make_log(manager, "others", 0, TOPIC_ID, SMALL), 3)
    write = manager.begin_high_watermarks({("orders", 0): 3, ("others", 0): 2})
    manager.delete("orders", 0)
    make_log(manager, "orders", 0, OTHER_ID, SMALL)
    write()
    assert "orders 0 0\nothers 0 2\n" in (tmp_path / "data" / "replication-offset-checkpoint").read_text()


def test_two_concurrent_syncs_both_learn_of_a_failure(tmp_path):
    """The kernel reports the failure of a write-back only once."""
    disk = FailingOnce()
    directory = NewDirectory(disk, str(tmp_path / "orders-0"), {PARTITION_METADATA_FILE: WHOLE})
    os.mkdir(directory.path)
    directory.begin()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(directory.sync)
        assert disk.is_syncing.wait(10)
        second = threads.submit(directory.sync)
        assert not wait([second], timeout=0.2).done
        disk.may_go_on.set()
        assert isinstance(first.exception(10), OSError)
        assert isinstance(second.exception(10), OSError)
    assert not directory.is_synced


class FailingOnce(RealDisk):
    """A disk on which the first fsync of a file waits and then fails."""

    __slots__ = ("is_syncing", "may_go_on")

    def __init__(self):
        self.is_syncing = Event()
        self.may_go_on = Event()

    def open_briefly(self, path, *, create=False):
        file = super().open_briefly(path, create=create)
        if self.is_syncing.is_set():
            return file
        return SimpleNamespace(sync=self.fail, close=file.close)

    def fail(self):
        self.is_syncing.set()
        self.may_go_on.wait(10)
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("left", [WHOLE, *CUT])
def test_a_log_that_returns_is_on_the_disk_before_it_is_used(start, tmp_path, left):
    """The log could not be opened after a kill, so it is unknown whether its directory was synced."""
    manager = start()
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 3)
    kill(manager)
    disk = Watched()
    disk.refuses = "00000000000000000000.log"
    manager = start(disk)
    assert ("orders", 0) in manager.failures
    disk.refuses = None
    tear(tmp_path, left)
    disk.synced.clear()
    wanted = WantedLog("orders", 0, TOPIC_ID, SMALL)
    assert manager.begin_return(wanted, 0)
    assert make_log(manager, "orders", 0, TOPIC_ID, SMALL).log_end_offset == 0
    assert disk.synced.index("orders-0") < len(disk.synced) - 1 - disk.synced[::-1].index("data")
    assert (tmp_path / "data" / "orders-0" / PARTITION_METADATA_FILE).read_bytes() == WHOLE


class Watched(RealDisk):
    """Records which directories were synced; opening the file named in `refuses` fails with EIO."""

    __slots__ = ("before", "refuses", "synced")

    def __init__(self):
        self.synced = []
        self.refuses = None
        self.before = lambda path: None

    def open(self, path, *, create=False):
        if self.refuses is not None and path.endswith(self.refuses):
            raise OSError(errno.EIO, "Input/output error", path)
        return super().open(path, create=create)

    def sync_directory(self, path):
        self.before(path)
        self.synced.append(os.path.basename(path))
        super().sync_directory(path)


def test_other_checkpoints_are_written_while_new_logs_are_synced(start):
    disk = Watched()
    manager = start(disk)
    for partition in range(3):
        fill(make_log(manager, "orders", partition, TOPIC_ID, SMALL), 1)
    (home,) = manager._directories
    seen = []

    def note(path):
        if "orders" in path:
            seen.append(home.checkpoint_guard.locked())

    disk.before = note
    manager.checkpoint_high_watermarks({("orders", partition): 1 for partition in range(3)})
    assert seen == [False] * 3


def test_closing_syncs_the_data_directory_once_for_all_that_are_new(start):
    syncs = []
    for count in (1, 20):
        disk = Watched()
        manager = start(disk)
        for partition in range(count):
            fill(make_log(manager, f"orders{count}", partition, TOPIC_ID, SMALL), 1)
        disk.synced.clear()
        manager.close()
        syncs.append(disk.synced.count("data"))
    assert syncs[0] == syncs[1]


def test_the_parent_of_a_new_data_directory_is_synced(start, tmp_path):
    disk = Watched()
    start(disk, tmp_path / "one" / "two" / "data")
    first = [disk.synced.index(name) for name in (tmp_path.name, "one", "two", "data")]
    assert first == sorted(first)


def test_the_parent_of_an_unused_data_directory_is_synced(start, tmp_path):
    """The process that created the directory may have been killed before it synced the parent directory."""
    (tmp_path / "data").mkdir()
    disk = Watched()
    manager = start(disk)
    assert tmp_path.name in disk.synced
    manager.close()
    disk.synced.clear()
    start(disk)
    assert tmp_path.name not in disk.synced


@pytest.mark.parametrize("number", [errno.EACCES, errno.EINVAL, errno.EROFS])
def test_a_data_directory_whose_parent_cannot_be_synced_is_used(start, tmp_path, number):
    (tmp_path / "data").mkdir()
    disk = Watched()

    def refuse(path):
        if path == str(tmp_path):
            raise OSError(number, os.strerror(number), path)

    disk.before = refuse
    assert start(disk).failures == {}


def test_a_failed_fsync_is_not_retried(tmp_path):
    disk = FailingOnce()
    disk.may_go_on.set()
    directory = NewDirectory(disk, str(tmp_path / "orders-0"), {PARTITION_METADATA_FILE: WHOLE})
    os.mkdir(directory.path)
    directory.begin()
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            directory.sync()


class ForgettingNames(RealDisk):
    """A disk on which the next fsync of the directory `failing` fails, and later ones succeed."""

    __slots__ = ("failing",)

    def __init__(self):
        self.failing = ""

    def sync_directory(self, path):
        if self.failing == path:
            self.failing = ""
            raise OSError(errno.EIO, "Input/output error", path)
        super().sync_directory(path)


@pytest.mark.parametrize("asked_by", ["another log", "a checkpoint", "a deletion"])
def test_e46_a_failed_fsync_of_a_data_directory_counts_for_all_new_names_in_it(start, asked_by):
    disk = ForgettingNames()
    manager = start(disk)
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    others = make_log(manager, "others", 0, TOPIC_ID, SMALL)
    disk.failing = manager.data_directories()[0]
    if asked_by == "another log":
        with pytest.raises(OSError, match="Input/output error"):
            others.flusher.new_directory.sync()
    elif asked_by == "a checkpoint":
        with pytest.raises(OSError, match="Input/output error"):
            manager._directories[0].write_checkpoint("replication-offset-checkpoint", {})
    else:
        with pytest.raises(KafkaError):
            manager.delete("others", 0)
    with pytest.raises(OSError, match="Input/output error"):
        log.flusher.new_directory.sync()
    assert not log.flusher.new_directory.is_synced
    make_log(manager, "later", 0, TOPIC_ID, SMALL).flusher.new_directory.sync()


def test_a_new_log_is_to_be_flushed_whatever_else_is_synced(start):
    log = make_log(start(), "orders", 0, TOPIC_ID, SMALL)
    log.local.directory_dirty = False
    pending = log.flusher.prepare_flush()
    assert pending is not None
    pending.sync()
    log.flusher.finish_flush(pending)
    assert log.flusher.prepare_flush() is None
