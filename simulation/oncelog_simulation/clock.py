"""The clocks of a simulated host. They show virtual time, but may run too fast or too slow, and the wall clock may be
ahead or behind.

`HostClock` implements `runtime.clock.Clock`. The loop sets `virtual` before each iteration of the host's process.
Reading a clock takes some virtual time, so that code which loops until a deadline ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

WALL_START_MS: Final = 1_700_000_000_000
"""Wall time at the start of each run, in milliseconds since the epoch."""


class HostClock:
    """The monotonic clock and the wall clock of one host. Rates and offsets change during a run; monotonic time never
    goes back.
    """

    __slots__ = ("_virtual", "base", "rate", "wall_offset_ms")

    def __init__(self, virtual: Callable[[], float]) -> None:
        """`virtual` is a function that returns the time of the simulated world in seconds."""
        self._virtual = virtual
        self.rate = 1.0
        """Seconds of this clock for each second of the world."""
        self.base = 0.0
        """Seconds that are added to `rate` times the virtual time to get the time of this clock."""
        self.wall_offset_ms = 0
        """Milliseconds by which the wall clock is ahead of the true time, not counting its drift."""

    def drift(self, rate: float) -> None:
        """Set the rate of this clock from now on."""
        now = self._virtual()
        self.base += now * (self.rate - rate)
        self.rate = rate

    def step_wall_ms(self, ms: int) -> None:
        """Move the wall clock forward or back; no virtual time passes."""
        self.wall_offset_ms += ms

    def monotonic(self) -> float:
        return self._virtual() * self.rate + self.base

    uptime = monotonic
    processor = monotonic

    def now_ms(self) -> int:
        return self.wall_ms_at(self._virtual())

    def wall_ms_at(self, virtual: float) -> int:
        """Return the wall clock at a given virtual time, in ms since the epoch."""
        return WALL_START_MS + self.wall_offset_ms + int((virtual * self.rate + self.base) * 1000)
