"""A start opens unchanged logs without reading their files, and does not trust anything that has changed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.crashing_disk import CrashingDisk
from tests.support.logs import make_log
from tests.support.producers import ABORT, COMMIT, mark, produce
from tests.support.storage import NOW, SMALL, FaultyDisk, contents, fill, make_batch

from oncelog_broker.log import log_content
from oncelog_broker.log.closed_log import MAX_PRODUCERS
from oncelog_broker.log.directories import closed_logs
from oncelog_broker.log.directories.closed_logs import CLOSED_LOGS_FILE, read_closed_logs
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk, RealFile
from oncelog_broker.runtime.steps import run_steps
from oncelog_protocol.crc import crc32c
from oncelog_protocol.errors import ErrorCode, KafkaError

TOPIC_ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))
LOG = f"{0:020d}.log"


class Reads(FaultyDisk):
    """Records the names of the logs of which a file is opened, read or listed."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: set[str] = set()

    def note(self, path: str) -> None:
        self.logs |= {part for part in Path(path).parts if part.startswith(("orders-", "payments-"))}

    def open(self, path: str, *, create: bool = False) -> RealFile:
        self.note(path)
        return super().open(path, create=create)

    def read_file(self, path: str) -> bytes:
        self.note(path)
        return super().read_file(path)

    def list_directory(self, path: str) -> list[str]:
        self.note(path)
        return super().list_directory(path)


class NoStamps(RealDisk):
    """A disk whose file system has no reliable stamps."""

    def watch_file_system(self, path: str) -> None:
        return None


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def start(data: Path) -> Iterator[Callable[..., LogManager]]:
    running: list[LogManager] = []

    def start(disk: RealDisk | None = None, directory: Path = data, node_id: int = 1) -> LogManager:
        running.append(open_manager(directory, disk or Reads(), node_id))
        return running[-1]

    yield start
    for manager in running:
        kill(manager)


def open_manager(directory: Path | str, disk: Any, node_id: int = 1) -> LogManager:
    return LogManager.open(
        [directory], node_id=node_id, cluster_id="c", disk=disk, clock=ManualClock(NOW), config_of=lambda topic: SMALL
    )


def kill(manager: LogManager) -> None:
    for log in manager.logs():
        log.abandon()
    for directory in manager._directories:
        directory.close(clean=False)


def high_watermarks(manager: LogManager) -> None:
    manager.checkpoint_high_watermarks({(log.topic, log.partition): log.log_end_offset for log in manager.logs()})


def stop(manager: LogManager) -> None:
    high_watermarks(manager)
    manager.close()


def facts(log: PartitionLog | None) -> tuple[Any, ...]:
    """What a log shows to the outside."""
    assert log is not None
    return (
        log.log_start_offset, log.log_end_offset, log.recovery_point, log.size_bytes, log.segment_base_offsets,
        log.leader_epochs.entries, log.producer_state.image(), log.producer_state.first_unstable_offset,
        log.state.cleaner_checkpoint, log.state.durable_start_offset, log.producers.saved_up_to,
        log.flusher.start_to_checkpoint, [segment.max_timestamp for segment in log.local.segments], contents(log),
    )  # fmt: skip


def snapshot_offsets(directory: Path) -> set[int]:
    """The offsets of the snapshot files and window files in the directory of a log."""
    return {int(path.stem) for suffix in ("snapshot", "window") for path in directory.glob(f"*.{suffix}")}


def first(manager: LogManager, topic: str = "orders") -> PartitionLog:
    log = manager.get(topic, 0)
    assert log is not None
    return log


def fill_logs(manager: LogManager) -> None:
    """Two logs of several segments: with producers and an open transaction, and with deleted records."""
    orders, payments = (make_log(manager, topic, 0, TOPIC_ID, SMALL) for topic in ("orders", "payments"))
    fill(orders, 30)
    produce(orders, 7, 0)
    produce(orders, 7, 1)
    produce(orders, 8, 0, transactional=True)
    fill(payments, 40)
    payments.flusher.flush()
    payments.trimmer.delete_records_before(payments.segment_base_offsets[1] + 1)
    manager.purge_deleted(10.0**9)
    manager.checkpoint_log_start_offsets()
    make_log(manager, "payments", 1, TOPIC_ID, SMALL)


