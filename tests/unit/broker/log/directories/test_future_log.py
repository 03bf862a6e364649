"""A log moves to another data directory (a copy replaces the log) and loses no record, even if a step fails, the
process is killed, or the power is cut.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.support.crashing_disk import CrashingDisk, Killed
from tests.support.logs import make_log
from tests.support.producers import ABORT, COMMIT, committed, mark, produce
from tests.support.storage import NOW, SMALL, append, contents, fill

from oncelog_broker.log.directories.future_log import (
    COMPLETE_FILE,
    CopyOutdated,
    FutureLog,
    LastState,
    MoveFailed,
    SegmentPart,
    future_directory_name,
)
from oncelog_broker.log.directories.log_changes import WantedLog
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import SMALL_READ_SIZE
from oncelog_protocol.errors import ErrorCode, KafkaError

TOPIC_ID = bytes(range(16))
KEY = ("orders", 0)
WANTED = WantedLog("orders", 0, TOPIC_ID, SMALL)
RECORDS = 30


class FaultyDisk(CrashingDisk):
    """A disk on which one change raises this error."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.changes_until_fault: int | None = None
        self.code = errno.EIO

    def change(self) -> None:
        super().change()
        if self.changes_until_fault is not None:
            self.changes_until_fault -= 1
            if self.changes_until_fault < 0:
                self.changes_until_fault = None
                raise OSError(self.code, "a fault")


class Broker:
    """The logs of a broker with two data directories. `synced` has the records that must survive a power cut."""

    def __init__(self, disk: CrashingDisk) -> None:
        self.disk = disk
        self.clock = ManualClock(NOW)
        self.synced: list[Any] = []
        self.open()

    def open(self) -> None:
        self.logs = LogManager.open(
            ["/a", "/b"], node_id=1, cluster_id="c", disk=self.disk, clock=self.clock, config_of=lambda _: SMALL
        )

    @property
    def log(self) -> PartitionLog:
        found = self.logs.get(*KEY)
        assert found is not None
        return found

    def begin(self) -> None:
        """Create the log with records, transactions, and a log start inside a batch's segment; sync all of it."""
        log = make_log(self.logs, "orders", 0, TOPIC_ID, SMALL)
        assert self.logs.place_of(KEY) == "/a"
        fill(log, RECORDS)
        produce(log, 1, 0, 2, transactional=True)
        produce(log, 2, 0, 2, transactional=True)
        mark(log, 1, COMMIT)
        mark(log, 2, ABORT)
        produce(log, 3, 0, 1)
        log.trimmer.delete_records_before(3)
        self.sync()

    def sync(self) -> None:
        self.log.flusher.flush()
        self.logs.checkpoint_recovery_points()
        self.logs.checkpoint_log_start_offsets()
        self.logs.checkpoint_high_watermarks({KEY: self.log.log_end_offset})
        self.synced = contents(self.log)

    def move(self, path: str = "/b", meanwhile: Callable[[], object] = lambda: None) -> FutureLog:
        """Move the log; call `meanwhile` after a part of it was copied."""
        log = self.log
        future = self.logs.make_future(WANTED, path, log)()
        for part in parts_of(log, future.log_end_offset)[:1]:
            future.copy(part)
        meanwhile()
        log.pause()
        replacement = None
        try:
            replacement = future.replace(parts_of(log, future.log_end_offset), last_of(log))
        except MoveFailed as failure:
            if failure.is_log_usable:
                log.resume()
            else:
                log.state.fail("move", failure)
            raise
        else:
            log.abandon()
        finally:
            self.logs.finish_replacement(future, replacement)
        return future

    def check(self) -> None:
        """Check that the log has each expected record exactly once, and accepts further appends."""
        log = self.log
        assert contents(log)[: len(self.synced)] == self.synced
        log.producers.state.on_high_watermark(log.log_end_offset)
        seen = [value for value in committed(log, log.log_start_offset) if value is not None]
        assert [value for value in seen if b"/" in value] == [b"1/0", b"1/1", b"3/0"]
        before = log.log_end_offset
        first = next(offset for offset, value in contents(log) if value == b"3/0")
        assert produce(log, 3, 0, 1) == first, "the producer's batch is known"
        assert log.log_end_offset == before
        assert append(log, b"more") == before
        assert not [name for name in self.names("/a") + self.names("/b") if name.endswith("-future")]
        assert [name for name in self.names("/a") + self.names("/b") if name == "orders-0"] == ["orders-0"]

    def names(self, directory: str) -> list[str]:
        return self.disk.list_directory(directory)


def parts_of(log: PartitionLog, next_offset: int) -> list[SegmentPart]:
    return [SegmentPart(each.path, 0, each.size) for each in log.local.from_offset(next_offset) if each.size]


