"""A token bucket, implemented as a virtual clock: usage advances the clock by amount / rate; a client whose clock is
ahead of now waits for the difference. After a pause the clock is at most one window behind now, so that a client may
use the amount of one window in a burst.

So the rate is enforced on average over a long time, and a client waits as long as in Kafka: the excess divided by the
rate. A bucket that was idle for a window can be dropped, because it then equals a new bucket, whatever its quota was.
"""

from __future__ import annotations

from typing import Final

MAX_SECONDS: Final = (2**31 - 1) / 1000
"""The longest wait in seconds. A low rate would cause longer waits, which do not fit into the int32 field of a
response.
"""
MAX_DEBT_WINDOWS: Final = 5
"""The longest wait for clients that share a quota, in windows (with the default window: 50 s). The limit holds however
far their common usage exceeds the quota, so that one misbehaving client delays the others only for this time. A single
request is always charged in full.
"""


class Bucket:
    """A token bucket; times are monotonic seconds. When the quota falls, past usage stays charged at the old rate. When
    the quota rises (`now_at`), the remaining wait shrinks in proportion, so that correcting a quota that was too low
    has an immediate effect.
    """

    __slots__ = ("_paid_until", "_rate")

    def __init__(self, rate: float = float("inf")) -> None:
        """`rate` is per second; infinity if the clients that share the bucket have different rates."""
        self._paid_until = float("-inf")
        self._rate = rate

    def now_at(self, rate: float, now: float) -> None:
        """Set the rate for all clients of the bucket, in units per second."""
        if rate > self._rate and self._paid_until > now:
            self._paid_until = now + (self._paid_until - now) * (self._rate / rate)
        self._rate = rate

    def use(self, amount: float, rate: float, now: float, window: float, max_debt: float = MAX_SECONDS) -> float:
        """Charge `amount`, even if that exceeds the quota. Returns the seconds that the client must wait. `rate` is per
        second and above 0; `window` is the burst in seconds; when the wait has reached `max_debt` seconds, further
        usage does not extend the wait.
        """
        price, before = amount / rate, max(self._paid_until, now - window)
        debt = min(max(price, max_debt), MAX_SECONDS)
        self._paid_until = min(before + price, max(before, now + debt))  # usage never shortens the wait
        return max(0.0, self._paid_until - now)

    def wait(self, now: float) -> float:
        """Return the seconds to wait, without charging anything."""
        return max(0.0, self._paid_until - now)

    def is_as_new(self, now: float, window: float) -> bool:
        """Return whether the bucket equals a new bucket."""
        return self._paid_until <= now - window
