"""The conditions under which a worker process is restarted, and the log message that describes its end."""

from __future__ import annotations

import asyncio
import signal
from typing import Any, cast

from oncelog_broker.workers.forked_worker import ForkedWorker, Template
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