@pytest.fixture
def closed(start: Callable[..., LogManager]) -> None:
    manager = start()
    fill_logs(manager)
    stop(manager)


class TestUnchanged:
    def test_no_file_of_an_unchanged_log_is_read(self, start: Callable[..., LogManager], closed: None) -> None:
        disk = Reads()
        manager = start(disk)
        assert disk.logs == set()
        assert len(list(manager.logs())) == 3
        assert manager.topic_id("orders", 0) == TOPIC_ID

    def test_it_is_the_log_that_reading_its_files_gives(
        self, start: Callable[..., LogManager], closed: None, data: Path
    ) -> None:
        shutil.copytree(data, data.parent / "copy")
        disk = Reads()
        saved, read = start(disk), start(directory=data.parent / "copy")
        for topic, partition in (("orders", 0), ("payments", 0), ("payments", 1)):
            assert facts(saved.get(topic, partition)) == facts(read.get(topic, partition))

    def test_so_it_is_after_a_kill(self, start: Callable[..., LogManager], closed: None) -> None:
        manager = start()
        fill(first(manager), 1)
        kill(manager)
        disk = Reads()
        after = start(disk)
        assert disk.logs == {"orders-0"}
        assert not after.was_closed_cleanly
        assert len(contents(first(after))) == 34
        kill(after)
        disk = Reads()
        start(disk)
        assert disk.logs == {"orders-0"}

    def test_the_next_append_continues_the_log(self, start: Callable[..., LogManager], closed: None) -> None:
        manager = start()
        log = first(manager)
        end = log.log_end_offset
        assert produce(log, 7, 1) == end - 2, "the duplicate is known"
        assert produce(log, 7, 2) == end
        fill(log, 20)
        stop(manager)
        after = first(start())
        assert len(contents(after)) == end + 21
        assert after.log_end_offset == end + 21

    @pytest.mark.parametrize("pid", [7, None], ids=["producers", "no producers"])
    def test_old_snapshots_are_removed_at_each_stop(
        self, start: Callable[..., LogManager], closed: None, data: Path, pid: int | None
    ) -> None:
        for number in range(30):
            disk = Reads()
            manager = start(disk)
            assert disk.logs == set(), "opened from its saved state"
            log = first(manager)
            if pid is None:
                fill(log, 1)
            else:
                produce(log, pid, number + 2)
            stop(manager)
            kept = {*log.segment_base_offsets, log.log_end_offset}
            assert snapshot_offsets(data / "orders-0") <= kept
            assert log.log_end_offset in snapshot_offsets(data / "orders-0")
        assert len(log.segment_base_offsets) > 3
        (data / CLOSED_LOGS_FILE).unlink()
        again = first(start())
        assert again.producer_state.image() == log.producer_state.image()

    def test_a_log_without_records_gets_its_first(self, start: Callable[..., LogManager], closed: None) -> None:
        manager = start()
        log = manager.get("payments", 1)
        assert log is not None
        fill(log, 2)
        stop(manager)
        assert facts(start().get("payments", 1))[:2] == (0, 2)

    @pytest.mark.parametrize("change", ["truncate", "roll", "append as follower", "retention", "lookup"])
    def test_every_change_works_without_an_append_before(
        self, start: Callable[..., LogManager], closed: None, data: Path, change: str
    ) -> None:
        shutil.copytree(data, data.parent / "copy")
        found = []
        for manager in (start(), start(directory=data.parent / "copy")):
            log = first(manager)
            if change == "truncate":
                log.trimmer.truncate_to(20)
            elif change == "roll":
                log.trimmer.roll()
            elif change == "append as follower":
                log.append_as_follower(make_batch(b"next", base_offset=log.log_end_offset))
            elif change == "retention":
                log.trimmer.apply_retention(NOW + 10**12)
            else:
                found.append(run_steps(log.reader.offset_for_timestamp(0, upper_bound=log.log_end_offset)))
                found.append(run_steps(log.reader.max_timestamp_offset()))
            stop(manager)
            found.append(facts(first(start(directory=Path(log.directory).parent))))
        half = len(found) // 2
        assert found[:half] == found[half:]

    def test_a_stop_without_changes_writes_no_file_of_the_log(
        self, start: Callable[..., LogManager], closed: None, data: Path
    ) -> None:
        before = {path: path.stat().st_ctime_ns for path in data.glob("*-*/*")}
        stop(start())
        stop(start())
        assert {path: path.stat().st_ctime_ns for path in data.glob("*-*/*")} == before
        disk = Reads()
        start(disk)
        assert disk.logs == set()

    def test_damage_behind_the_end_is_found_by_the_append(
        self, start: Callable[..., LogManager], closed: None, data: Path
    ) -> None:
        manager = start()
        log = first(manager)
        path = log.local.active.path
        with open(path, "r+b") as file:  # after the check of the start
            file.truncate(os.path.getsize(path) - 1)
        with pytest.raises(KafkaError) as failure:
            fill(log, 1)
        assert failure.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert log.is_offline


