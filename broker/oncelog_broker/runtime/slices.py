"""Runs long work in slices between the other work of the event loop: large requests, cleaning and loading.

The work is a generator (`steps.Steps`) that yields where it may be paused, and yields a job where it must wait for the
disk or a codec. Its first slice runs at once, and nearly all work ends in it. The rest of all long work together gets
one slice per turn of the loop, round-robin, so that a turn stays short whatever is queued.

The state of the broker may change between two slices, as between two requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.steps import Errand, Heavy, Job, Steps, holds_nothing
from oncelog_broker.runtime.tasks import Tasks, detached, in_thread

SLICE_SECONDS: Final = 0.003
"""The length of a slice; a step begun within it may take another millisecond or two."""
FIRST_SLICE_SECONDS_WHILE_OTHERS_WAIT: Final = 0.0005
"""The first slice of new work while other long work is waiting: enough for nearly every request."""

JOBS_AT_ONCE: Final = 4
"""Pieces of long work that may hold the results of jobs at the same time (a batch of some megabytes unpacked, say),
until they yield `holds_nothing`."""
HEAVY_JOBS_AT_ONCE: Final = 1
"""As JOBS_AT_ONCE, for heavy jobs, which may unpack a batch to 64 MB."""

R = TypeVar("R")


class Pace:
    """Pauses of long work after a slice or a job; this one makes none."""

    def after_slice(self, seconds: float) -> float:
        """Seconds to pause after a slice that took `seconds`."""
        return 0.0

    def after_job(self) -> float:
        """Seconds to pause after a job in a thread."""
        return 0.0


AT_ONCE: Final = Pace()


class Pauses:
    """Pauses of a coroutine that does long work: lets other work run after each slice."""

    __slots__ = ("_allowed", "_began", "_monotonic", "_seconds", "_turn")

    def __init__(
        self,
        monotonic: Callable[[], float],
        turn: Callable[[], Awaitable[None]],
        seconds: float = SLICE_SECONDS,
        first_seconds: float | None = None,
    ) -> None:
        """Slices of `seconds`; the first of `first_seconds` if given."""
        self._seconds = seconds
        self._allowed = seconds if first_seconds is None else first_seconds
        self._monotonic = monotonic
        self._turn = turn
        self._began = monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the slice is used up, so that `here` pauses."""
        return self._monotonic() - self._began >= self._allowed

    async def here(self) -> None:
        """Return at once, or after a turn of the loop if the slice is used up."""
        if self.is_due:
            await self._turn()
            self._began, self._allowed = self._monotonic(), self._seconds


Pause = Callable[[], Awaitable[None]]
"""`Pauses.here`: awaited between pieces of long work, so that other work can run."""


async def no_pause() -> None:
    """Never pause."""


async def with_pauses(steps: Steps[R], pause: Pause) -> R:
    """Run steps without jobs in a coroutine that has its own pauses. Returns their result."""
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
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Waiting work, in round-robin order."""

    def run(self, steps: Steps[R], *, must_finish: bool = False, pace: Pace = AT_ONCE) -> Answer[R]:
        """Run steps. Returns their result at once if they end within the first slice.

        Cancelling the answer closes the steps, after the job under way: it may be writing to a file that closing would
        take from it. With `must_finish`, cancelling leaves the work running to its end.
        """
        monotonic = self._clock.monotonic
        began = monotonic()
        end = began + (FIRST_SLICE_SECONDS_WHILE_OTHERS_WAIT if self._waiting else SLICE_SECONDS)
        try:
            job = next(steps)
            while (job is None or job is holds_nothing) and monotonic() < end:
                job = next(steps)
        except StopIteration as finished:
            answer: R = finished.value
            return answer
        rest = self._tasks.spawn("long work", self._rest(steps, job, monotonic() - began, pace), is_awaited=True)
        return detached("long work", rest) if must_finish else rest

    def pauses(self, seconds: float = SLICE_SECONDS, first_seconds: float | None = None) -> Pauses:
        """Pauses for a coroutine that handles many items and may never need to wait."""
        return Pauses(self._clock.monotonic, self._turn, seconds, first_seconds)

    async def _rest(self, steps: Steps[R], job: Job | None, taken: float, pace: Pace) -> R:
        monotonic = self._clock.monotonic
        held: asyncio.Semaphore | None = None
        go_on: Callable[[], Job | None] = partial(next, steps)
        resume = go_on
        try:
            while True:
                wanted = self._place_for(job)
                if held is not None and held is not wanted and (job is holds_nothing or isinstance(job, Heavy)):
                    held.release()
                    held = None
                if job is holds_nothing:
                    job = None
                if wanted is not None and held is None:
                    await wanted.acquire()
                    held = wanted
                pause = pace.after_slice(taken)
                if job is not None:
                    try:
                        resume = partial(steps.send, await in_thread(job))
                    except Exception as error:
                        resume = partial(steps.throw, error)
                    pause = pace.after_job()
                if pause > 0:
                    await asyncio.sleep(pause)
                await self._turn()
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
                    resume = go_on  # one that throws an error holds it, and the error holds this frame
        finally:
            steps.close()
            if held is not None:
                held.release()

    def _place_for(self, job: Job | None) -> asyncio.Semaphore | None:
        """The semaphore to hold while the result of the job is held; None if nothing is held."""
        if job is None or job is holds_nothing or isinstance(job, Errand):
            return None
        return self._has_heavy if isinstance(job, Heavy) else self._has_jobs

    async def _turn(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._give_turn)
        await turn

    def _give_turn(self) -> None:
        """Let one waiting slice run in each turn of the loop."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._give_turn)


def _goes_on(job: Job | None, holds: bool) -> bool:
    """Whether the slice may continue: there is no job to run."""
    return job is None or (job is holds_nothing and not holds)
