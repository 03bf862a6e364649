"""What somebody has used of a quota. What is used is paid for with time: a tenth of a second of a quota of 10 a second
for each. Whoever has paid for more than the present waits until that has come; a pause may be made up for later, up to
a window.

So over any long time the rate holds, and the time to wait is Kafka's: what was used too much, divided by the rate.
A bucket that has rested for a window is as a new one, whatever its quota was, so nobody need keep it.
"""

from __future__ import annotations

from typing import Final

MAX_SECONDS: Final = (2**31 - 1) / 1000
"""The longest that anybody waits, which is what a client can be told: a rate may be anything above 0."""
MAX_DEBT_WINDOWS: Final = 5
"""The debt of all who share a quota has this bound, in windows (50 s by default), however many of them have used too
much at a time: so one broken client keeps the others from working for no longer. One request is paid for in full, also
where that alone takes longer."""


class Bucket:
    """Times are monotonic, in seconds. Where a quota falls, what was used before stays paid for at the old rate; where
    it rises (`now_at`), what is still to be waited for is paid for at the new one: who was given too little by mistake
    need not wait for days when that is corrected."""

    __slots__ = ("_paid_until", "_rate")

    def __init__(self, rate: float = float("inf")) -> None:
        """`rate`: of those who use it, where all have the same."""
        self._paid_until = float("-inf")
        self._rate = rate

    def now_at(self, rate: float, now: float) -> None:
        """The quota of all who use it."""
        if rate > self._rate and self._paid_until > now:
            self._paid_until = now + (self._paid_until - now) * (self._rate / rate)
        self._rate = rate

    def use(self, amount: float, rate: float, now: float, window: float, max_debt: float = MAX_SECONDS) -> float:
        """Take `amount`, whether it is there or not; for how many seconds to wait then. `rate`: each second, above 0;
        `window`: seconds for which a pause may be made up; `max_debt`: seconds to wait, beyond which further use makes
        the wait no longer."""
        price, before = amount / rate, max(self._paid_until, now - window)
        debt = min(max(price, max_debt), MAX_SECONDS)
        self._paid_until = min(before + price, max(before, now + debt))  # nobody makes it less by using more
        return max(0.0, self._paid_until - now)

    def wait(self, now: float) -> float:
        """For how many seconds to wait, as things are."""
        return max(0.0, self._paid_until - now)

    def is_as_new(self, now: float, window: float) -> bool:
        """Whether nothing of what was used counts any more."""
        return self._paid_until <= now - window
