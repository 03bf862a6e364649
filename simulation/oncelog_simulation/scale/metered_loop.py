"""A simulated loop in which work takes as much virtual time as it really takes on this machine's processor.

A simulated loop normally lets an iteration take some random microseconds, so that a run depends on its seed alone. For
measurements, virtual time must contain the work: each process (each broker) is simulated as if it had a core of its
own, as fast as a core of this machine. So a run of this loop is not reproducible to the microsecond.

The loop also measures the processor time of each host: of its event loop, of its jobs in worker threads, and of its
longest iteration. The simulated disk, network and session are part of these times.

As a run of this loop is not reproducible anyway, it need not keep the objects of dead processes until its end:
`release_dead` gives their memory back.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from heapq import heapify
from random import Random
from time import thread_time
from typing import Any, Final, NamedTuple, TypeVar

from oncelog_simulation.loop import SimulatedLoop, complaints_ignored
from oncelog_simulation.process import Process

T = TypeVar("T")

LEAST_SECONDS: Final = 1e-9
"""Virtual seconds that reading a clock takes at least, so that time always advances."""
TURNS_OF_TIMERS: Final = 50_000
"""Iterations between two removals of cancelled timers. Each request has a timer of thirty seconds, which is cancelled
when the response arrives: with a hundred brokers, half a million of them would be in memory.
"""


class LongestTurn(NamedTuple):
    """The longest iteration of a host's event loop, without jobs of worker threads."""

    seconds: float
    host: str


class ProcessorTimes:
    """Processor seconds by host, since the times were created or reset."""

    def __init__(self) -> None:
        self.loop: dict[str, float] = {}
        """Seconds of the host's event loop."""
        self.jobs: dict[str, float] = {}
        """Seconds of the host's jobs in worker threads."""
        self.longest: dict[str, float] = {}
        """Seconds of the longest iteration of each host's event loop, while the host serves."""

    def reset(self) -> None:
        self.loop.clear()
        self.jobs.clear()
        self.longest.clear()

    def of(self, host: str) -> float:
        """Return the processor seconds of a host, with its worker threads."""
        return self.loop.get(host, 0.0) + self.jobs.get(host, 0.0)

    def longest_of(self, hosts: list[str]) -> LongestTurn:
        """Return the longest iteration of any of these hosts."""
        return max((LongestTurn(self.longest.get(host, 0.0), host) for host in hosts), default=LongestTurn(0.0, ""))


class MeteredLoop(SimulatedLoop):
    """See the module's docstring."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.times = ProcessorTimes()
        self.is_measured: Callable[[Process], bool] = lambda process: True
        """Whether the iterations of a process count for the longest one. Those of a broker that starts do not."""
        self._free_seconds = 0.0
        """Processor seconds of this thread that are not measured."""
        self._charged = self._worked()
        """The processor time of this thread up to which virtual time was charged."""
        self._job_seconds = 0.0
        """Seconds that jobs of worker threads have taken in the present iteration."""

    # --- time

    def _worked(self) -> float:
        """Return the measured processor seconds of this thread."""
        return thread_time() - self._free_seconds

    def _charge(self) -> None:
        """Let virtual time advance by the processor time since the last call."""
        now = self._worked()
        self._ahead += max(now - self._charged, LEAST_SECONDS)
        self._charged = now

    def virtual(self) -> float:
        self._charge()
        return self.now + self._ahead

    def time(self) -> float:
        self._charge()
        clock = self.current.clock
        return (self.now + self._ahead) * clock.rate + clock.base

    @contextmanager
    def free_of_charge(self) -> Iterator[None]:
        """Neither measure the work of the `with` statement nor let it take virtual time: no broker of a real cluster
        does this work.
        """
        began = thread_time()
        try:
            yield
        finally:
            self._free_seconds += thread_time() - began

    # --- iterations

    def _turn(self, process: Process) -> None:
        self._charged = began = self._worked()
        self._job_seconds = 0.0
        # The last callback of the iteration, so that the next iteration begins when all of this work is done.
        process.ready.append(asyncio.Handle(self._charge, (), self, process.context))
        super()._turn(process)
        times, host = self.times, process.host
        seconds = self._worked() - began - self._job_seconds
        times.loop[host] = times.loop.get(host, 0.0) + seconds
        if seconds > times.longest.get(host, 0.0) and self.is_measured(process):
            times.longest[host] = seconds
        if self.turns % TURNS_OF_TIMERS == 0:
            self._keep_events(lambda event: not isinstance(event, asyncio.TimerHandle) or not event.cancelled())

    def _run_job(self, done: asyncio.Future[T], func: Callable[..., T], args: tuple[Any, ...]) -> None:
        self._charge()
        began = self._charged

        def job(*arguments: Any) -> T:
            try:
                return func(*arguments)
            finally:
                self._charge()  # the base class delays the job's result by this time

        super()._run_job(done, job, args)
        seconds, host = self._worked() - began, self.current.host
        self.times.jobs[host] = self.times.jobs.get(host, 0.0) + seconds
        self._job_seconds += seconds
        self._charged = self._worked()

    def _keep_events(self, is_kept: Callable[[object], bool]) -> None:
        """Remove all other events; the rest happens in the same order as before."""
        self._heap[:] = [entry for entry in self._heap if is_kept(entry[2])]
        heapify(self._heap)

    # --- the end of processes

    def release_dead(self) -> None:
        """Release the objects of dead processes. The `finally` blocks of their coroutines run now, as code of the dead
        process: they change nothing outside it.
        """
        dead = [each for each in self._remains if isinstance(each, Process)]
        if not dead:
            return
        with self.free_of_charge(), complaints_ignored():
            self._keep_events(lambda event: not _is_of_dead(event))
            self._remains = [each for each in self._remains if not isinstance(each, Process)]
            self._threads = {pool: ends for pool, ends in self._threads.items() if pool[0].is_alive}
            before = self.current
            for process in dead:
                self.current = process
                process.context.run(_close_all, process)
            # Finalizers that the collection runs belong to a dead process, too: the last one.
            process.context.run(gc.collect)
            process.remains.clear()
            self.current = before


def _is_of_dead(event: object) -> bool:
    """Return whether an event of the heap calls a dead process, or an object that belongs to one."""
    owner = (
        event if isinstance(event, asyncio.TimerHandle) else getattr(getattr(event, "callback", None), "__self__", None)
    )
    process = getattr(owner, "process", None)
    return isinstance(process, Process) and not process.is_alive


def _close_all(process: Process) -> None:
    """Close the coroutines of a dead process, and drop its objects."""
    for each in process.remains[:]:
        if isinstance(each, asyncio.Task):
            with suppress(BaseException):  # raised by a `finally` block that awaits, or that finds its process dead
                each.get_coro().close()
    process.remains.clear()
