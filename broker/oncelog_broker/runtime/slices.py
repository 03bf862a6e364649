"""Runs long work in slices, between the other work of the event loop: long requests, cleaning and loading.

Long work is a generator (`steps.Steps`) that yields where it may be paused, and yields a job where it must wait for the
disk or for compression. The first slice of long work runs immediately, and nearly all work ends within that slice.
After the first slices, only one slice runs in each iteration of the event loop, and all long work shares these slices
in round-robin order. An iteration therefore stays short however much work is waiting.

The state of the broker may change between two slices, as it may between two requests. The design is described in
docs/design/fairness.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.round_robin import RoundRobin
from oncelog_broker.runtime.steps import HeavyJob, Job, LightJob, Steps, results_dropped
from oncelog_broker.runtime.tasks import Tasks, detached, in_thread

SLICE_SECONDS: Final = 0.003
"""The length of a slice in seconds; a step that begins within the slice may take another millisecond or two."""
FIRST_SLICE_SECONDS_WHILE_OTHERS_WAIT: Final = 0.0005
"""Seconds of the first slice of work that begins while other long work is waiting; enough for nearly every request."""

JOBS_AT_ONCE: Final = 4
"""The maximum number of pieces of long work that may hold the results of their jobs simultaneously; a result may be a
batch of some decompressed megabytes.
"""
HEAVY_JOBS_AT_ONCE: Final = 1
"""The maximum number of pieces of long work that may hold the result of a `HeavyJob`; they do not count for
JOBS_AT_ONCE. A result may be a batch decompressed to 64 MB.
"""

R = TypeVar("R")


class Delays:
    """Decides how many seconds long work waits before it queues for its next slice. This base class never waits."""

    def after_slice(self, seconds: float) -> float:
        """Return the seconds to wait after a slice that took `seconds`."""
        return 0.0

    def after_job(self) -> float:
        """Return the seconds to wait after a job (a function that ran in a thread)."""
        return 0.0


NO_DELAYS: Final = Delays()


class Pauses:
    """Pauses for a coroutine with long work, so that other work may run after each slice of the coroutine."""

    __slots__ = ("_allowed", "_began", "_monotonic", "_next_slice", "_seconds")

    def __init__(
        self,
        monotonic: Callable[[], float],
        next_slice: Callable[[], Awaitable[None]],
        seconds: float = SLICE_SECONDS,
        first_seconds: float | None = None,
    ) -> None:
        """Each slice has `seconds`; the first slice has `first_seconds` if given."""
        self._seconds = seconds
        self._allowed = seconds if first_seconds is None else first_seconds
        self._monotonic = monotonic
        self._next_slice = next_slice
        self._began = monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the slice is used up, so that `here` would pause."""
        return self._monotonic() - self._began >= self._allowed

    async def here(self) -> None:
        """Return immediately while the present slice lasts; otherwise return when the next slice begins."""
        if self.is_due:
            await self._next_slice()
            self._began, self._allowed = self._monotonic(), self._seconds


Pause = Callable[[], Awaitable[None]]
"""Type of the method `Pauses.here`, which long work awaits between two steps, so that other work may run."""


async def no_pause() -> None:
    """Return immediately, for work that must not be paused."""


async def with_pauses(steps: Steps[R], pause: Pause) -> R:
    """Run steps without jobs in a coroutine that makes its own pauses. Returns the result of the steps."""
    while True:
        await pause()
        try:
            next(steps)
        except StopIteration as finished:
            result: R = finished.value
            return result


class Slices:
    """The scheduler for the long work of one broker."""

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        self._has_jobs = asyncio.Semaphore(JOBS_AT_ONCE)
        self._has_heavy = asyncio.Semaphore(HEAVY_JOBS_AT_ONCE)
        self._waiting = RoundRobin()

    def run(self, steps: Steps[R], *, must_finish: bool = False, delays: Delays = NO_DELAYS) -> Answer[R]:
        """Run steps (a generator of long work) and return an answer (a value or a future) with their result. The answer
        is the result itself if the steps end within the first slice.

        Cancelling the answer closes the steps. If a job is running, the steps are closed only after the job has ended,
        because closing the steps could close a file to which the job is writing. If `must_finish` is True, the work
        runs to its end even if the answer is cancelled.
        """
        monotonic = self._clock.monotonic
        began = monotonic()
        end = began + (FIRST_SLICE_SECONDS_WHILE_OTHERS_WAIT if self._waiting else SLICE_SECONDS)
        try:
            job = next(steps)
            while (job is None or job is results_dropped) and monotonic() < end:
                job = next(steps)
        except StopIteration as finished:
            answer: R = finished.value
            return answer
        rest = self._tasks.spawn("long work", self._rest(steps, job, monotonic() - began, delays), is_awaited=True)
        return detached("long work", rest) if must_finish else rest

    def pauses(self, seconds: float = SLICE_SECONDS, first_seconds: float | None = None) -> Pauses:
        """Return pauses for a coroutine that handles many items and may finish without waiting."""
        return Pauses(self._clock.monotonic, self._next_slice, seconds, first_seconds)

    async def _rest(self, steps: Steps[R], job: Job | None, taken: float, delays: Delays) -> R:
        monotonic = self._clock.monotonic
        held: asyncio.Semaphore | None = None
        go_on: Callable[[], Job | None] = partial(next, steps)
        resume = go_on
        try:
            while True:
                wanted = self._permit_for(job)
                if held is not None and held is not wanted and (job is results_dropped or isinstance(job, HeavyJob)):
                    held.release()
                    held = None
                if job is results_dropped:
                    job = None
                if wanted is not None and held is None:
                    await wanted.acquire()
                    held = wanted
                pause = delays.after_slice(taken)
                if job is not None:
                    try:
                        resume = partial(steps.send, await in_thread(job))
                    except Exception as error:
                        resume = partial(steps.throw, error)
                    pause = delays.after_job()
                if pause > 0:
                    await asyncio.sleep(pause)
                await self._next_slice()
                began = monotonic()
                try:
                    job = resume()
                    while _goes_on(job, held is not None) and monotonic() - began < SLICE_SECONDS:
                        job = next(steps)
                except StopIteration as finished:
                    result: R = finished.value
                    return result
                finally:
                    taken = monotonic() - began
                    resume = go_on  # forget a job's error: its traceback refers to this frame
        finally:
            steps.close()
            if held is not None:
                held.release()

    def _permit_for(self, job: Job | None) -> asyncio.Semaphore | None:
        """Return the semaphore to acquire and keep until the result of the job is dropped; None if the job needs no
        semaphore.
        """
        if job is None or job is results_dropped or isinstance(job, LightJob):
            return None
        return self._has_heavy if isinstance(job, HeavyJob) else self._has_jobs

    async def _next_slice(self) -> None:
        """Wait until the caller may work for one slice."""
        begin = asyncio.get_running_loop().create_future()
        self._waiting.join(_Waiter(begin))
        await begin


class _Waiter:
    """A coroutine that waits for its next slice."""

    __slots__ = ("_begin",)

    def __init__(self, begin: asyncio.Future[None]) -> None:
        self._begin = begin

    def take_slice(self) -> bool:
        """Wake the coroutine, which works when the event loop runs it. If the coroutine has more work, it joins the
        scheduler again.
        """
        if not self._begin.done():
            self._begin.set_result(None)
        return False


def _goes_on(job: Job | None, holds: bool) -> bool:
    """Whether the slice may continue after the steps have yielded `job`: no job must run, and no semaphore that the
    work holds (`holds`) must be released.
    """
    return job is None or (job is results_dropped and not holds)
