"""Detects stalls of the event loop with a timer that fires late, and measures the loop's idle share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

PROBE_SECONDS: Final = 0.1
"""Seconds between two probes; with this interval, one in five stalls of 20 ms is detected, and every stall of 100 ms. A
shorter interval would cost too much, because a wake-up costs as much as a request.
"""
STALL_SECONDS: Final = 0.01
"""Seconds by which a probe may be late; a longer delay counts as a stall. No request may block the event loop for
longer than this.
"""
BUCKETS: Final = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Upper bounds of the histogram buckets, in seconds."""
LEAST_IDLE_SECONDS: Final = 1.0
"""The shortest period, in seconds, over which the idle share is measured."""


class LoopWatch:
    """Watches the running event loop from `start` to `stop`. Tests pass their own `monotonic` and `thread_seconds`."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        thread_seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        self._monotonic = monotonic
        self._thread_seconds = thread_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._since = (monotonic(), thread_seconds())
        self._idle = 1.0
        self.stalls = [0] * (len(BUCKETS) + 1)
        """The number of stalls in each bucket; the last number counts the stalls that are longer than the largest of
        BUCKETS.
        """
        self.stalled_seconds = 0.0
        self.longest_seconds = 0.0

    def start(self) -> None:
        self._since = (self._monotonic(), self._thread_seconds())
        self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._due = self._monotonic() + PROBE_SECONDS
        self._timer = asyncio.get_running_loop().call_later(PROBE_SECONDS, self._probe)

    def _probe(self) -> None:
        self.note(self._monotonic() - self._due)
        self._arm()

    def note(self, late: float) -> None:
        """Record a probe that was `late` seconds late."""
        if late <= STALL_SECONDS:
            return
        self.stalls[sum(late > bound for bound in BUCKETS)] += 1
        self.stalled_seconds += late
        self.longest_seconds = max(self.longest_seconds, late)

    def idle_fraction(self) -> float:
        """Return the share of time, from 0 to 1, in which the event loop's thread did not compute, measured since an
        earlier call that is at least a second ago. Call this method in the event loop's thread.
        """
        now, spent = self._monotonic(), self._thread_seconds()
        seconds = now - self._since[0]
        if seconds >= LEAST_IDLE_SECONDS:
            self._idle = min(1.0, max(0.0, 1.0 - (spent - self._since[1]) / seconds))
            self._since = (now, spent)
        return self._idle
