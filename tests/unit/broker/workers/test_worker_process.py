"""The conditions under which a worker process is restarted, and the log message that describes its end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from oncelog_broker.workers import hang_watch
from oncelog_broker.workers.forked_worker import ForkedWorker, Template
from oncelog_broker.workers.hang_watch import HangWatch
from oncelog_broker.workers.worker_process import (
    MAX_DELAY_SECONDS,
    WorkerPlan,
    WorkerProcess,
    described_end,
    restart_delay,
)
from oncelog_broker.workers.worker_role import WorkerRole


def test_a_worker_is_started_again_at_once_and_ever_later_if_it_keeps_dying() -> None:
    delays = [restart_delay(deaths) for deaths in range(1, 100)]
    assert delays[:4] == [0.0, 0.5, 1.0, 2.0]
    assert delays == sorted(delays)
    assert delays[-1] == MAX_DELAY_SECONDS


def test_the_end_of_a_process() -> None:
    assert described_end(1) == "ended with exit code 1"
    assert described_end(-9) == "was killed by SIGKILL"
    assert described_end(-200) == "was killed by signal 200"


class Process:
    """A process whose standard output and end the test controls."""

    pid = 0

    def __init__(self) -> None:
        self.stdout = asyncio.StreamReader()
        self.ended = asyncio.Event()
        self.signals: list[signal.Signals] = []

    def send_signal(self, number: signal.Signals) -> None:
        self.signals.append(number)

    async def wait(self) -> int:
        await self.ended.wait()
        return -signal.SIGKILL


async def test_only_a_process_that_has_served_is_killed_because_it_hangs() -> None:
    """Before that it may recover its logs for minutes, without heartbeats."""
    started, read = asyncio.Queue[Process](), asyncio.Queue[ForkedWorker]()

    class Worker(WorkerProcess):
        async def _start(self) -> ForkedWorker:
            process = Process()
            started.put_nowait(process)
            return cast("ForkedWorker", process)

        async def _read_output(self, process: ForkedWorker) -> None:
            await super()._read_output(process)
            read.put_nowait(process)

    worker = Worker(WorkerPlan(1, (), WorkerRole(1, ())), cast("Template", cast("Any", None)), None)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(20):
        for _ in range(2):  # the first start, and a restart
            process = await started.get()
            worker._on_hung()
            assert process.signals == []
            process.stdout.feed_data(b"oncelog ready on 127.0.0.1:9092\n")
            process.stdout.feed_eof()
            await read.get()
            worker._on_hung()
            assert process.signals == [signal.SIGKILL]
            process.ended.set()
        (await started.get()).stdout.feed_eof()
        running.cancel()
        await asyncio.wait((running,))


class Watched(WorkerProcess):
    """A worker whose process is a `Process`; without a `store`, it uses ZooKeeper."""

    def __init__(self, *, store: bool = False) -> None:
        plan = WorkerPlan(1, (), WorkerRole(1, ()))
        super().__init__(plan, cast("Template", cast("Any", None)), cast("Any", object()) if store else None)
        self.process = Process()
        self.checks = asyncio.Semaphore(0)
        """Counts the checks that the watch has begun."""

    async def _start(self) -> ForkedWorker:
        return cast("ForkedWorker", self.process)

    async def until_checked(self, times: int) -> None:
        async with asyncio.timeout(20):
            for _ in range(times):
                await self.checks.acquire()


@pytest.fixture
def quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hang_watch, "CHECK_SECONDS", 0.001)


@contextlib.asynccontextmanager
async def running(worker: Watched) -> AsyncIterator[None]:
    run = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        worker.process.stdout.feed_eof()
        worker.process.ended.set()
        await run


async def until_killed(process: Process) -> None:
    async with asyncio.timeout(20):
        while signal.SIGKILL not in process.signals:  # noqa: ASYNC110 - a list tells nobody
            await asyncio.sleep(0.001)


@pytest.mark.usefixtures("quick_checks")
async def test_a_process_of_which_no_thread_runs_while_it_starts_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, numbers = Watched(store=True), itertools.count()

    def active(pid: int) -> int:
        worker.checks.release()
        return next(numbers)

    monkeypatch.setattr(hang_watch, "activity", active)
    async with running(worker):
        await worker.until_checked(3 * hang_watch.STARTING_CHECKS)
        assert worker.process.signals == []
        monkeypatch.setattr(hang_watch, "activity", lambda pid: 7)
        await until_killed(worker.process)


@pytest.mark.usefixtures("quick_checks")
async def test_with_zookeeper_a_process_that_serves_and_writes_no_line_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = Watched()
    observed, watched = asyncio.Semaphore(0), HangWatch.is_hung

    def is_hung(self: HangWatch, progress: int | None, checks: int) -> bool:
        observed.release()
        return watched(self, progress, checks)

    monkeypatch.setattr(HangWatch, "is_hung", is_hung)
    async with running(worker):
        worker.process.stdout.feed_data(b"oncelog ready on 127.0.0.1:9092\n")
        async with asyncio.timeout(20):
            for _ in range(3 * hang_watch.SERVING_CHECKS):
                worker.process.stdout.feed_data(hang_watch.BEAT)
                await observed.acquire()
        assert worker.process.signals == []
        await until_killed(worker.process)


@pytest.mark.usefixtures("quick_checks")
async def test_the_store_of_the_supervisor_watches_a_process_that_serves() -> None:
    worker = Watched(store=True)
    worker.process.stdout.feed_data(b"oncelog ready on 127.0.0.1:9092\n")
    async with running(worker):
        await worker.ready.wait()
        await worker._watch(cast("ForkedWorker", worker.process))
        assert worker.process.signals == []
