"""Fixtures for the partitions of one broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.hosted_partitions import WatchedDisk, nobody_fetches
from tests.support.hosts import host_of

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.tasks import Tasks


@pytest.fixture
def disk() -> WatchedDisk:
    return WatchedDisk()


@pytest.fixture
def logs(tmp_path: Path, disk: WatchedDisk) -> LogManager:
    manager = LogManager.open([tmp_path], node_id=1, cluster_id="c", disk=disk, clock=ManualClock())
    disk.threads.clear()
    disk.events.clear()
    return manager


@pytest.fixture
async def tasks(logs: LogManager, disk: WatchedDisk) -> AsyncIterator[Tasks]:
    """Tasks for the replicas of a broker with these logs; the fixture closes the tasks and the logs."""
    tasks = Tasks()
    yield tasks
    disk.may_go_on.set()
    await tasks.close()
    logs.close()


@pytest.fixture
def replicas(logs: LogManager, tasks: Tasks) -> Replicas:
    return Replicas(1, logs, lambda overrides: LogConfig(), host_of(tasks=tasks), nobody_fetches)
