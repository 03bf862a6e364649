"""Logs are created and deleted independently in each data directory; a deletion that fails is retried."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.support.hosted_partitions import EMPTY, nobody_fetches, topic
from tests.support.hosts import host_of

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.replication import log_opener
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk
from oncelog_broker.runtime.tasks import Tasks


class HangingDisk(RealDisk):
    """A disk on which the creation of files in the directory `b` can hang; renames can be refused."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.hangs = threading.Event()
        self.refuses_renames = False

    def make_directories(self, path: str) -> bool:
        if "/b/" in path and not self.may_go_on.is_set():
            self.hangs.set()
            self.may_go_on.wait(20)
        return super().make_directories(path)

    def rename(self, source: str, target: str) -> None:
        if self.refuses_renames:
            raise OSError(errno.ENOSPC, "No space left on device", source)
        super().rename(source, target)


@pytest.fixture
def disk() -> HangingDisk:
    return HangingDisk()


@pytest.fixture
def logs(tmp_path: Path, disk: HangingDisk) -> LogManager:
    directories = [tmp_path / "a", tmp_path / "b"]
    return LogManager.open(directories, node_id=1, cluster_id="c", disk=disk, clock=ManualClock())


@pytest.fixture
async def replicas(logs: LogManager, disk: HangingDisk) -> AsyncIterator[Replicas]:
    tasks = Tasks()
    yield Replicas(1, logs, lambda _: LogConfig(), host_of(tasks=tasks), nobody_fetches)
    disk.may_go_on.set()
    await tasks.close()
    logs.close()


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(0.005)


async def test_e48_a_disk_that_hangs_keeps_no_log_of_another_directory_from_being_made_or_deleted(
    replicas: Replicas, disk: HangingDisk, tmp_path: Path
) -> None:
    disk.may_go_on.clear()
    both = EMPTY.with_topic(topic("orders", 1, partitions=2))
    replicas.on_image(EMPTY, both)
    await until(lambda: disk.hangs.is_set() and replicas.hosted("orders", 0) is not None)
    more = both.with_topic(topic("more", 2))
    replicas.on_image(both, more)  # the new log goes to the directory with the fewest logs, which is the hanging one
    last = more.with_topic(topic("last", 3))
    replicas.on_image(more, last)
    await until(lambda: replicas.hosted("last", 0) is not None)
    assert {path.name for path in (tmp_path / "a").glob("*-0")} == {"orders-0", "last-0"}
    replicas.on_image(last, without := EMPTY.with_topic(topic("orders", 1, partitions=2)).with_topic(topic("more", 2)))
    await until(lambda: not (tmp_path / "a" / "last-0").exists())
    assert replicas.is_opening
    disk.may_go_on.set()
    await replicas.until_opened()
    assert replicas.hosted("orders", 1) is not None
    assert replicas.hosted("more", 0) is not None
    assert without


async def test_e48_a_re_created_topic_waits_for_the_deletion_of_the_former_wherever_it_is_made(
    replicas: Replicas, disk: HangingDisk, logs: LogManager
) -> None:
    first, second = (EMPTY.with_topic(topic("orders", number, partitions=2)) for number in (1, 2))
    replicas.on_image(EMPTY, first)
    await replicas.until_opened()
    replicas.on_image(first, EMPTY)
    replicas.on_image(EMPTY, second)
    await replicas.until_opened()
    assert {logs.topic_id("orders", number) for number in (0, 1)} == {bytes([2]) * 16}
    assert all(replicas.hosted("orders", number) is not None for number in (0, 1))


async def test_e48_a_deletion_that_failed_is_retried_before_the_next_topic_of_that_name(
    replicas: Replicas, disk: HangingDisk, logs: LogManager
) -> None:
    first, second = (EMPTY.with_topic(topic("orders", number)) for number in (1, 2))
    replicas.on_image(EMPTY, first)
    await replicas.until_opened()
    disk.refuses_renames = True
    replicas.on_image(first, EMPTY)
    await until(lambda: replicas._hosted._undeleted)
    disk.refuses_renames = False
    replicas.on_image(EMPTY, second)
    await replicas.until_opened()
    assert replicas.leader("orders", 0).topic_id == bytes([2]) * 16


async def test_e48_a_deletion_that_failed_is_retried_by_itself(
    replicas: Replicas,
    disk: HangingDisk,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(log_opener, "RETRY_SECONDS", 0.001)
    first = EMPTY.with_topic(topic("orders", 1))
    replicas.on_image(EMPTY, first)
    await replicas.until_opened()
    disk.refuses_renames = True
    replicas.on_image(first, EMPTY)
    await until(lambda: max(replicas._hosted._undeleted.values(), default=0.0) > 0.002)
    assert caplog.text.count("log not deleted") == 1, "it is said once"
    disk.refuses_renames = False
    await until(lambda: not replicas._hosted._undeleted)
    assert not list(tmp_path.glob("*/orders-0"))
