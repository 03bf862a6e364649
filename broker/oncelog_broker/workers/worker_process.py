"""One worker: a process that is started again whenever it ends, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from oncelog_broker.workers.forked_worker import ForkedWorker, Template
from oncelog_broker.workers.worker_role import WorkerRole

READY: Final = b" ready on "
"""Part of the line with which a broker says that it serves."""
STEADY_SECONDS: Final = 10.0
"""A worker that has run for so long is started again at once, whatever happened before."""
FIRST_DELAY_SECONDS: Final = 0.5
MAX_DELAY_SECONDS: Final = 10.0
"""Longest time between the end of a worker and its next start."""

logger = logging.getLogger(__name__)


class WorkerFailed(Exception):
    """A worker ended before it had served for the first time. Its own output says why."""


class WorkerPlan(NamedTuple):
    """How to start one worker."""

    node_id: int
    arguments: Sequence[str]
    """The arguments of `oncelog serve`, without `--worker`."""
    role: WorkerRole
    """Without the descriptor."""


class WorkerProcess:
    """One worker. `run` keeps it running; `stop` ends it."""

    def __init__(
        self, plan: WorkerPlan, template: Template, connect: Callable[[], Awaitable[socket.socket]] | None
    ) -> None:
        """`connect` makes the worker's end of a connection to the supervisor's store; None with ZooKeeper."""
        self.plan = plan
        self._template = template
        self._connect = connect
        self._process: ForkedWorker | None = None
        self._stopping = asyncio.Event()
        self.ready = asyncio.Event()
        """Set when the worker has served for the first time."""

    async def run(self) -> None:
        """Start the process, and start it again whenever it ends, until `stop`. WorkerFailed, OSError: only before it
        has served for the first time."""
        loop, deaths = asyncio.get_running_loop(), 0
        while not self._stopping.is_set():
            started = loop.time()
            end = await self._run_once()
            if self._stopping.is_set():
                return
            if not self.ready.is_set():
                raise WorkerFailed(f"worker {self.plan.role.number} {end} before it served")
            deaths = 1 if loop.time() - started >= STEADY_SECONDS else deaths + 1
            seconds = restart_delay(deaths)
            logger.error(
                "a worker ended and is started again",
                extra={"worker": self.plan.role.number, "broker": self.plan.node_id, "end": end, "seconds": seconds},
            )
            try:
                await asyncio.wait_for(self._stopping.wait(), seconds)
            except TimeoutError:
                pass

    async def _run_once(self) -> str:
        """Start a process and wait for its end. Returns how it ended, in words."""
        try:
            process = self._process = await self._start()
        except OSError as error:  # no process or no descriptor is left, perhaps for a moment
            if not self.ready.is_set():
                raise
            return f"could not be started: {error}"
        await self._read_output(process)
        code = await process.wait()
        self._process = None
        return described_end(code)

    def stop(self) -> None:
        """Have the process stop in an orderly way, and start no other one. A second call stops it at once."""
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._stopping.set()
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    async def _start(self) -> ForkedWorker:
        connection = None if self._connect is None else await self._connect()
        try:
            arguments = ["serve", *self.plan.arguments, "--stop-at-eof"]
            process = await self._template.fork(arguments, self.plan.role, connection)
        finally:
            if connection is not None:
                connection.close()
        if self._stopping.is_set():
            process.send_signal(signal.SIGTERM)
        return process

    async def _read_output(self, process: ForkedWorker) -> None:
        """Read its standard output to the end, for the line that says that it serves."""
        async for line in process.stdout:
            if READY in line:
                self.ready.set()


def restart_delay(deaths: int) -> float:
    """Seconds until a worker is started again that has ended so many times in short succession: none after the first
    end, then twice as many each time, up to MAX_DELAY_SECONDS."""
    return 0.0 if deaths <= 1 else min(FIRST_DELAY_SECONDS * 2.0 ** min(deaths - 2, 10), MAX_DELAY_SECONDS)


def described_end(code: int | None) -> str:
    """Describe the end of a process: "was killed by SIGKILL", "ended with exit code 1"."""
    if code is None:
        return "ended"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
