"""A sync of the records (group commit) syncs log files and their names; the next flush syncs everything else."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.support.storage import FaultyDisk, fill, open_log

from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.runtime.disk import RealDisk, RealFile
from oncelog_protocol.errors import ErrorCode, KafkaError


class WatchedFile(RealFile):
    __slots__ = ("disk",)
    disk: WatchedDisk

    def sync(self) -> None:
        self.disk.synced.append(os.path.basename(self.path))
        super().sync()


class WatchedDisk(RealDisk):
    """Records the names of the files and directories that were synced."""

    __slots__ = ("synced",)

    def __init__(self) -> None:
        self.synced: list[str] = []

    def open(self, path: str, *, create: bool = False) -> WatchedFile:
        file = WatchedFile(path, create=create)
        file.disk = self
        return file

    def sync_directory(self, path: str) -> None:
        self.synced.append(os.path.basename(path))
        super().sync_directory(path)


def sync(log: PartitionLog) -> None:
    pending = log.flusher.prepare_sync()
    assert pending is not None
    pending.sync()
    log.flusher.finish_sync(pending)


def test_only_the_log_file_is_synced_and_its_name_once(tmp_path: Path) -> None:
    disk = WatchedDisk()
    log = open_log(tmp_path / "orders-0", disk=disk)
    fill(log, 3)
    disk.synced.clear()
    sync(log)
    assert disk.synced == ["00000000000000000000.log", "orders-0"]
    fill(log, 3, start=3)
    sync(log)
    assert disk.synced[2:] == ["00000000000000000000.log"]
    assert (log.state.synced_offset, log.recovery_point) == (6, 0)
    assert log.flusher.prepare_sync() is None, "everything is on the disk"
    log.close()


def test_all_segments_since_the_last_sync_are_synced(tmp_path: Path) -> None:
    disk = WatchedDisk()
    log = open_log(tmp_path / "orders-0", disk=disk)
    fill(log, 3)
    sync(log)
    disk.synced.clear()
    fill(log, 40, start=3)
    sync(log)
    names = [f"{base:020d}.log" for base in log.segment_base_offsets]
    assert len(names) > 2
    assert disk.synced == [*names, "orders-0"]
    log.close()


def test_a_flush_syncs_everything_nevertheless(tmp_path: Path) -> None:
    disk = WatchedDisk()
    log = open_log(tmp_path / "orders-0", disk=disk)
    fill(log, 10)
    sync(log)
    disk.synced.clear()
    log.flusher.flush()
    assert {"00000000000000000000.index", "00000000000000000000.log", "orders-0"} <= set(disk.synced)
    assert log.recovery_point == log.state.synced_offset == 10
    log.close()


def test_a_sync_that_a_truncation_has_overtaken_proves_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    fill(log, 6)
    pending = log.flusher.prepare_sync()
    assert pending is not None
    log.trimmer.truncate_to(2)
    fill(log, 6, start=2)
    pending.sync()
    log.flusher.finish_sync(pending)
    assert log.state.synced_offset <= 2
    log.trimmer.truncate_fully_and_start_at(100)
    assert log.state.synced_offset == log.log_end_offset == 100
    log.close()


def test_records_behind_a_truncation_are_not_synced_yet(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    fill(log, 6)
    sync(log)
    log.trimmer.truncate_to(2)
    fill(log, 2, start=2)
    assert log.state.synced_offset == 2
    sync(log)
    assert log.state.synced_offset == 4
    log.close()


def test_e26_a_failed_sync_is_remembered(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path / "orders-0", disk=disk)
    fill(log, 3)
    first, second = log.flusher.prepare_sync(), log.flusher.prepare_sync()
    assert first is not None
    assert second is not None
    disk.sync_fault = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        first.sync()
    disk.sync_fault = None
    with pytest.raises(OSError, match="Input/output error") as failed:
        second.sync()
    assert log.flusher.flush_failed(failed.value).code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.is_offline, log.state.synced_offset) == (True, 0)


def test_a_sync_during_which_the_log_went_offline_proves_nothing(tmp_path: Path) -> None:
    """Files that were closed meanwhile are not synced."""
    log = open_log(tmp_path / "orders-0")
    fill(log, 3)
    pending = log.flusher.prepare_sync()
    assert pending is not None
    log.state.fail("append to", OSError(errno.EIO, "Input/output error"))
    log.abandon()
    pending.sync()
    with pytest.raises(KafkaError) as failed:
        log.flusher.finish_sync(pending)
    assert (failed.value.code, log.state.synced_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
