"""A supervisor starts workers again that hang, and kills a worker that does not stop in time."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from oncelog_broker.metadata.stores.supervised.store_server import StoreServer
from oncelog_broker.workers import supervisor
from oncelog_broker.workers.forked_worker import ForkedWorker
from oncelog_broker.workers.supervisor import Supervisor
from oncelog_broker.workers.worker_process import WorkerPlan, WorkerProcess
from oncelog_broker.workers.worker_role import WorkerRole

SECONDS = 60.0


class Running:
    """A supervisor with one worker, in the test's process."""

    def __init__(self, directory: Path) -> None:
        self.stop = asyncio.Event()
        self.ready = asyncio.Event()
        self.processes = asyncio.Queue[ForkedWorker]()
        """The worker's processes, in the order of their starts."""
        self.store = str(directory / "metadata.db")
        arguments = ["--data", str(directory / "worker1"), "--set", "listeners=PLAINTEXT://127.0.0.1:0"]
        self.plan = WorkerPlan(1, arguments, WorkerRole(1, (), self.store))

    async def run(self) -> int:
        return await Supervisor([self.plan], self.store).run(self.ready.set, self.stop, asyncio.Event())


@pytest.fixture
async def running(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Running]:
    """A supervisor whose worker serves; the test stops it."""
    made = Running(tmp_path)

    class Noted(WorkerProcess):
        async def _start(self) -> ForkedWorker:
            process = await super()._start()
            made.processes.put_nowait(process)
            return process

    monkeypatch.setattr(supervisor, "WorkerProcess", Noted)
    monkeypatch.setattr(supervisor, "StoreServer", partial(StoreServer, session_seconds=1.0, hung_seconds=1.0))
    monkeypatch.setattr(supervisor, "STOP_SECONDS", 1.0)
    task = asyncio.create_task(made.run())
    async with asyncio.timeout(SECONDS):
        await made.ready.wait()
        yield made
        made.stop.set()
        assert await task == 0


async def test_a_worker_that_hangs_is_killed_and_started_again(running: Running) -> None:
    hanging = await running.processes.get()
    hanging.send_signal(signal.SIGSTOP)
    assert await hanging.wait() == -signal.SIGKILL
    assert (await running.processes.get()).pid != hanging.pid


async def test_a_worker_that_does_not_stop_in_time_is_killed(running: Running) -> None:
    hanging = await running.processes.get()
    hanging.send_signal(signal.SIGSTOP)
    running.stop.set()
    assert await hanging.wait() == -signal.SIGKILL
