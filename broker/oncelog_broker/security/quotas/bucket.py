"""What somebody has used of a quota. A bucket fills at the quota's rate, up to what it gives in a window; what is used
may make it negative, and then whoever comes waits until it is full to the brim of nothing again.

So over any long time the rate holds, a pause may be made up for within a window, and the time to wait is that of Kafka:
what was used too much, divided by the rate.
"""

from __future__ import annotations

from typing import Final

WINDOW_SECONDS: Final = 10.0
"""Kafka's default: quota.window.num (11) times quota.window.size.seconds (1), of which the last is under way."""


class Bucket:
    """Times are monotonic, in seconds. Invariant: `_left` is what was there at `_since`."""

    __slots__ = ("_left", "_since", "rate")

    def __init__(self, rate: float, now: float) -> None:
        """`rate` each second; 0: nothing at all, ever."""
        self.rate = rate
        self._left = rate * WINDOW_SECONDS
        self._since = now

    def use(self, amount: float, now: float) -> float:
        """Take it, whether it is there or not; for how many seconds to wait then."""
        self._fill(now)
        self._left -= amount
        return self._seconds_until_there()

    def use_if_there(self, amount: float, now: float) -> float:
        """Take it if anything is left, which it may exceed once; else for how many seconds to wait for that."""
        self._fill(now)
        if self._left >= 0:
            self._left -= amount
            return 0.0
        return self._seconds_until_there()

    def _fill(self, now: float) -> None:
        self._left = min(self._left + (now - self._since) * self.rate, self.rate * WINDOW_SECONDS)
        self._since = now

    def _seconds_until_there(self) -> float:
        if self._left >= 0:
            return 0.0
        return -self._left / self.rate if self.rate > 0 else WINDOW_SECONDS
