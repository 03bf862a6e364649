"""One worker: a process that is restarted whenever it ends, until `stop` is called."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from oncelog_broker.workers import hang_watch
from oncelog_broker.workers.forked_worker import ForkedWorker, Template
from oncelog_broker.workers.hang_watch import HangWatch
from oncelog_broker.workers.worker_role import WorkerRole

READY: Final = b" ready on "
"""Text in the line with which a broker reports that it serves."""
STEADY_SECONDS: Final = 10.0
"""A worker that ends after running for at least this number of seconds is restarted immediately, even if it has often
ended before.
"""
FIRST_DELAY_SECONDS: Final = 0.5
MAX_DELAY_SECONDS: Final = 10.0
"""Maximum seconds between the end of a worker and its restart."""

logger = logging.getLogger(__name__)


class WorkerFailed(Exception):
    """A worker ended before it had served for the first time. The worker's own output has the reason."""


class WorkerPlan(NamedTuple):
    """The arguments, role and connection with which one worker is started."""

    node_id: int
    arguments: Sequence[str]
    """The arguments of `oncelog serve`, without the option `--worker`."""
    role: WorkerRole
    """The role of the worker, without the descriptor of the store connection."""


class WorkerProcess:
    """One worker. `run` keeps the worker running; `stop` ends it."""

    def __init__(
        self,
        plan: WorkerPlan,
        template: Template,
        connect: Callable[[Callable[[], None]], Awaitable[socket.socket]] | None,
    ) -> None:
        """`connect` creates the worker's end of a connection to the supervisor's store; its argument is called when the
        worker hangs. `connect` is None if the workers use ZooKeeper.
        """
        self.plan = plan
        self._template = template
        self._connect = connect
        self._process: ForkedWorker | None = None
        self._serves = False
        """Whether the present process has reported that it serves. A process that recovers its logs sends no
        heartbeats, and must not be taken for one that hangs.
        """
        self._lines = 0
        """The number of lines that the present process has written to its standard output."""
        self._stopping = asyncio.Event()
        self.ready = asyncio.Event()
        """An event that is set when the worker serves for the first time."""

    async def run(self) -> None:
        """Start the process, and restart it whenever it ends, until `stop` is called. Raises WorkerFailed, OSError, but
        only before the worker has served for the first time.
        """
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
        """Start a process and wait for its end. Returns a description of the end, such as "was killed by SIGKILL"."""
        self._serves, self._lines = False, 0
        try:
            process = self._process = await self._start()
        except OSError as error:  # retry later: a shortage of processes or file descriptors may pass
            if not self.ready.is_set():
                raise
            return f"could not be started: {error}"
        watching = asyncio.create_task(self._watch(process))
        try:
            await self._read_output(process)
            code = await process.wait()
        finally:
            watching.cancel()
        self._process = None
        return described_end(code)

    async def _watch(self, process: ForkedWorker) -> None:
        """Kill the process if it hangs while it starts, or, with ZooKeeper, while it serves. A stop has a limit of its
        own, and the supervisor's store calls `_on_hung`.
        """
        watch = HangWatch()
        while not self._stopping.is_set():
            await asyncio.sleep(hang_watch.CHECK_SECONDS)
            if not self._serves:
                if watch.is_hung(hang_watch.activity(process.pid), hang_watch.STARTING_CHECKS):
                    self._kill_hung("a worker hangs while it starts and is killed")
                    return
            elif self._connect is not None:
                return
            elif watch.is_hung(self._lines, hang_watch.SERVING_CHECKS):
                self._kill_hung("a worker hangs and is killed")
                return

    def stop(self) -> None:
        """Stop the process in an orderly way, and do not restart it. A second call stops the process immediately."""
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process (kill -9)."""
        self._stopping.set()
        self._signal(signal.SIGKILL)

    def _on_hung(self) -> None:
        """Kill a process that has served and now hangs, so that `run` starts another one."""
        if self._serves:
            self._kill_hung("a worker hangs and is killed")

    def _kill_hung(self, message: str) -> None:
        logger.error(message, extra={"worker": self.plan.role.number})
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    async def _start(self) -> ForkedWorker:
        connection = None if self._connect is None else await self._connect(self._on_hung)
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
        """Read the worker's standard output to the end: the line that reports that the worker serves, and the lines
        that show that its event loop runs.
        """
        async for line in process.stdout:
            self._lines += 1
            if READY in line:
                self._serves = True
                self.ready.set()


def restart_delay(deaths: int) -> float:
    """Seconds between the end of a worker and its restart. The argument is how many times the worker has ended in quick
    succession. The delay is 0 after the first end and FIRST_DELAY_SECONDS after the second end; it then doubles each
    time, up to MAX_DELAY_SECONDS.
    """
    return 0.0 if deaths <= 1 else min(FIRST_DELAY_SECONDS * 2.0 ** min(deaths - 2, 10), MAX_DELAY_SECONDS)


def described_end(code: int | None) -> str:
    """Describe the end of a process, for example "was killed by SIGKILL" or "ended with exit code 1"."""
    if code is None:
        return "ended"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
