"""Whether the event loop is held up, and how much of the time it rests: asked by a timer that should not be late."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

PROBE_SECONDS: Final = 0.02
"""How often the timer comes: half of all stalls of 10 ms are seen, and all that last 20 ms."""
STALL_SECONDS: Final = 0.01
"""What no request may hold the loop for: being less late is no stall."""
BUCKETS: Final = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Seconds; upper bounds."""
LEAST_IDLE_SECONDS: Final = 1.0
"""Idleness is of at least so long a time."""


class LoopWatch:
    """Of the running loop, from `start` to `stop`. `monotonic` and `thread_seconds` are for tests."""

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
        """How many were seen up to each of BUCKETS and above the one before; the last is for those above all."""
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
        """The timer came so many seconds late."""
        if late <= STALL_SECONDS:
            return
        self.stalls[sum(late > bound for bound in BUCKETS)] += 1
        self.stalled_seconds += late
        self.longest_seconds = max(self.longest_seconds, late)

    def idle_fraction(self) -> float:
        """Of the time since this was asked last, a second ago or more: how much of it the loop's thread has not
        computed, from 0 to 1. To be called in that thread."""
        now, spent = self._monotonic(), self._thread_seconds()
        seconds = now - self._since[0]
        if seconds >= LEAST_IDLE_SECONDS:
            self._idle = min(1.0, max(0.0, 1.0 - (spent - self._since[1]) / seconds))
            self._since = (now, spent)
        return self._idle
