"""A failed flush is remembered, because the kernel reports a lost write only once, and later fsyncs prove nothing
(E26).
"""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest
from tests.support.logs import make_log
from tests.support.storage import SMALL, fill, open_log

from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk, RealFile
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.upkeep.flushing import flush
from oncelog_protocol.errors import ErrorCode, KafkaError

RECOVERY_POINTS = "recovery-point-offset-checkpoint"


class ForgettingFile(RealFile):
    __slots__ = ("disk",)
    disk: ForgettingDisk

    def sync(self) -> None:
        if self.path.endswith(".log"):
            self.disk.sync_log(self.path)


class ForgettingDisk(RealDisk):
    """A disk on which the first fsync of a log file waits and then fails. Later fsyncs succeed, because no data is left
    to write.
    """

    __slots__ = ("is_in_first", "may_fail", "syncs")

    def __init__(self) -> None:
        self.syncs = 0
        self.is_in_first = threading.Event()
        self.may_fail = threading.Event()

    def open(self, path: str, *, create: bool = False) -> ForgettingFile:
        file = ForgettingFile(path, create=create)
        file.disk = self
        return file

    def sync_log(self, path: str) -> None:
        self.syncs += 1
        if self.syncs == 1:
            self.is_in_first.set()
            self.may_fail.wait(20)
            raise OSError(errno.EIO, "Input/output error", path)

    async def until_in_first(self) -> None:
        assert await asyncio.to_thread(self.is_in_first.wait, 20)


@pytest.fixture
def disk() -> ForgettingDisk:
    return ForgettingDisk()


@pytest.fixture
def logs(tmp_path: Path, disk: ForgettingDisk) -> LogManager:
    return LogManager.open([tmp_path], node_id=1, cluster_id="c", disk=disk, clock=ManualClock())


@pytest.fixture
def log(logs: LogManager) -> PartitionLog:
    log = make_log(logs, "orders", 0, bytes([1]) * 16, SMALL)
    fill(log, 3)
    return log


async def test_e46_a_flush_that_waited_behind_a_failed_one_fails_too(
    logs: LogManager, log: PartitionLog, disk: ForgettingDisk, tmp_path: Path
) -> None:
    first = asyncio.ensure_future(flush(log))
    await disk.until_in_first()
    fill(log, 3, start=3)
    pending = log.flusher.prepare_flush()
    assert pending is not None
    second = asyncio.ensure_future(asyncio.to_thread(pending.sync))
    disk.may_fail.set()
    with pytest.raises(KafkaError, match="Input/output error"):
        await first
    with pytest.raises(OSError, match="Input/output error") as refused:
        await second
    assert log.flusher.flush_failed(refused.value).code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (disk.syncs, log.is_offline, log.recovery_point) == (1, True, 0)
    logs.checkpoint_recovery_points()
    assert "orders 0 0\n" in (tmp_path / RECOVERY_POINTS).read_text()


async def test_e46_a_flush_that_fails_while_the_broker_stops_is_no_clean_shutdown(
    logs: LogManager, log: PartitionLog, disk: ForgettingDisk, tmp_path: Path
) -> None:
    tasks = Tasks()
    tasks.spawn("log flush", flush(log))
    await disk.until_in_first()
    closing = asyncio.ensure_future(tasks.close())
    await asyncio.sleep(0)
    disk.may_fail.set()
    await closing
    assert log.is_offline, "whoever waited for the flush was cancelled, and the failure was noted all the same"
    logs.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert "orders 0 0\n" in (tmp_path / RECOVERY_POINTS).read_text()


def test_e46_a_failed_flush_that_nobody_has_finished_is_found_when_the_log_is_closed(
    logs: LogManager, log: PartitionLog, disk: ForgettingDisk, tmp_path: Path
) -> None:
    pending = log.flusher.prepare_flush()
    assert pending is not None
    disk.may_fail.set()
    with pytest.raises(OSError, match="Input/output error"):
        pending.sync()
    assert not log.is_offline
    logs.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert disk.syncs == 1, "no later fsync was asked"


def test_e46_a_failed_flush_of_an_unchanged_log_is_found_when_it_is_closed(
    disk: ForgettingDisk, tmp_path: Path
) -> None:
    """The log's directory or one of its files may have been synced for the first time, so closing must not skip the log
    as unchanged.
    """
    log = open_log(tmp_path / "orders-0")
    fill(log, 3)
    log.close()
    log = open_log(tmp_path / "orders-0", disk=disk, clean_shutdown=True)
    pending = log.flusher.prepare_flush()
    assert pending is not None
    disk.may_fail.set()
    with pytest.raises(OSError, match="Input/output error"):
        pending.sync()
    log.close()
    assert log.is_offline
    assert not log.is_cleanly_closed


def test_e46_a_flush_counts_for_nothing_once_its_log_is_offline(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    fill(log, 3)
    pending = log.flusher.prepare_flush()
    assert pending is not None
    pending.sync()
    log.flusher.flush_failed(OSError(errno.EIO, "Input/output error"))
    log.flusher.finish_flush(pending)
    assert log.recovery_point == 0
    log.abandon()