CHANGES: dict[str, Callable[[Path], object]] = {
    "a record is appended": lambda log: (log / LOG).write_bytes((log / LOG).read_bytes() + b"x"),
    "a record is overwritten": lambda log: overwrite(log / LOG),
    "the log is cut": lambda log: os.truncate(log / LOG, 10),
    "the log is replaced by a copy": lambda log: copied(log / LOG),
    "a file is added": lambda log: (log / "more").write_bytes(b""),
    "a snapshot is removed": lambda log: sorted(log.glob("*.snapshot"))[-1].unlink(),
    "the leader epochs are replaced": lambda log: copied(log / "leader-epoch-checkpoint"),
    "the topic id is replaced": lambda log: copied(log / "partition.metadata"),
    "the directory is replaced by a copy": lambda log: copied(log),
    "the directory is renamed twice": lambda log: log.rename(log.parent / "away").rename(log),
}


def overwrite(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data)
    os.utime(path, ns=(1, 1))


def copied(path: Path) -> None:
    """Replace a file or directory by a copy with the same times, as a backup restores it."""
    away = path.with_name("copied-" + path.name)
    path.rename(away)
    (shutil.copytree if away.is_dir() else shutil.copy2)(away, path)
    (shutil.rmtree if away.is_dir() else os.unlink)(away)


