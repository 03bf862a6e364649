"""Background tasks and deadlines of one broker. Every task has an owner, every failure is logged, and periodic work
continues after errors.

`Tasks` owns the tasks of one broker. Work that must continue is started with `every` (periodic work) or `supervise`
(one long run); both continue if the work raises an error. `spawn` is for a task that may end with its first error,
because the caller that needs its result requests it again. `Deadlines` serves very many short timers (waiting fetches)
with one loop timer for each tick, because a `call_later` for each would cost more than the request.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import Any, Final, TypeVar

from oncelog_broker.runtime.clock import SystemClock
from oncelog_broker.runtime.disk_troubles import is_known_disk_error

logger = logging.getLogger(__name__)

T = TypeVar("T")

STILL_FAILING_SECONDS: Final = 60.0
"""Seconds between two log lines that report that a periodic task still fails because of a disk."""
TICK_SECONDS: Final = 0.005
"""Maximum delay of a deadline in seconds; if many deadlines fire together, the delay may be longer."""
FIRE_SECONDS: Final = 0.003
"""Maximum seconds that the callbacks of deadlines may take in one iteration of the event loop."""
FIRED_PER_TURN: Final = 32
"""The maximum number of timers that fire in one iteration of the event loop; the work that each causes (reading a fetch
and responding) is done in the next iteration.
"""
RESTART_SECONDS: Final = 1.0
"""Seconds of the pause after the first failure of supervised work. Each further failure doubles the pause, up to
MAX_RESTART_SECONDS.
"""
MAX_RESTART_SECONDS: Final = 60.0
"""Maximum seconds of the pause after a failure of supervised work. If a run lasted longer than this time, the next
pause is short again.
"""


class Tasks:
    """The background tasks of one broker."""

    def __init__(self, least_pause_seconds: float = 0.0) -> None:
        """`least_pause_seconds`: the minimum seconds between two runs of any periodic work. Only a simulation of days
        sets it, because most of its processor time would be spent in periodic work that finds nothing to do.
        """
        self._tasks: set[asyncio.Task[Any]] = set()
        self._least_pause = least_pause_seconds

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, T], *, is_awaited: bool = False) -> asyncio.Task[T]:
        """Run `coroutine` as a task, which `close` cancels. An exception of the task is logged, unless `is_awaited`."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard if is_awaited else self._finished)
        return task

    def answer(self, name: str, coroutine: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run a coroutine as a task, and return its answer (a value or a future): cancelling the answer does not cancel
        the task.
        """
        return detached(name, self.spawn(name, coroutine, is_awaited=True))

    def every(
        self,
        name: str,
        interval_seconds: float | Callable[[], float],
        action: Callable[[], Coroutine[Any, Any, Any]],
    ) -> None:
        """Run `action` periodically, each time `interval_seconds` after the previous run has ended. If
        `interval_seconds` is a callable, it is called before each pause. A failure of `action` does not end the
        repetition.
        """

        async def repeat() -> None:
            failures = _Failures(name)
            while True:
                seconds = interval_seconds() if callable(interval_seconds) else interval_seconds
                await asyncio.sleep(max(seconds, self._least_pause))
                try:
                    await action()
                except Exception as error:
                    failures.note(error)
                else:
                    failures.end()

        self.spawn(name, repeat())

    def supervise(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Run `work` until it returns. If `work` raises, log the error and run it again after a pause, because work
        that processes external input must not end with one invalid input (S93).
        """

        async def run() -> None:
            loop, failures = asyncio.get_running_loop(), 0
            while True:
                began = loop.time()
                try:
                    await work()
                    return
                except Exception:
                    failures = 0 if loop.time() - began > MAX_RESTART_SECONDS else failures
                    seconds = min(RESTART_SECONDS * 2**failures, MAX_RESTART_SECONDS)
                    failures = min(failures + 1, 10)
                    logger.exception("background task failed, restarting it", extra={"task": name, "seconds": seconds})
                await asyncio.sleep(seconds)

        return self.spawn(name, run())

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        _log_failure(task.get_name(), task)

    async def close(self) -> None:
        """Cancel all tasks and wait for them."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Failures:
    """Logs the failures of one periodic task: a disk failure when it begins, periodically, and when it is over; every
    other error each time, with its stack trace.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._reason = ""
        self._count = 0
        self._told = 0.0

    def note(self, error: Exception) -> None:
        """Log a failure of the task, unless the same disk failure was logged recently."""
        if not is_known_disk_error(error):
            logger.error("background task failed", exc_info=error, extra={"task": self._name})
            return
        now, reason = asyncio.get_running_loop().time(), error.strerror or ""
        is_same = self._count > 0 and reason == self._reason
        self._count += 1
        if not is_same or now - self._told >= STILL_FAILING_SECONDS:
            self._reason, self._told = reason, now
            extra = {"task": self._name, "reason": error, "times": self._count}
            logger.error("background task failed, retrying", extra=extra)

    def end(self) -> None:
        """Log that the task works again, if its failure was logged."""
        if self._count:
            logger.warning("background task works again", extra={"task": self._name, "failed_times": self._count})
        self._count = 0


def detached(name: str, work: asyncio.Future[T]) -> asyncio.Future[T]:
    """Return an answer for `work` whose cancellation does not cancel the work. An exception of the work is raised to
    the waiting caller; if the answer was cancelled, the exception is logged.
    """
    answer = asyncio.shield(work)

    def ended(work: asyncio.Future[T]) -> None:
        if answer.cancelled():
            _log_failure(name, work)

    work.add_done_callback(ended)
    return answer


def _log_failure(name: str, work: asyncio.Future[Any]) -> None:
    error = None if work.cancelled() else work.exception()
    if is_known_disk_error(error):
        logger.error("background task failed", extra={"task": name, "reason": error})
    elif error is not None:
        logger.error("background task failed", exc_info=error, extra={"task": name})


async def in_thread(job: Callable[[], T], threads: ThreadPoolExecutor | None = None) -> T:
    """Run `job` in a worker thread of `threads`, or of the default pool. If the caller is cancelled, this function
    still waits for the end of the job, because the caller must not touch the job's data before that.
    """
    context = contextvars.copy_context()  # as asyncio.to_thread does for the default pool
    return await until_ended(asyncio.get_running_loop().run_in_executor(threads, context.run, job))


async def until_ended(running: asyncio.Future[T]) -> T:
    """Return the result of a job in a worker thread. If the caller is cancelled, this function still waits for the end
    of the job, then raises CancelledError.
    """
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():  # a second cancellation is possible, by a shutdown
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # mark the error as retrieved: the caller is gone
        raise
    finally:
        del running  # delete the error, because its traceback refers to this frame, which would form a cycle


class Deadlines:
    """Serves very many timers with one loop timer for each tick. The callbacks of one tick (timer interval) run in
    slices (S87).
    """

    def __init__(self, monotonic: Callable[[], float] = SystemClock.monotonic) -> None:
        self._monotonic = monotonic
        self._buckets: dict[int, dict[int, Callable[[], None]]] = {}
        self._numbers = count()
        self._due: deque[tuple[dict[int, Callable[[], None]], Iterator[int]]] = deque()
        """The groups of timers whose tick has passed, each with an iterator over the numbers of its timers that must
        still fire.
        """

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call `callback` once, between `seconds` and `seconds` + TICK_SECONDS from now. The callback must be harmless
        if it is called late.
        """
        self._bucket(seconds)[next(self._numbers)] = callback

    def unless_done(self, answer: asyncio.Future[Any], seconds: float, callback: Callable[[], None]) -> None:
        """Call `callback` once after `seconds`, unless `answer` completes earlier. When `answer` completes, the timer
        is dropped, so that it keeps no objects in memory.
        """
        bucket, number = self._bucket(seconds), next(self._numbers)
        bucket[number] = callback
        answer.add_done_callback(lambda _: bucket.pop(number, None))

    def _bucket(self, seconds: float) -> dict[int, Callable[[], None]]:
        loop = asyncio.get_running_loop()
        tick = int((loop.time() + seconds) / TICK_SECONDS) + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            loop.call_at(tick * TICK_SECONDS, self._fire, tick)
        return bucket

    def _fire(self, tick: int) -> None:
        bucket = self._buckets.pop(tick)
        self._due.append((bucket, iter(tuple(bucket))))
        if len(self._due) == 1:
            self._fire_some()

    def _fire_some(self) -> None:
        """Call callbacks that are due, a slice in each iteration of the event loop."""
        end, fired = self._monotonic() + FIRE_SECONDS, 0
        while self._due:
            bucket, numbers = self._due[0]
            for number in numbers:
                callback = bucket.pop(number, None)
                if callback is None:
                    continue  # skip this timer, because its answer has completed
                try:
                    callback()
                except Exception:
                    logger.exception("a timer failed")  # log the error, because the other timers must still fire
                fired += 1
                if fired == FIRED_PER_TURN or self._monotonic() >= end:
                    asyncio.get_running_loop().call_soon(self._fire_some)
                    return
            self._due.popleft()
