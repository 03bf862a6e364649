"""The periodic tasks visit only the logs that have changed, and miss none of them."""

from __future__ import annotations

import dataclasses
import errno
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.support.logs import make_log
from tests.support.storage import NOW, SMALL, FaultyDisk, fill, make_batch

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.segments.local_log import LocalLog
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.records.control import ControlType, EndTransactionMarker


class CountingDisk(FaultyDisk):
    """Records the names of the files that are replaced; a test may let the replacement fail."""

    def __init__(self) -> None:
        super().__init__()
        self.replaced: list[str] = []
        self.refuses_replacement = False
        self.refuses_rename = False

    def rename(self, source: str, target: str) -> None:
        if self.refuses_rename:
            raise OSError(errno.EIO, "Input/output error", source)
        super().rename(source, target)

    def replace_file(self, path: str, data: bytes, **options: bool) -> None:
        if self.refuses_replacement:
            raise OSError(errno.EIO, "Input/output error", path)
        super().replace_file(path, data, **options)
        self.replaced.append(path.rpartition("/")[2])


@pytest.fixture
def disk() -> CountingDisk:
    return CountingDisk()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def manager(tmp_path: Path, disk: CountingDisk, clock: ManualClock) -> Iterator[LogManager]:
    manager = open_manager(tmp_path, disk, clock)
    yield manager
    kill(manager)


def open_manager(data: Path, disk: RealDisk, clock: ManualClock, config: LogConfig = SMALL) -> LogManager:
    return LogManager.open([data], node_id=1, cluster_id="c", disk=disk, clock=clock, config_of=lambda topic: config)


def kill(manager: LogManager) -> None:
    for log in manager.logs():
        log.abandon()
    for directory in manager._directories:
        directory.close(clean=False)


def a_look(manager: LogManager, now: float) -> list[Any]:
    """What the tasks that run every few seconds find."""
    removal = manager.begin_purge(now)
    return [
        manager.upkeep.logs_due_for_flush(), manager.upkeep.logs_with_closed_segments(), list(manager.upkeep.failed()),
        [] if removal is None else [removal],
    ]  # fmt: skip


def calls_of_a_look(manager: LogManager) -> int:
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        a_look(manager, 0.0)
    finally:
        sys.setprofile(None)
    return calls


def test_a_look_at_unchanged_logs_costs_the_same_for_few_and_for_many(manager: LogManager) -> None:
    few = calls_of_a_look(manager)
    for partition in range(50):
        fill(make_log(manager, "orders", partition, None, SMALL), 1)
    a_look(manager, 0.0)
    assert calls_of_a_look(manager) == few


def test_logs_are_visited_in_the_order_in_which_they_got_work(manager: LogManager) -> None:
    """The order must not depend on the hashes of names, which differ from process to process: a seed of the simulation
    would not repeat its run.
    """
    names = [f"topic-{number}" for number in (7, 3, 9, 1, 8, 2, 6)]
    for name in names:
        fill(make_log(manager, name, 0, None, SMALL), 40)
    assert [log.topic for log in manager.upkeep.logs_with_closed_segments()] == names


def test_a_closed_segment_is_due_until_it_is_flushed(manager: LogManager) -> None:
    log = make_log(manager, "orders", 0, None, SMALL)
    fill(log, 40)
    assert len(log.segment_base_offsets) > 1
    assert manager.upkeep.logs_with_closed_segments() == [log] == manager.upkeep.logs_with_closed_segments()
    log.flusher.flush(log.segment_base_offsets[-1])
    assert a_look(manager, 0.0) == [[], [], [], []]
    fill(log, 40)
    assert manager.upkeep.logs_with_closed_segments() == [log]


def test_a_closed_segment_of_the_killed_process_is_due(manager: LogManager, tmp_path: Path, clock: ManualClock) -> None:
    fill(make_log(manager, "orders", 0, None, SMALL), 40)
    kill(manager)
    after = open_manager(tmp_path, RealDisk(), clock)
    log = after.get("orders", 0)
    assert after.upkeep.logs_with_closed_segments() == [log]
    kill(after)


def test_a_log_that_is_being_truncated_stays_due(manager: LogManager) -> None:
    log = make_log(manager, "orders", 0, None, SMALL)
    fill(log, 40)
    log.state.is_truncating = True
    assert manager.upkeep.logs_with_closed_segments() == []
    log.state.is_truncating = False
    assert manager.upkeep.logs_with_closed_segments() == [log]
    log.pause()
    assert manager.upkeep.logs_with_closed_segments() == []
    log.resume()
    assert manager.upkeep.logs_with_closed_segments() == [log]


def test_changed_settings_count_at_once(manager: LogManager, clock: ManualClock) -> None:
    log = make_log(manager, "orders", 0, None, SMALL)
    fill(log, 1)
    a_look(manager, 0.0)
    log.update_config(dataclasses.replace(SMALL, flush_ms=1000))
    clock.advance_ms(1000)
    assert manager.upkeep.logs_due_for_flush() == [log]
    log.flusher.flush()
    assert a_look(manager, 0.0)[:2] == [[], []]
    fill(log, 1)
    clock.advance_ms(1000)
    assert manager.upkeep.logs_due_for_flush() == [log]


def test_a_failed_log_is_known_until_it_is_deleted(manager: LogManager, disk: CountingDisk) -> None:
    log = make_log(manager, "orders", 0, None, SMALL)
    make_log(manager, "orders", 1, None, SMALL)
    assert list(manager.upkeep.failed()) == []
    disk.append_fault = errno.EIO
    with pytest.raises(KafkaError):
        fill(log, 1)
    assert list(manager.upkeep.failed()) == [("orders", 0)] == list(manager.upkeep.failed())
    manager.delete("orders", 0)
    assert list(manager.upkeep.failed()) == []


