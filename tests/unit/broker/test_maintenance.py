"""Background work on the logs: what waits for the disk does not keep the event loop."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from types import SimpleNamespace

from tests.support.logs import make_log
from tests.support.producers import produce
from tests.support.storage import SMALL, fill

from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.replication.partition import Partition
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk
from oncelog_broker.upkeep.maintenance import LogMaintenance


class WatchedDisk(RealDisk):
    """Tells which threads waited for it to free something; one path cannot be removed."""

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
    log.delete_records_before(35)
    fill(make_log(logs, "gone", 0, None, SMALL), 1)
    logs.delete("gone", 0)
    marked = [*(tmp_path / "orders-0").glob("*.deleted"), *tmp_path.glob("gone-*")]
    assert len(marked) > 4
    disk.stuck = str(marked[0])
    disk.threads.clear()
    maintenance = LogMaintenance(dict, logs, None, clock, None)  # type: ignore[arg-type]
    await maintenance.purge()
    assert all(path.exists() for path in marked), "their time has not come"
    clock.advance_ms(SMALL.file_delete_delay_ms)
    await maintenance.purge()
    assert [path for path in marked if path.exists()] == marked[:1]
    assert disk.threads
    assert threading.current_thread() not in disk.threads
    assert not log.is_offline, "what cannot be freed was let go long ago: nothing of the log is in doubt"
    logs.close()


async def test_e16_retention_flushes_what_it_could_not_let_go_of(tmp_path: Path) -> None:
    """Segments that nothing but the log says anything of wait for a snapshot, which retention sees to."""
    disk, clock = RealDisk(), ManualClock()
    logs = LogManager.open([tmp_path], node_id=1, cluster_id="c", disk=disk, clock=clock)
    log = make_log(logs, "orders", 0, None, dataclasses.replace(SMALL, retention_ms=1000))
    produce(log, 1, 0, timestamp=clock.now_ms())
    clock.advance_ms(10_000)
    partition = Partition("orders", bytes(16), 0, log, broker_id=1, high_watermark=log.log_end_offset)
    replicas = SimpleNamespace(partitions=lambda: [partition])
    maintenance = LogMaintenance(dict, logs, replicas, clock, None)  # type: ignore[arg-type]
    await maintenance.apply_retention()
    assert (log.segment_base_offsets, log.size_bytes) == ([1], 0)
    assert log.producers.saved_up_to == 1
    logs.close()
