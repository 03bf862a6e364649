"""Worker processes that decode and search values. A process is started when it is needed, and replaced after it has
ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from oncelog_console.limits import MAX_WORKERS, TASK_SECONDS
from oncelog_console.values.tasks import LENGTH_BYTES, Result, Task, packed, result_of

PROGRAM: Final = (sys.executable, "-m", "oncelog_console.values.worker")
START_SECONDS: Final = 20.0
"""Seconds that a result may take in addition to TASK_SECONDS, because a process may have to start first, and the
machine may be busy.
"""
MAX_RESULT_BYTES: Final = 64 * 1024 * 1024

logger = logging.getLogger(__name__)


class TaskFailed(Exception):
    """Raised if a task failed. The message gives the reason, in words for the user."""


class Workers:
    """Runs tasks in at most MAX_WORKERS processes; a task waits until one of the processes is free."""

    def __init__(self, program: Sequence[str] = PROGRAM) -> None:
        self._program = tuple(program)
        self.turns = asyncio.Semaphore(MAX_WORKERS)
        """A semaphore that limits how many callers keep large values in memory while a task runs."""
        self._free = asyncio.Semaphore(MAX_WORKERS)
        self._resting: list[Process] = []
        self._busy: set[Process] = set()

    async def do(self, task: Task) -> Result:
        """Execute a task in a worker process; returns its result. Raises TaskFailed, also if the process ends during
        the task.
        """
        async with self._process() as process:
            result = await _answer(process, task)
        if result.problem is not None:
            raise TaskFailed(result.problem)
        return result

    async def close(self) -> None:
        """End all processes."""
        for process in [*self._resting, *self._busy]:
            await _end(process)
        self._resting.clear()

    @asynccontextmanager
    async def _process(self) -> AsyncIterator[Process]:
        """Provide a process for one task. The process is ended unless the task was completed."""
        async with self._free:
            process = self._resting.pop() if self._resting else await self._start()
            self._busy.add(process)
            try:
                yield process
            except BaseException:
                await _end(process)
                raise
            finally:
                self._busy.discard(process)
            self._resting.append(process)

    async def _start(self) -> Process:
        try:
            return await asyncio.create_subprocess_exec(*self._program, stdin=PIPE, stdout=PIPE, env=_environment())
        except OSError as error:
            raise TaskFailed(f"no process can be started to read values: {error.strerror}") from error


def _environment() -> dict[str, str]:
    """Return the environment of a worker: with it, the worker finds the same Python modules as the console, and prints
    no message if it ends at its memory limit.
    """
    return {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each), "MALLOC_ARENA_MAX": "1"}


async def _answer(process: Process, task: Task) -> Result:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(TASK_SECONDS + START_SECONDS):
            # Ignore the error: the worker has ended, and reading its result will raise an error.
            with suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(packed(task))
                await process.stdin.drain()
            length = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES))
            if length > MAX_RESULT_BYTES:
                raise TaskFailed("the answer about these values is too long")
            return result_of(await process.stdout.readexactly(length))
    except asyncio.IncompleteReadError:
        code = await process.wait()
        if code == -signal.SIGALRM:
            raise TaskFailed(_too_long()) from None
        logger.info("a process that read values has ended with %s", code)
        raise TaskFailed("these values cannot be read: the process that read them has ended") from None
    except TimeoutError:
        raise TaskFailed(_too_long()) from None


def _too_long() -> str:
    return f"this takes longer than {TASK_SECONDS:.0f} s with the values here: look for something simpler"


async def _end(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
