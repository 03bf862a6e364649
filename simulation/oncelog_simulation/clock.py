"""The clock of a simulated host: virtual time with an offset of the wall clock, and a rate at which it drifts.

`HostClock` is a `runtime.clock.Clock`. The loop sets `virtual` before each turn of the host's process; asking for the
time takes time, so that loops which work until a deadline come to an end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

WALL_START_MS: Final = 1_700_000_000_000
"""Wall time at the beginning of each run, in milliseconds since the epoch."""


class HostClock:
    """Clocks of one host. Rates and offsets change while a run goes on; monotonic time never goes back."""

    __slots__ = ("_virtual", "base", "rate", "wall_offset_ms")

    def __init__(self, virtual: Callable[[], float]) -> None:
        """`virtual`: the time of the simulated world in seconds."""
        self._virtual = virtual
        self.rate = 1.0
        """Seconds of this clock in a second of the world."""
        self.base = 0.0
        """What this clock showed more than rate * virtual time, in seconds."""
        self.wall_offset_ms = 0
        """How far the wall clock is ahead of the truth, apart from its drift."""

    def drift(self, rate: float) -> None:
        """From now on run at this rate."""
        now = self._virtual()
        self.base += now * (self.rate - rate)
        self.rate = rate

    def step_wall_ms(self, ms: int) -> None:
        """Put the wall clock forward, or back; no time passes."""
        self.wall_offset_ms += ms

    def monotonic(self) -> float:
        return self._virtual() * self.rate + self.base

    uptime = monotonic
    processor = monotonic

    def now_ms(self) -> int:
        return self.wall_ms_at(self._virtual())

    def wall_ms_at(self, virtual: float) -> int:
        """What the wall clock shows at a time of the world, in ms since the epoch."""
        return WALL_START_MS + self.wall_offset_ms + int((virtual * self.rate + self.base) * 1000)
