"""The clock seam: the only place that asks what time it is.

Wall time stamps records, and is compared with the stamps of records (retention, compaction, expiry); monotonic time
drives sessions, timeouts, delays and waiting requests, so that a wall clock that is put right expires nothing and keeps
nothing for ever (S86; `tests/unit/test_wall_clock.py` lists who asks for wall time, and why). Uptime is for what others
count on without us, while this machine sleeps too.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

_UPTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has a clock that counts suspended time; elsewhere the monotonic one is the best there is."""


class Clock(Protocol):
    """What the rest of the broker knows of time."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""

    def uptime(self) -> float:
        """As `monotonic`, counting also the time in which the machine was suspended."""

    def processor(self) -> float:
        """Seconds of the processor that this thread has had. A system call: not to be asked for each request."""


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)  # what every request asks is the machine's own function

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def uptime(self) -> float:
        return time.clock_gettime(_UPTIME)

    def processor(self) -> float:
        return time.thread_time()


class ManualClock:
    """A clock that moves only when told: for tests and simulation."""

    __slots__ = ("_monotonic", "_now_ms", "processor_seconds")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0
        self.processor_seconds = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def uptime(self) -> float:
        return self._monotonic

    def processor(self) -> float:
        return self.processor_seconds

    def step_wall_ms(self, ms: int) -> None:
        """The wall clock is put forward, or back; no time passes."""
        self._now_ms += ms

    def advance_ms(self, ms: int) -> None:
        self._now_ms += ms
        self._monotonic += ms / 1000
