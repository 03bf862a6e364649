"""A simulated loop in which work takes as much virtual time as it really takes on this machine's processor.

A simulated loop normally lets an iteration take some random microseconds, so that a run depends on its seed alone. For
measurements, virtual time must contain the work: each process (each broker) is simulated as if it had a core of its
own, as fast as a core of this machine. So a run of this loop is not reproducible to the microsecond.

The loop also measures the processor time of each host: of its event loop, of its jobs in worker threads, and of its
longest iteration. The simulated disk, network and session are part of these times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from time import thread_time
from typing import Any, Final, NamedTuple, TypeVar

from oncelog_simulation.loop import SimulatedLoop
from oncelog_simulation.process import Process

T = TypeVar("T")

LEAST_SECONDS: Final = 1e-9
"""Virtual seconds that reading a clock takes at least, so that time always advances."""


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
        self._charged = thread_time()
        """The processor time of this thread up to which virtual time was charged."""
        self._job_seconds = 0.0
        """Seconds that jobs of worker threads have taken in the present iteration."""

    # --- time

    def _charge(self) -> None:
        """Let virtual time advance by the processor time since the last call."""
        now = thread_time()
        self._ahead += max(now - self._charged, LEAST_SECONDS)
        self._charged = now

    def virtual(self) -> float:
        self._charge()
        return self.now + self._ahead

    def time(self) -> float:
        self._charge()
        clock = self.current.clock
        return (self.now + self._ahead) * clock.rate + clock.base

    # --- iterations

    def _turn(self, process: Process) -> None:
        self._charged = began = thread_time()
        self._job_seconds = 0.0
        # The last callback of the iteration, so that the next iteration begins when all of this work is done.
        process.ready.append(asyncio.Handle(self._charge, (), self, process.context))
        super()._turn(process)
        times, host = self.times, process.host
        seconds = thread_time() - began - self._job_seconds
        times.loop[host] = times.loop.get(host, 0.0) + seconds
        if seconds > times.longest.get(host, 0.0) and self.is_measured(process):
            times.longest[host] = seconds

    def _run_job(self, done: asyncio.Future[T], func: Callable[..., T], args: tuple[Any, ...]) -> None:
        self._charge()
        began = self._charged

        def job(*arguments: Any) -> T:
            try:
                return func(*arguments)
            finally:
                self._charge()  # the base class delays the job's result by this time

        super()._run_job(done, job, args)
        seconds, host = thread_time() - began, self.current.host
        self.times.jobs[host] = self.times.jobs.get(host, 0.0) + seconds
        self._job_seconds += seconds
        self._charged = thread_time()
