"""The clock. No other module reads the time.

Wall time stamps records, and is compared with the timestamps of records (retention, compaction, expiry). Monotonic time
is used for sessions, timeouts, delays and waiting requests, so that no session or request expires early or late when
the wall clock is corrected (S86). `tests/unit/test_wall_clock.py` lists which code reads wall time, and why. Uptime
also counts the time in which the machine was suspended, because the clocks of other machines continue during that time.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final, Protocol

_UPTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The clock for uptime: Linux has a clock that counts suspended time; on other systems the monotonic clock is the
closest.
"""


class Clock(Protocol):
    """Interface of the clock that the rest of the broker uses."""

    def now_ms(self) -> int:
        """Return the wall time in milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; the value never decreases."""

    def uptime(self) -> float:
        """Return the monotonic time in seconds, including the time in which the machine was suspended."""

    def processor(self) -> float:
        """Return the processor seconds that this thread has used. Do not call this method for each request, because it
        makes a system call.
        """


class SystemClock:
    """The clocks of the operating system."""

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)  # a builtin, because every request calls it

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    uptime = staticmethod(partial(time.clock_gettime, _UPTIME))  # for speed: no Python function

    def processor(self) -> float:
        return time.thread_time()


class ManualClock:
    """A clock that only its methods advance, for tests and simulation."""

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
        """Step the wall clock forward or back; monotonic time does not change."""
        self._now_ms += ms

    def advance_ms(self, ms: int) -> None:
        self._now_ms += ms
        self._monotonic += ms / 1000
