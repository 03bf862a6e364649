"""A broker that stops syncs all its logs, however many of them have changed, and notices each failure."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.crashing_disk import CrashingDisk, Killed
from tests.support.logs import make_log
from tests.support.producers import produce
from tests.support.storage import NOW, SMALL, contents, fill

from oncelog_broker.log.directories import data_directory
from oncelog_broker.log.directories.closed_logs import CLOSED_LOGS_FILE
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk, RealFile

TOPIC_ID = bytes(range(16))
LOGS = 6
DATA = "/data"


class Syncs(RealDisk):
    """Counts the fsyncs of files and directories, and lets some of them fail."""

    def __init__(self, *, failing: str = "", whole: int | None = None) -> None:
        """The fsync of a path that contains `failing` fails; if `failing` is empty, none does. `whole` is None if the
        disk cannot sync its file system, 0 if this succeeds, and otherwise the number of the error.
        """
        self.synced: list[str] = []
        self.threads: set[threading.Thread] = set()
        self.failing, self.whole = failing, whole
        self.whole_syncs = 0

    def open(self, path: str, *, create: bool = False) -> RealFile:
        file = SyncsFile(path, create=create)
        file.disk = self
        return file

    def sync_directory(self, path: str) -> None:
        self.note(path)
        super().sync_directory(path)

    def note(self, path: str) -> None:
        self.synced.append(path)
        self.threads.add(threading.current_thread())
        if self.failing and self.failing in path:
            raise OSError(errno.EIO, "Input/output error", path)

    def watch_file_system(self, path: str) -> Any:
        return None if self.whole is None else self

    def sync(self) -> None:
        self.whole_syncs += 1
        if self.whole:
            raise OSError(self.whole, os.strerror(self.whole))

    def close(self) -> None: ...


class SyncsFile(RealFile):
    __slots__ = ("disk",)
    disk: Syncs

    def sync(self) -> None:
        self.disk.note(self.path)
        super().sync()


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_directory, "MANY_LOGS", LOGS)


def open_manager(data: Path | str, disk: Any) -> LogManager:
    return LogManager.open(
        [data], node_id=1, cluster_id="c", disk=disk, clock=ManualClock(NOW), config_of=lambda topic: SMALL
    )


def with_logs(data: Path | str, disk: Any) -> LogManager:
    manager = open_manager(data, disk)
    for partition in range(LOGS):
        log = make_log(manager, "orders", partition, TOPIC_ID, SMALL)
        fill(log, 3)
        produce(log, 100 + partition, 0)
    return manager


def check(manager: LogManager) -> None:
    """All logs were closed cleanly with their records and producers."""
    assert manager.was_closed_cleanly
    for partition in range(LOGS):
        log = manager.get("orders", partition)
        assert log is not None
        assert len(contents(log)) == 4
        assert log.recovery_point == 4
        assert log.producer_state.highest_id(2**60) == 100 + partition
        log.abandon()


def test_many_logs_are_synced_with_their_file_system(tmp_path: Path, few_are_many: None) -> None:
    disk = Syncs(whole=0)
    manager = with_logs(tmp_path, disk)
    disk.synced.clear()
    manager.close()
    assert disk.whole_syncs == 2
    assert {path for path in disk.synced if "orders-" in path} == set()
    check(open_manager(tmp_path, RealDisk()))


def test_few_logs_are_synced_file_by_file_in_several_threads(tmp_path: Path) -> None:
    disk = Syncs(whole=0)
    manager = with_logs(tmp_path, disk)
    disk.synced.clear()
    disk.threads.clear()
    manager.close()
    assert disk.whole_syncs == 0
    for partition in range(LOGS):
        assert sum(f"orders-{partition}/" in path for path in disk.synced) >= 4
        assert str(tmp_path / f"orders-{partition}") in disk.synced
    assert disk.synced.count(str(tmp_path)) < LOGS, "the names of all logs are synced together"
    assert len(disk.threads) > 1
    check(open_manager(tmp_path, RealDisk()))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_after_a_failed_sync_of_the_file_system_each_log_is_synced(
    tmp_path: Path, few_are_many: None, number: int
) -> None:
    disk = Syncs(whole=number)
    manager = with_logs(tmp_path, disk)
    disk.synced.clear()
    manager.close()
    assert all(str(tmp_path / f"orders-{partition}") in disk.synced for partition in range(LOGS))
    check(open_manager(tmp_path, RealDisk()))


def test_a_file_system_whose_sync_has_failed_is_never_synced_as_a_whole_again(
    tmp_path: Path, few_are_many: None
) -> None:
    """The kernel reports a failed write only once, so the next sync would succeed without the lost records."""
    disk = Syncs(whole=errno.EIO)
    manager = with_logs(tmp_path, disk)
    (home,) = manager._directories
    assert not home.sync_file_system(LOGS)
    disk.whole = 0  # the next sync would succeed
    assert not home.syncs_together(LOGS)
    assert not home.sync_file_system(LOGS)
    manager.close()
    assert all(str(tmp_path / f"orders-{partition}") in disk.synced for partition in range(LOGS))
    assert not (tmp_path / CLOSED_LOGS_FILE).exists(), "the next start opens all logs from their files"
    check(open_manager(tmp_path, RealDisk()))


@pytest.mark.parametrize("whole", [None, errno.EIO])
def test_a_log_that_could_not_be_synced_is_not_clean(tmp_path: Path, few_are_many: None, whole: int | None) -> None:
    manager = with_logs(tmp_path, Syncs(failing="orders-3/00000000000000000000.log", whole=whole))
    logs = {log.partition: log for log in manager.logs()}
    manager.close()
    assert {partition: log.is_cleanly_closed for partition, log in logs.items()} == {
        partition: partition != 3 for partition in range(LOGS)
    }
    after = open_manager(tmp_path, RealDisk())
    assert not after.was_closed_cleanly
    for log in after.logs():
        assert len(contents(log)) == 4
        log.abandon()


def test_a_log_whose_directory_could_not_be_synced_before_is_not_synced_with_the_others(
    tmp_path: Path, few_are_many: None
) -> None:
    """The kernel reports a lost write only once, so a later success of the file system's sync proves nothing."""
    disk = Syncs(failing="orders-3/partition.metadata", whole=0)
    manager = with_logs(tmp_path, disk)
    make_log(manager, "orders", LOGS, TOPIC_ID, SMALL)
    fill(manager.get("orders", LOGS), 1)
    manager.checkpoint_high_watermarks({("orders", 3): 3})
    disk.failing = ""
    log = manager.get("orders", 3)
    assert log is not None
    manager.close()
    assert disk.whole_syncs == 2
    assert not log.is_cleanly_closed


