"""In a cluster that is created from existing data directories, new producer ids begin above all producer ids in the
logs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.storage import make_batch

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.log_changes import WantedLog
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.metadata.membership.producer_ids import MAX_KNOWN_ID, UNKNOWN_IDS
from oncelog_broker.replication.startup_logs import ADOPTED_PRODUCER_IDS, found_logs
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk


def write(logs: LogManager, partition: int, producer_id: int = -1) -> None:
    """Write a record of this producer into the log of a new partition."""
    opening = logs.begin_opening([WantedLog("orders", partition, None, LogConfig())])
    opening.run()
    logs.finish_opening(opening)
    log = logs.get("orders", partition)
    assert log is not None
    producer = {} if producer_id < 0 else {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    log.append_as_leader(make_batch(**producer), leader_epoch=3)


@pytest.fixture
def logs(tmp_path: Path) -> LogManager:
    return LogManager.open([tmp_path], node_id=1, cluster_id="c", disk=RealDisk(), clock=ManualClock())


@pytest.mark.parametrize(
    ("producer_ids", "highest"),
    [
        ([-1, 7], ADOPTED_PRODUCER_IDS),
        ([5, ADOPTED_PRODUCER_IDS + 3], ADOPTED_PRODUCER_IDS + 3 + UNKNOWN_IDS),
        ([MAX_KNOWN_ID + 1, 9], ADOPTED_PRODUCER_IDS),
    ],
    ids=["of another cluster", "adopted before", "made up by a client"],
)
def test_s75_ids_begin_above_those_of_the_logs_also_where_these_were_adopted_before(
    logs: LogManager, tmp_path: Path, producer_ids: list[int], highest: int
) -> None:
    for partition, producer_id in enumerate(producer_ids):
        write(logs, partition, producer_id)
    assert found_logs(logs, [str(tmp_path)], RealDisk()).highest_producer_id == highest
    logs.close()
