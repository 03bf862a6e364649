"""Background work on the logs: what waits for the disk does not keep the event loop."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.support.storage import SMALL, fill

from oncelog_broker.log.directories.log_manager import LogManager
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
    log = logs.get_or_create("orders", 0, None, SMALL)
    fill(log, 40)
    log.delete_records_before(35)
    fill(logs.get_or_create("gone", 0, None, SMALL), 1)
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
