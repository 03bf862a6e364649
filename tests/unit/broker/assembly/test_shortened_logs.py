"""A start notices logs that have lost records below their high watermark checkpoints."""

from __future__ import annotations

from pathlib import Path

from tests.support.logs import make_log
from tests.support.storage import NOW, SMALL, fill

from oncelog_broker.assembly.storage import logs_below_high_watermarks
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk

RECORDS = 3


def opened(data: Path) -> LogManager:
    return LogManager.open(
        [data], node_id=1, cluster_id="c", disk=RealDisk(), clock=ManualClock(NOW), config_of=lambda topic: SMALL
    )


def killed(manager: LogManager) -> None:
    for log in manager.logs():
        log.abandon()
    for directory in manager._directories:
        directory.close(clean=False)


def test_a_log_that_ends_below_its_high_watermark_checkpoint_is_named(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    for topic in ("orders", "payments"):
        fill(make_log(manager, topic, 0, bytes(16), SMALL), RECORDS)
    manager.checkpoint_high_watermarks({("orders", 0): RECORDS, ("payments", 0): RECORDS - 1})
    assert logs_below_high_watermarks(manager) == []
    killed(manager)
    for topic in ("orders", "payments"):  # both logs lose their last record
        path = tmp_path / f"{topic}-0" / f"{0:020d}.log"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    manager = opened(tmp_path)
    assert [log.log_end_offset for log in manager.logs()] == [RECORDS - 1, RECORDS - 1]
    assert logs_below_high_watermarks(manager) == ["orders-0"]
    killed(manager)