def last_of(log: PartitionLog) -> LastState:
    return LastState(
        directory=log.directory,
        end=log.log_end_offset,
        log_start_offset=log.log_start_offset,
        high_watermark=log.log_end_offset,
        cleaner_checkpoint=log.state.cleaner_checkpoint,
        epochs=log.leader_epochs.entries,
        producers=log.producers.state.image(),
    )


@pytest.fixture
def broker() -> Broker:
    broker = Broker(FaultyDisk(Random(1)))
    broker.begin()
    return broker


def test_a_log_is_moved_with_everything_that_belongs_to_it(broker: Broker) -> None:
    before, epochs, start = contents(broker.log), broker.log.leader_epochs.entries, broker.log.log_start_offset
    old = broker.log
    broker.move()
    moved = broker.log
    assert moved is not old
    assert old.is_offline
    assert (moved.directory, broker.logs.place_of(KEY)) == ("/b/orders-0", "/b")
    assert (contents(moved), moved.leader_epochs.entries, moved.log_start_offset) == (before, epochs, start)
    assert moved.recovery_point == moved.log_end_offset
    assert broker.logs.topic_id(*KEY) == TOPIC_ID
    broker.check()
    (deleted,) = [name for name in broker.names("/a") if name.startswith("orders")]
    assert deleted.endswith("-delete")
    broker.clock.advance_ms(SMALL.file_delete_delay_ms)
    broker.logs.purge_deleted(broker.clock.monotonic())
    assert [name for name in broker.names("/a") if name.startswith("orders")] == []


def test_a_log_is_moved_there_and_back(broker: Broker) -> None:
    broker.move("/b")
    fill(broker.log, 5)
    broker.sync()
    broker.move("/a")
    broker.check()
    assert broker.logs.place_of(KEY) == "/a"


@pytest.mark.parametrize("cuts_power", [False, True])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 6))])
def test_no_record_is_lost_whenever_the_process_dies(seed: int, cuts_power: bool) -> None:
    died, changes = True, 0
    while died:
        broker = Broker(CrashingDisk(Random(f"{seed} {changes}")))
        broker.begin()
        broker.disk.changes_left = changes
        try:
            broker.move()
            fill(broker.log, 3, start=100)
            broker.sync()
            broker.move("/a")
            died = False
        except Killed:
            pass
        expected = broker.synced
        if cuts_power:
            broker.disk.cut_power()
        else:
            broker.disk.kill()
        broker.open()
        broker.synced = expected
        broker.check()
        changes += 1
    assert changes > 50, "there were as many moments to die in"


def changes_up_to_the_rename_of_the_copy() -> int:
    """Return after how many changes a kill leaves only the complete copy of a log that is moved."""
    for changes in range(200):
        broker = killed_in_a_move(changes)
        names = broker.names("/a") + broker.names("/b")
        if "orders-0" not in names and any(name.endswith("-future") for name in names):
            return changes
    raise AssertionError("no kill leaves only the copy")


def killed_in_a_move(changes: int) -> Broker:
    broker = Broker(CrashingDisk(Random(1)))
    broker.begin()
    broker.disk.changes_left = changes
    with suppress(Killed):
        broker.move()
    broker.disk.kill()
    return broker


def test_a_copy_keeps_its_mark_until_a_power_cut_cannot_undo_its_rename() -> None:
    """The power fails while the start after a kill renames the complete copy."""
    before, interrupted = changes_up_to_the_rename_of_the_copy(), 0
    for changes in range(3, 8):
        for seed in range(4):
            broker = killed_in_a_move(before)
            expected, broker.disk.random = broker.synced, Random(f"{seed} {changes}")
            broker.disk.changes_left = changes
            with suppress(Killed):
                broker.open()
            interrupted += broker.disk.changes_left < 0
            broker.disk.cut_power()
            broker.open()
            broker.synced = expected
            broker.check()
    assert interrupted > 10


@pytest.mark.parametrize("code", [errno.EIO, pytest.param(errno.ENOSPC, marks=pytest.mark.soak)])
def test_whatever_fails_the_log_goes_on_or_is_whole_after_a_restart(code: int) -> None:
    failed, changes, went_on, offline = True, 0, 0, 0
    while failed:
        disk = FaultyDisk(Random(changes))
        disk.code = code
        broker = Broker(disk)
        broker.begin()
        disk.changes_until_fault = changes
        failed = False
        try:
            broker.move()
        except MoveFailed:
            failed = True
        except (KafkaError, CopyOutdated):
            failed = True  # the future log could not be created or written, so the log was not paused
        failed = failed or disk.changes_until_fault is None
        disk.changes_until_fault = None
        log = broker.logs.get(*KEY)
        assert log is not None
        if log.is_offline:
            offline += 1
        else:
            went_on += 1
            assert contents(log) == broker.synced
        expected = broker.synced
        for each in broker.logs.logs():
            each.abandon()
        broker.open()
        broker.synced = expected
        broker.check()
        changes += 1
    assert went_on > offline


