"""The clock seam: the only place that asks what time it is.

Wall time stamps records and drives retention; monotonic time drives sessions, timeouts and waiting requests, so that a
stepping wall clock expires nothing.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the rest of the broker knows of time."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told: for tests and simulation."""

    __slots__ = ("_monotonic", "_now_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance_ms(self, ms: int) -> None:
        self._now_ms += ms
        self._monotonic += ms / 1000
