"""Background work on the logs waits for the disk without blocking the event loop."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.hosts import host_of
from tests.support.logs import make_log
from tests.support.producers import produce
from tests.support.storage import SMALL, fill

from oncelog_broker.config import broker_keys as keys
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.producers.recent_ends import ENDS
from oncelog_broker.replication.partition import Partition
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk, RealFile
from oncelog_broker.upkeep.maintenance import LogMaintenance


class WatchedDisk(RealDisk):
    """Records which threads freed files; one path cannot be removed."""

    def __init__(self) -> None:
        self.threads: set[threading.Thread] = set()
        self.stuck = ""

    def remove(self, path: str) -> None:
        self.threads.add(threading.current_thread())
        if path == self.stuck:
            raise OSError(5, "Input/output error")
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self.threads.add(threading.current_thread())
        super().remove_tree(path)


async def test_large_files_are_freed_in_a_worker_thread(tmp_path: Path) -> None:
    disk, clock = WatchedDisk(), ManualClock()
    logs = LogManager.open([tmp_path], node_id=1, cluster_id="c", disk=disk, clock=clock)
    log = make_log(logs, "orders", 0, None, SMALL)
    fill(log, 40)
    log.trimmer.delete_records_before(35)
    fill(make_log(logs, "gone", 0, None, SMALL), 1)
    logs.delete("gone", 0)
    marked = [*(tmp_path / "orders-0").glob("*.deleted"), *tmp_path.glob("gone-*")]
    assert len(marked) > 4
    disk.stuck = str(marked[0])
    disk.threads.clear()
    maintenance = LogMaintenance(dict, logs, None, host_of(clock))  # type: ignore[arg-type]
    await maintenance.purge()
    assert all(path.exists() for path in marked), "their time has not come"
    clock.advance_ms(SMALL.file_delete_delay_ms)
    await maintenance.purge()
    assert [path for path in marked if path.exists()] == marked[:1]
    assert disk.threads
    assert threading.current_thread() not in disk.threads
    assert not log.is_offline, "what cannot be freed was let go long ago: nothing of the log is in doubt"
    logs.close()


async def test_e16_retention_flushes_segments_that_it_could_not_delete(tmp_path: Path) -> None:
    """A segment with the only record of a producer is deleted only after a snapshot of the producer state was written;
    retention triggers this snapshot.
    """
    disk, clock = RealDisk(), ManualClock()
    logs = LogManager.open([tmp_path], node_id=1, cluster_id="c", disk=disk, clock=clock)
    log = make_log(logs, "orders", 0, None, dataclasses.replace(SMALL, retention_ms=1000))
    produce(log, 1, 0, timestamp=clock.now_ms())
    clock.advance_ms(10_000)
    partition = Partition("orders", bytes(16), 0, log, broker_id=1, high_watermark=log.log_end_offset)
    replicas = SimpleNamespace(partitions=lambda: [partition])
    maintenance = LogMaintenance(dict, logs, replicas, host_of(clock))  # type: ignore[arg-type]
    await maintenance.apply_retention()
    assert (log.segment_base_offsets, log.size_bytes) == ([1], 0)
    assert log.producers.saved_up_to == 1
    logs.close()


class HangingDisk(RealDisk):
    """A disk on which fsyncs of log files in one directory wait until `may_end` is set."""

    def __init__(self, hangs: Path) -> None:
        self.hangs = str(hangs)
        self.may_end = threading.Event()

    def open(self, path: str, *, create: bool = False) -> RealFile:
        file = HangingFile(path, create=create)
        file.disk = self
        return file


class HangingFile(RealFile):
    __slots__ = ("disk",)
    disk: HangingDisk

    def sync(self) -> None:
        if self.path.startswith(self.disk.hangs):
            assert self.disk.may_end.wait(20)
        super().sync()


async def test_a_data_directory_that_hangs_delays_the_flushes_of_no_other(tmp_path: Path) -> None:
    """The flushes of the healthy directory go on, also in later rounds."""
    directories = [tmp_path / "hangs", tmp_path / "healthy"]
    disk, clock = HangingDisk(directories[0]), ManualClock()
    logs = LogManager.open(directories, node_id=1, cluster_id="c", disk=disk, clock=clock)
    config = dataclasses.replace(SMALL, flush_messages=2)
    made = [make_log(logs, "orders", index, None, config) for index in range(2)]
    assert {Path(log.state.directory).parent for log in made} == set(directories)
    stuck, healthy = sorted(made, key=lambda log: directories.index(Path(log.state.directory).parent))
    host = host_of(clock)
    maintenance = LogMaintenance(dict, logs, None, host)  # type: ignore[arg-type]
    for offset in (2, 4):
        for log in made:
            fill(log, 2)
        await maintenance.flush_due()
        async with asyncio.timeout(10):
            while healthy.state.recovery_point < offset:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.001)
        assert stuck.state.recovery_point == 0
    disk.may_end.set()
    await host.tasks.close()
    logs.close()


DAY_MS = 86_400_000
LOOK_MS = 600_000


class Expiring:
    """A log that the maintenance searches for expired producers from time to time."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.logs = LogManager.open([directory], node_id=1, cluster_id="c", disk=RealDisk(), clock=self.clock)
        self.log = make_log(self.logs, "orders", 0, None, SMALL)
        config = {keys.PRODUCER_ID_EXPIRATION_MS: DAY_MS}
        self.maintenance = LogMaintenance(lambda: config, self.logs, None, host_of(self.clock))  # type: ignore[arg-type,return-value]

    async def look_for(self, time_ms: int) -> None:
        for _ in range(time_ms // LOOK_MS):
            self.clock.advance_ms(LOOK_MS)
            await self.maintenance.expire_producer_ids()


@pytest.fixture
def expiring(tmp_path: Path) -> Iterator[Expiring]:
    made = Expiring(tmp_path)
    yield made
    made.logs.close()


@pytest.mark.parametrize("age_ms", [0, 365 * DAY_MS])
async def test_s56_a_producer_that_writes_is_known_however_old_its_records_are(expiring: Expiring, age_ms: int) -> None:
    """The log must remember the producer, because otherwise a batch whose response was lost would be appended twice,
    and an out-of-order batch would be accepted.
    """
    for sequence in range(4):
        options = {"timestamp": expiring.clock.now_ms() - age_ms}
        assert produce(expiring.log, 1, sequence, **options) == sequence
        await expiring.look_for(DAY_MS // 2)
        assert produce(expiring.log, 1, sequence, **options) == sequence, "sent again"
    await expiring.look_for(DAY_MS // 2 + DAY_MS // ENDS + LOOK_MS)
    assert list(expiring.log.producer_state.producers()) == []


async def test_s56_no_clock_that_is_set_expires_a_producer(expiring: Expiring) -> None:
    produce(expiring.log, 1, 0, timestamp=expiring.clock.now_ms())
    expiring.clock._now_ms += 10 * DAY_MS
    await expiring.look_for(DAY_MS // 2)
    assert produce(expiring.log, 1, 0) == 0


async def test_s56_a_producer_written_since_a_truncation_is_known(expiring: Expiring) -> None:
    for sequence in range(3):
        produce(expiring.log, 1, sequence, timestamp=1)
        await expiring.look_for(DAY_MS // 4)
    expiring.log.trimmer.truncate_to(1)
    produce(expiring.log, 2, 0, timestamp=1)
    await expiring.look_for(DAY_MS // 2)
    assert [entry.producer_id for entry in expiring.log.producer_state.producers()] == [2]


class TickingClock(ManualClock):
    """A clock that advances by one second at each reading."""

    def monotonic(self) -> float:
        self.advance_ms(1000)
        return super().monotonic()


@pytest.mark.parametrize("task", ["expire_producer_ids", "apply_retention"])
async def test_s87_other_work_gets_its_turn_between_slow_logs(tmp_path: Path, task: str) -> None:
    clock, count = TickingClock(), 5
    logs = LogManager.open([tmp_path], node_id=1, cluster_id="c", disk=RealDisk(), clock=clock)
    made = [make_log(logs, "orders", index, None, SMALL) for index in range(count)]
    partitions = [Partition("orders", bytes(16), index, log, broker_id=1) for index, log in enumerate(made)]
    config: dict[object, object] = {keys.PRODUCER_ID_EXPIRATION_MS: 1000}
    replicas = SimpleNamespace(partitions=lambda: partitions)
    maintenance = LogMaintenance(lambda: config, logs, replicas, host_of(clock))  # type: ignore[arg-type,return-value]
    turns, working = 0, asyncio.ensure_future(getattr(maintenance, task)())
    while not working.done():
        turns += 1
        await asyncio.sleep(0)
    await working
    assert turns >= count
    logs.close()