def test_a_paused_log_refuses_with_an_error_that_clients_retry(broker: Broker) -> None:
    log = broker.log
    log.pause()
    for call in (lambda: append(log, b"x"), lambda: contents(log), log.trimmer.roll, log.flusher.flush):
        with pytest.raises(KafkaError) as refused:
            call()
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not log.is_offline
    assert broker.logs.is_truncating(KEY), "a deletion waits"
    log.resume()
    append(log, b"x")


def test_a_flush_that_was_under_way_ends_without_an_error_after_the_move(broker: Broker) -> None:
    old = broker.log
    append(old, b"x")
    pending = old.flusher.prepare_flush()
    assert pending is not None
    future = broker.move()
    with old.flusher.guard:
        old.flusher.note_moved()
    pending.sync()
    assert future.deleted_path is not None


def test_records_that_were_truncated_or_compacted_meanwhile_make_the_copy_outdated(broker: Broker) -> None:
    future = broker.logs.make_future(WANTED, "/b", broker.log)()
    part = parts_of(broker.log, 0)[0]
    with pytest.raises(CopyOutdated):
        future.copy(part._replace(path="/a/orders-0/gone.log"))
    with pytest.raises(CopyOutdated):
        future.copy(part._replace(start=7))
    future.copy(part)
    future.drop()
    assert [name for name in broker.names("/b") if name.startswith("orders")] == []


def test_a_large_batch_is_copied_whole(broker: Broker) -> None:
    broker.log.update_config(replace(SMALL, segment_bytes=1_000_000))
    append(broker.log, bytes(3 * SMALL_READ_SIZE))
    append(broker.log, b"small")
    before = contents(broker.log)
    broker.move()
    assert contents(broker.log) == before


def test_a_log_whose_last_records_are_gone_keeps_its_end(broker: Broker) -> None:
    end = broker.log.log_end_offset

    def delete_all() -> None:
        broker.log.trimmer.delete_records_before(end)
        broker.log.trimmer.roll()
        broker.log.flusher.flush()
        assert broker.log.segment_base_offsets == [end]

    broker.move(meanwhile=delete_all)
    assert (broker.log.log_start_offset, broker.log.log_end_offset) == (end, end)
    assert append(broker.log, b"x") == end


def test_an_incomplete_copy_whose_log_is_missing_is_set_aside(broker: Broker) -> None:
    future = broker.logs.make_future(WANTED, "/b", broker.log)()
    future.copy(parts_of(broker.log, 0)[0])
    for each in broker.logs.logs():
        each.abandon()
    broker.disk.remove_tree("/a/orders-0")
    broker.open()
    assert broker.logs.get(*KEY) is None
    (kept,) = [name for name in broker.names("/b") if name.startswith("orders")]
    assert kept.endswith("-stray")


def test_a_complete_copy_is_deleted_as_long_as_the_log_is_there(broker: Broker) -> None:
    future = broker.logs.make_future(WANTED, "/b", broker.log)()
    broker.disk.replace_file(f"{future.path}/{COMPLETE_FILE}", b"")
    for each in broker.logs.logs():
        each.abandon()
    broker.open()
    broker.check()
    assert broker.logs.place_of(KEY) == "/a"


def test_a_directory_of_another_broker_is_refused(broker: Broker) -> None:
    for call in (lambda: broker.logs.make_future(WANTED, "/c", broker.log), lambda: broker.logs.prefer(KEY, "/c")):
        with pytest.raises(KafkaError) as refused:
            call()
        assert refused.value.code is ErrorCode.LOG_DIR_NOT_FOUND


def test_a_log_that_does_not_exist_yet_is_created_where_it_was_asked_for(broker: Broker) -> None:
    broker.logs.prefer(("paid", 0), "/a")
    broker.logs.prefer(("paid", 1), "/a")
    for partition in (0, 1):
        make_log(broker.logs, "paid", partition, TOPIC_ID, SMALL)
        assert broker.logs.place_of(("paid", partition)) == "/a"


def test_a_name_that_is_too_long_has_no_future() -> None:
    assert future_directory_name(("t" * 249, 0), "0" * 32) is None
    assert future_directory_name(("orders", 0), "0" * 32) == f"orders-0.{'0' * 32}-future"


def test_a_producer_whose_records_are_gone_is_known_after_the_move(broker: Broker) -> None:
    log = broker.log
    first = produce(log, 9, 0, 1)
    fill(log, RECORDS, start=200)
    log.flusher.flush()
    log.trimmer.delete_records_before(first + RECORDS - 5)
    log.flusher.flush()
    base = log.segment_base_offsets[0]
    assert base > first
    for name in broker.names(log.directory):
        if name.endswith(".snapshot") and int(name.partition(".")[0]) <= base:
            broker.disk.remove(f"{log.directory}/{name}")  # afterwards only the log's memory has the producer
    broker.move()
    before = broker.log.log_end_offset
    assert produce(broker.log, 9, 0, 1) == first
    assert broker.log.log_end_offset == before