class KilledDisk(CrashingDisk):
    """A disk that can sync its file system."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.syncs_file_system = True


@pytest.mark.parametrize("seed", range(40))
def test_a_stop_that_is_interrupted_anywhere_loses_nothing_that_was_synced(seed: int, few_are_many: None) -> None:
    random = Random(seed)
    disk = KilledDisk(random)
    manager = with_logs(DATA, disk)
    synced = [log for log in manager.logs() if random.random() < 0.5]
    for log in synced:
        log.flusher.flush()
        produce(log, 500, 0)
    kept = {log.partition: log.recovery_point for log in manager.logs()}
    disk.changes_left = random.randrange(400)
    was_killed = False
    try:
        manager.close()
    except Killed:
        was_killed = True
    if random.random() < 0.7:
        disk.cut_power()
    else:
        disk.kill()
    after = open_manager(DATA, disk)
    assert not after.failures
    assert after.was_closed_cleanly <= (not was_killed)
    for log in after.logs():
        ids = {100 + log.partition, *([500] if log.log_end_offset == 5 else [])}
        if log.log_end_offset >= 4:
            assert {each for each in (100 + log.partition, 500) if not log.takes_any_sequence(each)} == ids
    for partition, end in kept.items():
        log_after = after.get("orders", partition)
        if end:
            assert log_after is not None
            assert log_after.log_end_offset >= end
        if not was_killed:
            assert log_after is not None
            assert log_after.log_end_offset == (5 if partition in {each.partition for each in synced} else 4)


def test_a_real_file_system_is_synced(tmp_path: Path, few_are_many: None) -> None:
    with_logs(tmp_path, RealDisk()).close()
    check(open_manager(tmp_path, RealDisk()))


def test_syncs_run_at_once() -> None:
    both = threading.Barrier(2, timeout=20)
    ended: list[int] = []

    def job(number: int) -> Callable[[], None]:
        def run() -> None:
            both.wait()
            ended.append(number)

        return run

    jobs: Sequence[Callable[[], None]] = [job(number) for number in range(2)]
    RealDisk().run_syncs(jobs)
    assert sorted(ended) == [0, 1]