@pytest.mark.parametrize(
    "config", [dataclasses.replace(SMALL, flush_messages=1), dataclasses.replace(SMALL, flush_ms=1000)]
)
def test_logs_with_a_limit_are_visited_only_while_they_have_unflushed_records(
    manager: LogManager, clock: ManualClock, config: LogConfig
) -> None:
    few = calls_of_a_look(manager)
    logs = [make_log(manager, "orders", partition, None, config) for partition in range(20)]
    a_look(manager, 0.0)
    assert calls_of_a_look(manager) == few
    fill(logs[0], 1)
    logs[1].append_as_follower(make_batch())
    logs[2].append_marker(EndTransactionMarker(ControlType.COMMIT, 0), producer_id=1, producer_epoch=0, leader_epoch=0)
    a_look(manager, 0.0)
    clock.advance_ms(1000)
    assert set(manager.upkeep.logs_due_for_flush()) == set(logs[:3])
    for log in logs[:3]:
        log.flusher.flush()
    a_look(manager, 0.0)
    assert calls_of_a_look(manager) == few


def test_unflushed_records_of_the_killed_process_count(tmp_path: Path, clock: ManualClock) -> None:
    config = dataclasses.replace(SMALL, flush_messages=1)
    before = open_manager(tmp_path, RealDisk(), clock, config)
    fill(make_log(before, "orders", 0, None, config), 1)
    kill(before)
    after = open_manager(tmp_path, RealDisk(), clock, config)
    assert after.upkeep.logs_due_for_flush() == [after.get("orders", 0)]
    kill(after)


@pytest.mark.parametrize("move", [LogManager.delete, LogManager.set_aside])
def test_a_log_that_could_not_be_deleted_counts_as_failed(
    manager: LogManager, disk: CountingDisk, move: Callable[[LogManager, str, int], object]
) -> None:
    log = make_log(manager, "orders", 0, None, SMALL)
    disk.refuses_rename = True
    with pytest.raises(KafkaError):
        move(manager, "orders", 0)
    assert manager.get("orders", 0) is log and log.is_offline
    assert list(manager.upkeep.failed()) == [("orders", 0)]
    disk.refuses_rename = False
    move(manager, "orders", 0)
    assert list(manager.upkeep.failed()) == []


def test_deleted_segments_are_freed_once(manager: LogManager, tmp_path: Path) -> None:
    log = make_log(manager, "orders", 0, None, SMALL)
    fill(log, 40)
    log.flusher.flush()
    log.trimmer.delete_records_before(log.segment_base_offsets[1])
    assert manager.purge_deleted(0.0) == 0
    assert manager.purge_deleted(10.0**9) > 0
    assert not list(tmp_path.glob("orders-0/*.deleted"))
    assert manager.purge_deleted(10.0**9) == 0


class TestHighWatermarks:
    def test_they_are_written_when_they_have_changed(self, manager: LogManager, disk: CountingDisk) -> None:
        make_log(manager, "orders", 0, None, SMALL)
        manager.checkpoint_high_watermarks({("orders", 0): 0})
        disk.replaced.clear()
        manager.checkpoint_high_watermarks({("orders", 0): 0})
        assert disk.replaced == []
        manager.checkpoint_high_watermarks({("orders", 0): 1})
        assert disk.replaced == ["replication-offset-checkpoint"]

    def test_a_log_of_the_same_name_gets_its_own(self, manager: LogManager, tmp_path: Path) -> None:
        fill(make_log(manager, "orders", 0, None, SMALL), 3)
        manager.checkpoint_high_watermarks({("orders", 0): 3})
        manager.delete("orders", 0)
        fill(make_log(manager, "orders", 0, None, SMALL), 3)
        manager.checkpoint_high_watermarks({("orders", 0): 3})
        assert "orders 0 3" in (tmp_path / "replication-offset-checkpoint").read_text()

    def test_a_failed_write_is_repeated(self, manager: LogManager, disk: CountingDisk, tmp_path: Path) -> None:
        fill(make_log(manager, "orders", 0, None, SMALL), 3)
        manager.checkpoint_high_watermarks({("orders", 0): 2})
        disk.refuses_replacement = True
        with pytest.raises(OSError):
            manager.checkpoint_high_watermarks({("orders", 0): 3})
        disk.refuses_replacement = False
        manager.checkpoint_high_watermarks({("orders", 0): 2})
        manager.checkpoint_high_watermarks({("orders", 0): 3})
        assert "orders 0 3" in (tmp_path / "replication-offset-checkpoint").read_text()


def test_a_log_outside_a_manager_registers_nothing(tmp_path: Path) -> None:
    log = PartitionLog.open(
        tmp_path / "orders-0", topic="orders", partition=0, config=SMALL, disk=RealDisk(), clock=ManualClock(NOW)
    )
    fill(log, 40)
    assert len(log.segment_base_offsets) > 1 and log.state.periodic_work is None
    log.abandon()


def test_files_that_a_truncation_deletes_during_the_look_are_freed(
    manager: LogManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log(manager, "orders", 0, None, SMALL)
    fill(log, 40)
    log.flusher.flush()
    log.state.note_files_to_free()

    def has_marked(local: LocalLog) -> bool:
        found = bool(local._marked)
        if not found:  # a worker thread deletes segments just after the look
            monkeypatch.undo()
            log.trimmer.truncate_to(1)
        return found

    monkeypatch.setattr(LocalLog, "has_marked", property(has_marked))
    assert manager.purge_deleted(0.0) == 0
    assert list(tmp_path.glob("orders-0/*.deleted"))
    assert manager.purge_deleted(10.0**9) > 0
    assert not list(tmp_path.glob("orders-0/*.deleted"))
