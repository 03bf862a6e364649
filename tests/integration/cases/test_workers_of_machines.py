"""Tests workers of several machines in one cluster: ZooKeeper has the metadata, and replicas of a partition are on
different machines.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from recording_clients import Loop
from worker_processes import PATIENCE_SECONDS, WorkerProcesses

from oncelog.admin import Admin, NewTopic

PARTITIONS = 8
MACHINES = ({1, 2}, {11, 12})
pytestmark = pytest.mark.zookeeper


def test_replicas_of_a_partition_are_on_different_machines(zookeeper: str, tmp_path: Path) -> None:
    settings = {"zookeeper.connect": zookeeper}
    first = WorkerProcesses(tmp_path / "first", {**settings, "node.id": "1", "broker.rack": "one"})
    second = WorkerProcesses(tmp_path / "second", {**settings, "node.id": "11", "broker.rack": "other"})
    loop = Loop()

    async def replicas() -> list[set[int]]:
        async with Admin(first.address) as admin:
            await admin.create_topics([NewTopic("orders", PARTITIONS, 2)])
            described = (await admin.describe_topics(["orders"]))["orders"]
        return [set(partition.replicas) for partition in described.partitions.values()]

    with first, second:
        assert not (first.data / "metadata.db").exists(), "ZooKeeper has the metadata"
        found = loop.run(replicas())
        assert len(found) == PARTITIONS
        assert [len(each & machine) for each in found for machine in MACHINES] == [1] * PARTITIONS * len(MACHINES)
        assert first.stop() == 0, "the workers of a machine hand over what they lead"
        assert second.pids().keys() == {1, 2}
    loop.close()
    assert "stopping as the only in-sync replica" not in first.log.read_text()


@pytest.mark.soak
def test_a_worker_that_hangs_is_killed_and_started_again(zookeeper: str, tmp_path: Path) -> None:
    """ZooKeeper's session does not tell the supervisor: the worker's own lines do. The other worker is left alone."""
    workers = WorkerProcesses(tmp_path / "machine", {"zookeeper.connect": zookeeper, "node.id": "1"})
    with workers:
        before = workers.pids()
        os.kill(before[2], signal.SIGSTOP)
        after = workers.until_started_again(2, before[2], 2 * PATIENCE_SECONDS)
        assert after != before[2]
        assert workers.pids()[1] == before[1]
    log = workers.log.read_text()
    assert log.count("a worker hangs and is killed") == 1
