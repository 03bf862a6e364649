"""Tests workers of several machines in one cluster: ZooKeeper has the metadata, and replicas of a partition are on
different machines.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from recording_clients import Loop
from worker_processes import WorkerProcesses

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