class TestChanged:
    @pytest.mark.parametrize("change", CHANGES)
    def test_a_log_whose_files_have_changed_is_read(
        self, start: Callable[..., LogManager], closed: None, data: Path, change: str
    ) -> None:
        CHANGES[change](data / "orders-0")
        disk = Reads()
        start(disk)
        assert disk.logs == {"orders-0"}

    def test_all_logs_of_a_restored_backup_are_read(
        self, start: Callable[..., LogManager], closed: None, data: Path
    ) -> None:
        shutil.copytree(data, data.parent / "backup")
        disk = Reads()
        manager = start(disk, data.parent / "backup")
        assert disk.logs == {"orders-0", "payments-0", "payments-1"}
        assert len(contents(first(manager))) == 33

    def test_the_states_of_another_directory_are_not_used(
        self, start: Callable[..., LogManager], closed: None, data: Path
    ) -> None:
        other = start(directory=data.parent / "other", node_id=2)
        fill(make_log(other, "orders", 0, OTHER_ID, SMALL), 2)
        stop(other)
        shutil.copy2(data / CLOSED_LOGS_FILE, data.parent / "other" / CLOSED_LOGS_FILE)
        again = start(directory=data.parent / "other", node_id=2)
        assert again.topic_id("orders", 0) == OTHER_ID
        assert len(contents(first(again))) == 2

    def test_a_log_that_was_created_again_is_another(
        self, start: Callable[..., LogManager], closed: None, data: Path
    ) -> None:
        manager = start()
        manager.delete("orders", 0)
        fill(make_log(manager, "orders", 0, OTHER_ID, SMALL), 33)
        kill(manager)
        after = start()
        assert after.topic_id("orders", 0) == OTHER_ID

    @pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"])
    @pytest.mark.parametrize("change", ["removed", "lower"])
    def test_checkpoints_of_another_time_are_noticed(
        self, start: Callable[..., LogManager], closed: None, data: Path, name: str, change: str
    ) -> None:
        path = data / name
        lines = [line for line in path.read_text().splitlines()[2:] if not line.startswith("orders 0 ")]
        lines += [] if change == "removed" else ["orders 0 5"]
        path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
        disk = Reads()
        start(disk)
        assert disk.logs == {"orders-0"}

    def test_synced_records_that_are_gone_are_noticed(
        self, start: Callable[..., LogManager], closed: None, data: Path
    ) -> None:
        """The disk has forgotten writes that it had confirmed, so the log is as it was when it was closed."""
        path = data / "recovery-point-offset-checkpoint"
        path.write_text(path.read_text().replace("orders 0 33", "orders 0 40"))
        manager = start()
        assert "records are lost" in manager.failures["orders", 0]

    def test_a_raised_log_start_counts(self, start: Callable[..., LogManager], closed: None) -> None:
        manager = start()
        first(manager).trimmer.delete_records_before(3)
        manager.checkpoint_log_start_offsets()
        kill(manager)
        disk = Reads()
        assert first(start(disk)).log_start_offset == 3
        assert "orders-0" in disk.logs

    @pytest.mark.parametrize(
        "damage",
        [
            lambda content: content[:-1],
            lambda content: content.replace(b"orders", b"0rders", 1),
            lambda content: b"",
            lambda content: b"1" + content[1:],
            lambda content: signed({"directory_id": None, "logs": {}}),
            lambda content: signed(["orders"]),
            lambda content: b"\xff" * 100,
        ],
    )
    def test_a_damaged_file_is_not_used(
        self,
        start: Callable[..., LogManager],
        closed: None,
        data: Path,
        damage: Callable[[bytes], bytes],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        path = data / CLOSED_LOGS_FILE
        path.write_bytes(damage(path.read_bytes()))
        disk = Reads()
        manager = start(disk)
        assert disk.logs == {"orders-0", "payments-0", "payments-1"}
        assert len(contents(first(manager))) == 33
        assert f"{path} cannot be used" in caplog.text


def signed(content: object) -> bytes:
    body = json.dumps(content).encode()
    return b"%d %08x\n" % (closed_logs.VERSION, crc32c(body)) + body


class TestNotSaved:
    def saved(self, data: Path) -> set[str]:
        identity = json.loads((data / CLOSED_LOGS_FILE).read_bytes().partition(b"\n")[2])["directory_id"]
        return set(read_closed_logs(RealDisk(), str(data), identity))

    def test_a_log_with_aborted_transactions(self, start: Callable[..., LogManager], data: Path) -> None:
        manager = start()
        for partition, decision in enumerate((COMMIT, ABORT)):
            log = make_log(manager, "orders", partition, TOPIC_ID, SMALL)
            produce(log, 1, 0, transactional=True)
            mark(log, 1, decision)
        stop(manager)
        assert self.saved(data) == {"orders-0"}

    def test_a_log_with_very_many_producers(self, start: Callable[..., LogManager], data: Path) -> None:
        manager = start()
        for partition in range(2):
            log = make_log(manager, "orders", partition, TOPIC_ID, SMALL)
            for pid in range(MAX_PRODUCERS + partition):
                produce(log, pid, 0)
        stop(manager)
        assert self.saved(data) == {"orders-0"}

    def test_a_log_with_deleted_files(self, start: Callable[..., LogManager], data: Path) -> None:
        manager = start()
        log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
        fill(log, 40)
        log.flusher.flush()
        log.trimmer.delete_records_before(log.segment_base_offsets[1])
        stop(manager)
        assert self.saved(data) == set()

    @pytest.mark.parametrize("suffix", [".swap", ".cleaned", ".deleted", ".tmp"])
    def test_a_log_with_files_of_unfinished_work(
        self, start: Callable[..., LogManager], data: Path, suffix: str
    ) -> None:
        """Only recovery removes such a file; a `.swap` that stayed would later replace newer records."""
        manager = start()
        for partition in range(2):
            fill(make_log(manager, "orders", partition, TOPIC_ID, SMALL), 1)
        (data / "orders-0" / f"{0:020d}.log{suffix}").touch()
        stop(manager)
        assert self.saved(data) == {"orders-1"}

    def test_a_log_with_a_large_active_segment(
        self, start: Callable[..., LogManager], data: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = start()
        for partition, records in enumerate((1, 9)):
            fill(make_log(manager, "orders", partition, TOPIC_ID, SMALL), records)
        monkeypatch.setattr(log_content, "MAX_ACTIVE_BYTES", first(manager).local.active.size)
        stop(manager)
        assert self.saved(data) == {"orders-0"}

    def test_logs_above_the_limit_of_all_segments(
        self, start: Callable[..., LogManager], data: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(closed_logs, "MAX_ALL_SEGMENTS", 2)
        manager = start()
        for partition in range(3):
            fill(make_log(manager, "orders", partition, TOPIC_ID, SMALL), 1)
        stop(manager)
        assert len(self.saved(data)) == 2

    def test_a_log_that_was_not_closed_cleanly(self, start: Callable[..., LogManager], data: Path) -> None:
        disk = Reads()
        manager = start(disk)
        for partition in range(2):
            fill(make_log(manager, "orders", partition, TOPIC_ID, SMALL), 1)
        disk.append_fault = 5
        with pytest.raises(KafkaError):
            fill(first(manager), 1)
        disk.append_fault = None
        stop(manager)
        assert self.saved(data) == {"orders-1"}

    def test_without_stamps(self, start: Callable[..., LogManager], data: Path) -> None:
        manager = start(NoStamps())
        fill_logs(manager)
        stop(manager)
        assert not (data / CLOSED_LOGS_FILE).exists()
        stop(start())
        disk = NoStamps()
        assert (data / CLOSED_LOGS_FILE).exists()
        assert len(contents(first(start(disk)))) == 33


def test_a_file_that_cannot_be_read_is_ignored(start: Callable[..., LogManager], data: Path) -> None:
    manager = start()
    fill(make_log(manager, "orders", 0, TOPIC_ID, SMALL), 3)
    stop(manager)
    (data / CLOSED_LOGS_FILE).unlink()
    (data / CLOSED_LOGS_FILE).mkdir()  # reading it fails with EISDIR
    assert len(contents(first(start()))) == 3


@pytest.mark.parametrize("seed", range(60))
def test_a_saved_state_agrees_with_the_files_after_kills_and_power_cuts(seed: int) -> None:
    """Both starts see the same disk: one with the saved states, the other without them."""
    random = Random(seed)
    disk = CrashingDisk(random)
    disk.syncs_file_system = True
    manager = open_manager("/data", disk)
    for partition in range(4):
        fill(make_log(manager, "orders", partition, TOPIC_ID, SMALL), random.randrange(0, 20))
    stop(manager)
    used = 0
    for _ in range(4):
        manager = open_manager("/data", disk)
        for log in list(manager.logs()):
            if random.random() < 0.5:
                continue
            fill(log, random.randrange(1, 12))
            if random.random() < 0.3:
                log.flusher.flush()
            if random.random() < 0.3:
                log.trimmer.truncate_to(random.randrange(log.log_end_offset + 1))
        high_watermarks(manager)
        if random.random() < 0.3:
            manager.checkpoint_recovery_points()
        if random.random() < 0.2:
            manager.close()
        elif random.random() < 0.5:
            disk.cut_power()
        after = open_manager("/data", disk)
        names = {log.name: (log.log_end_offset, contents(log), log.leader_epochs.entries) for log in after.logs()}
        used += sum(not log.local.active.offset_index.is_active for log in after.logs())
        disk.remove(f"/data/{CLOSED_LOGS_FILE}")
        read = open_manager("/data", disk)
        assert {
            log.name: (log.log_end_offset, contents(log), log.leader_epochs.entries) for log in read.logs()
        } == names
        stop(read)
    assert used > 0
