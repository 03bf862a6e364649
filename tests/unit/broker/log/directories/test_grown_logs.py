"""A start after a kill opens a log that has only grown from its saved state and its new records; all other logs are
recovered from their files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.crashing_disk import CrashingDisk
from tests.support.logs import make_log
from tests.support.producers import COMMIT, mark, produce
from tests.support.storage import NOW, SMALL, append, contents, fill, make_batch

from oncelog_broker.log.directories.closed_logs import CLOSED_LOGS_FILE
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk, RealFile
from oncelog_broker.runtime.steps import run_steps

TOPIC_ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))
RECORDS = 15
"""The records of the closed log, in two segments."""


def open_manager(directory: Path | str, disk: Any) -> LogManager:
    return LogManager.open(
        [directory], node_id=1, cluster_id="c", disk=disk, clock=ManualClock(NOW), config_of=lambda topic: SMALL
    )


def kill(manager: LogManager) -> None:
    for log in manager.logs():
        log.abandon()
    for directory in manager._directories:
        directory.close(clean=False)


def stop(manager: LogManager) -> None:
    manager.checkpoint_high_watermarks({(log.topic, log.partition): log.log_end_offset for log in manager.logs()})
    manager.close()


def only(manager: LogManager) -> PartitionLog:
    (log,) = manager.logs()
    return log


def is_grown(log: PartitionLog) -> bool:
    """Whether the log was opened from its saved state and new records: recovery makes the last segment active."""
    return not log.local.active.offset_index.is_active and log.recovery_point < log.log_end_offset


def facts(log: PartitionLog) -> tuple[Any, ...]:
    """What a log shows to the outside."""
    end = log.log_end_offset
    return (
        log.log_start_offset, end, log.recovery_point, log.size_bytes, log.segment_base_offsets,
        log.leader_epochs.entries, log.producer_state.image(), log.producer_state.first_unstable_offset,
        log.state.cleaner_checkpoint, log.state.durable_start_offset, log.producers.saved_up_to,
        log.flusher.start_to_checkpoint, log.flusher.new_directory is None, contents(log),
        [segment.max_timestamp for segment in log.local.segments],
        run_steps(log.reader.max_timestamp_offset()),
        [run_steps(log.reader.offset_for_timestamp(NOW + more, upper_bound=end)) for more in range(0, 60, 7)],
    )  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    manager = open_manager(tmp_path / "data", RealDisk())
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    produce(log, 7, 0)
    fill(log, RECORDS - 1, timestamp=NOW + 20)
    stop(manager)
    return tmp_path / "data"


@pytest.fixture
def start(data: Path) -> Iterator[Callable[[], LogManager]]:
    running: list[LogManager] = []

    def start() -> LogManager:
        running.append(open_manager(data, RealDisk()))
        return running[-1]

    yield start
    for manager in running:
        kill(manager)


def killed_after(start: Callable[[], LogManager], change: Callable[[PartitionLog], object]) -> None:
    manager = start()
    change(only(manager))
    kill(manager)


def started_both_ways(start: Callable[[], LogManager], data: Path) -> PartitionLog:
    """Start with and without the saved states, and compare the logs. Returns the log of the first start."""
    saved = start()
    kept = facts(only(saved))
    kill(saved)
    states = data / CLOSED_LOGS_FILE
    states.rename(states.with_suffix(".away"))
    recovered = start()
    assert facts(only(recovered)) == kept
    kill(recovered)
    states.with_suffix(".away").rename(states)
    return only(saved)


GROWTHS: dict[str, Callable[[PartitionLog], object]] = {
    "a record": lambda log: append(log, b"new"),
    "a new leader epoch": lambda log: (append(log, b"new", epoch=3), append(log, b"newer", epoch=4)),
    "earlier timestamps": lambda log: append(log, b"new", timestamp=NOW - 5),
    "later timestamps": lambda log: (append(log, b"1", timestamp=NOW + 40), append(log, b"2", timestamp=NOW + 30)),
    "a producer": lambda log: (produce(log, 7, 1), produce(log, 8, 0)),
    "an open transaction": lambda log: produce(log, 9, 0, transactional=True),
    "fetched records": lambda log: log.append_as_follower(make_batch(b"next", base_offset=log.log_end_offset + 4)),
}


@pytest.mark.parametrize("growth", GROWTHS)
def test_it_is_the_log_that_recovery_gives(start: Callable[[], LogManager], data: Path, growth: str) -> None:
    killed_after(start, GROWTHS[growth])
    log = started_both_ways(start, data)
    assert is_grown(log)


def test_the_next_appends_continue_the_log(start: Callable[[], LogManager], data: Path) -> None:
    killed_after(start, lambda log: produce(log, 7, 1))
    manager = start()
    log = only(manager)
    assert is_grown(log)
    assert produce(log, 7, 1) == RECORDS, "the duplicate is known"
    assert produce(log, 7, 2) == RECORDS + 1
    fill(log, 20)
    stop(manager)
    after = only(start())
    assert after.log_end_offset == len(contents(after)) == RECORDS + 22
    assert after.recovery_point == RECORDS + 22, "the new records were synced by the stop"


def test_it_grows_through_several_kills(start: Callable[[], LogManager], data: Path) -> None:
    for number in range(1, 4):
        killed_after(start, partial(append, epoch=number))
        log = started_both_ways(start, data)
        assert is_grown(log)
        assert log.log_end_offset == RECORDS + number


@pytest.mark.parametrize("change", ["truncate", "roll", "follow", "retention"])
def test_every_change_works_without_an_append_before(start: Callable[[], LogManager], data: Path, change: str) -> None:
    killed_after(start, lambda log: append(log, b"new", epoch=2, timestamp=NOW + 40))
    manager = start()
    log = only(manager)
    assert is_grown(log)
    if change == "truncate":
        log.trimmer.truncate_to(RECORDS)
    elif change == "roll":
        log.trimmer.roll()
        assert log.local.segments[-2].max_timestamp == NOW + 40
    elif change == "follow":
        log.append_as_follower(make_batch(b"next", base_offset=log.log_end_offset))
    else:
        log.trimmer.apply_retention(NOW + 10**12)
    end = log.log_end_offset
    stop(manager)
    assert only(start()).log_end_offset == end


def regrow(log: PartitionLog) -> None:
    """Replace the last record by another one of a later leader epoch, sync it, and append another."""
    log.trimmer.truncate_to(RECORDS - 1)
    append(log, b"other", epoch=5)
    log.flusher.flush()
    append(log, b"more", epoch=5)


def replace_all(log: PartitionLog) -> None:
    log.trimmer.truncate_fully_and_start_at(RECORDS)
    append(log, b"new")


def roll(log: PartitionLog) -> None:
    append(log, b"new")
    log.trimmer.roll()


def end_transaction(log: PartitionLog) -> None:
    produce(log, 9, 0, transactional=True)
    mark(log, 9, COMMIT)


CHANGES: dict[str, Callable[[PartitionLog], object]] = {
    "a roll": roll,
    "an end of a transaction": end_transaction,
    "records below the end were replaced": regrow,
    "all records were replaced": replace_all,
    "much growth": lambda log: append(log, bytes(1500)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_log_that_has_not_only_grown_is_recovered(
    start: Callable[[], LogManager], data: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr("oncelog_broker.log.directories.closed_logs.MAX_GROWTH", 1400)
    manager = start()
    CHANGES[change](only(manager))
    manager.checkpoint_recovery_points()
    kill(manager)
    log = started_both_ways(start, data)
    assert not is_grown(log)


FILES: dict[str, Callable[[Path], object]] = {
    "a rewritten index": lambda log: rewritten(max(log.glob("*.index"))),
    "a rewritten time index": lambda log: rewritten(max(log.glob("*.timeindex"))),
    "a rewritten closed segment": lambda log: rewritten(min(log.glob("*.log"))),
    "another topic id file": lambda log: rewritten(log / "partition.metadata"),
    "another log file": lambda log: replaced(max(log.glob("*.log"))),
    "no snapshot": lambda log: max(log.glob("*.snapshot")).unlink(),
    "a later snapshot": lambda log: (log / f"{RECORDS + 1:020d}.snapshot").write_bytes(b""),
    "unfinished compaction": lambda log: (log / f"{0:020d}.log.swap.tmp").write_bytes(b""),
    "no leader epochs": lambda log: (log / "leader-epoch-checkpoint").unlink(),
    "other leader epochs": lambda log: (log / "leader-epoch-checkpoint").write_bytes(b"0\n1\n7 2\n"),
    "aborted transactions": lambda log: max(log.glob("*.log")).with_suffix(".txnindex").write_bytes(b""),
}


def rewritten(path: Path) -> None:
    path.write_bytes(path.read_bytes())


def replaced(path: Path) -> None:
    data = path.read_bytes()
    path.with_suffix(".copy").write_bytes(data)
    path.with_suffix(".copy").rename(path)


@pytest.mark.parametrize("name", FILES)
def test_a_log_with_other_files_is_recovered(start: Callable[[], LogManager], data: Path, name: str) -> None:
    killed_after(start, lambda log: append(log, b"new"))
    FILES[name](data / "orders-0")
    log = only(start())
    assert not is_grown(log)
    assert len(contents(log)) == RECORDS + 1


def test_an_incomplete_end_is_cut_by_recovery(start: Callable[[], LogManager], data: Path) -> None:
    killed_after(start, lambda log: (append(log, b"new"), append(log, b"newer")))
    path = max((data / "orders-0").glob("*.log"))
    os.truncate(path, path.stat().st_size - 1)
    manager = start()
    assert only(manager).was_cut
    assert manager.cut_at_start
    assert only(manager).log_end_offset == RECORDS + 1


def test_a_flipped_bit_is_cut_by_recovery(start: Callable[[], LogManager], data: Path) -> None:
    killed_after(start, lambda log: append(log, b"new"))
    path = max((data / "orders-0").glob("*.log"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    with open(path, "r+b") as file:
        file.write(content)
    assert start().cut_at_start


def test_a_moved_recovery_point_counts(start: Callable[[], LogManager], data: Path) -> None:
    manager = start()
    append(only(manager), b"new")
    only(manager).flusher.flush()
    append(only(manager), b"newer")
    manager.checkpoint_recovery_points()
    kill(manager)
    assert not is_grown(only(start()))


def test_a_topic_that_was_created_again_is_another(start: Callable[[], LogManager], data: Path) -> None:
    manager = start()
    manager.delete("orders", 0)
    log = make_log(manager, "orders", 0, OTHER_ID, SMALL)
    fill(log, RECORDS + 2)
    log.flusher.flush(RECORDS)
    manager.checkpoint_recovery_points()
    manager.checkpoint_high_watermarks({("orders", 0): RECORDS})
    kill(manager)
    after = start()
    assert after.topic_id("orders", 0) == OTHER_ID
    assert not is_grown(only(after))


@pytest.mark.parametrize("is_made", [False, True])
def test_a_log_without_records_is_recovered(start: Callable[[], LogManager], data: Path, is_made: bool) -> None:
    """Only recovery finds out whether the names of its first files are synced."""
    manager = start()
    log = make_log(manager, "orders", 1, TOPIC_ID, SMALL)
    if is_made:
        log.local.active.make()
    stop(manager)
    manager = start()
    found = manager.get("orders", 1)
    assert found is not None
    append(found, b"first")
    kill(manager)
    found = start().get("orders", 1)
    assert found is not None
    assert found.flusher.new_directory is not None


def test_the_log_start_is_as_durable_as_after_recovery(start: Callable[[], LogManager], data: Path) -> None:
    manager = start()
    log = only(manager)
    log.flusher.flush()
    log.trimmer.delete_records_before(log.segment_base_offsets[1])
    manager.purge_deleted(10.0**9)
    manager.checkpoint_log_start_offsets()
    stop(manager)
    killed_after(start, partial(append, epoch=1))
    log = started_both_ways(start, data)
    assert is_grown(log)
    assert log.log_start_offset > log.state.durable_start_offset == 0


def test_offsets_that_were_used_before_are_cut_by_recovery(start: Callable[[], LogManager], data: Path) -> None:
    killed_after(start, lambda log: append(log, b"new"))
    path = max((data / "orders-0").glob("*.log"))
    with open(path, "ab") as file:
        file.write(make_batch(b"again", base_offset=RECORDS))
    assert start().cut_at_start


def test_a_cleanly_closed_directory_of_another_program_is_read(start: Callable[[], LogManager], data: Path) -> None:
    """After a clean shutdown, records above the recovery point cannot come from a killed process."""
    killed_after(start, lambda log: append(log, b"new"))
    (data / ".kafka_cleanshutdown").write_bytes(b"")
    log = only(start())
    assert not is_grown(log)
    assert log.recovery_point == log.log_end_offset == RECORDS + 1


def test_no_index_and_no_snapshot_is_read(
    start: Callable[[], LogManager], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_after(start, lambda log: append(log, b"new"))
    opened: list[str] = []
    real_open, real_read = RealDisk.open, RealDisk.read_file

    def noted_open(disk: RealDisk, path: str, *, create: bool = False) -> RealFile:
        opened.append(path)
        return real_open(disk, path, create=create)

    def noted_read(disk: RealDisk, path: str) -> bytes:
        opened.append(path)
        return real_read(disk, path)

    monkeypatch.setattr(RealDisk, "open", noted_open)
    monkeypatch.setattr(RealDisk, "read_file", noted_read)
    start()
    names = [Path(path).name for path in opened if Path(path).parent.name == "orders-0"]
    assert len(names) == 2
    assert "leader-epoch-checkpoint" in names
    assert any(name.endswith(".log") for name in names)


@pytest.mark.parametrize("seed", range(40))
def test_grown_logs_agree_with_recovered_logs_after_kills_and_power_cuts(seed: int) -> None:
    """Both starts see the same disk: one with the saved states, the other without them."""
    random = Random(seed)
    disk = CrashingDisk(random)
    disk.syncs_file_system = True
    manager = open_manager("/data", disk)
    for partition in range(4):
        fill(make_log(manager, "orders", partition, TOPIC_ID, SMALL), random.randrange(1, 20))
    stop(manager)
    grown = 0
    for epoch in range(1, 6):
        manager = open_manager("/data", disk)
        for log in list(manager.logs()):
            end = log.log_end_offset
            if random.random() < 0.3:
                log.trimmer.truncate_to(random.randrange(max(0, end - 3), end + 1))
            for _ in range(random.randrange(4)):
                append(log, b"%d" % random.randrange(10**9), epoch=epoch, timestamp=NOW + random.randrange(60))
                if random.random() < 0.2:
                    log.flusher.flush()
        manager.checkpoint_high_watermarks({(log.topic, log.partition): log.log_end_offset for log in manager.logs()})
        if random.random() < 0.5:
            manager.checkpoint_recovery_points()
        if random.random() < 0.4:
            disk.cut_power()
        after = open_manager("/data", disk)
        kept = {log.name: facts(log) for log in after.logs()}
        grown += sum(map(is_grown, after.logs()))
        disk.remove(f"/data/{CLOSED_LOGS_FILE}")
        read = open_manager("/data", disk)
        assert {log.name: facts(log) for log in read.logs()} == kept
        stop(read)
    assert grown > 0
