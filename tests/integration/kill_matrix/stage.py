"""The broker, the proxy in front of it, and the socket at which all processes ask how to continue at their fail points.
One stage is
used for many runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from broker_process import BrokerProcess
from frame_proxy import FrameProxy
from raw_client import RawClient

from kill_matrix.questions import GO, Hit, Questions
from oncelog.fail_points.point import FAIL_POINTS

LAST_LINES = 20
OFFSETS_PARTITIONS = 3
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "transaction.state.log.num.partitions": "3",
    "auto.create.topics.enable": "false",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "transaction.two.phase.commit.enable": "true",
    "group.streams.min.session.timeout.ms": "500",
    "group.streams.session.timeout.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "100",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}


Decide = Callable[[Hit, BrokerProcess], Awaitable[str]]
"""The type of a function that gets the `Hit` (a process at a fail point) and the broker to which the fault would apply,
and returns the answer for the process.
"""


async def _go(_: Hit, __: BrokerProcess) -> str:
    return GO


class Stage:
    """The processes of a run: broker, proxy and worker, and the socket for their fail points. `address` is the proxy's
    address, which clients use; `decide` returns the answer for a process that has reached a fail point.
    """

    run_seconds = 30.0
    """Limit of a run in seconds, far more than a run takes with all restarts."""

    def __init__(self, directory: Path) -> None:
        self.questions = Questions(directory / "questions.sock", lambda hit: self.decide(hit, self.struck))
        self.decide: Decide = _go
        self.proxy = FrameProxy()
        self.broker = BrokerProcess(directory / "data", SETTINGS)
        self.fail_points = self.questions.specification(FAIL_POINTS)
        self.log = directory / "worker.log"
        self._read_of_log = 0

    @property
    def struck(self) -> BrokerProcess:
        """The broker to which a fault applies when a client, not a broker, has reached the fail point."""
        return self.broker

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.proxy.port}"

    async def __aenter__(self) -> Self:
        await self.questions.start()
        await self.proxy.start()
        self.broker.settings["advertised.listeners"] = f"PLAINTEXT://{self.address}"
        await self.start_broker()
        self.proxy.forward_to(self.broker.port)
        return self

    async def start_broker(self) -> None:
        """Start the broker in a thread, because during its start the broker asks this process how to continue at fail
        points.
        """
        if not self.broker.is_running:
            await asyncio.to_thread(self.broker.start, self.fail_points)

    def last_words(self) -> list[str]:
        """Return the last lines of the logs of broker and workers."""
        return [line for log in (self.broker.log, self.log) for line in log.read_text().splitlines()[-LAST_LINES:]]

    def complaints(self) -> list[str]:
        """Return unexpected log lines of the broker since the last call."""
        lines, self._read_of_log = self._new_lines(self.broker, self._read_of_log)
        return [f"the broker: {line}" for line in lines]

    @staticmethod
    def _new_lines(broker: BrokerProcess, begin: int) -> tuple[list[str], int]:
        """Return the unexpected lines from position `begin` of the log on, and the new position."""
        with broker.log.open() as log:
            log.seek(begin)
            lines = log.read().splitlines()
            return [line for line in lines if line.startswith("Traceback") or "Z error " in line], log.tell()

    def cut(self) -> None:
        """All connections."""
        self.proxy.cut()

    async def with_client(self, work: Callable[[RawClient], object]) -> None:
        """Send requests directly to the broker, without the proxy. A thread sends these requests, because the broker
        may meanwhile ask this process how to continue at a fail point.
        """

        def call() -> None:
            with RawClient(self.broker.port) as client:
                work(client)

        await asyncio.to_thread(call)

    def reset(self) -> None:
        """Remove all faults that were set in the proxy."""
        self.decide = _go
        self.proxy.forget_marks()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.reset()
        if self.broker.is_running:
            await asyncio.to_thread(self.broker.stop)
        await self.proxy.close()
        await self.questions.close()
