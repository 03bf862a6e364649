"""Limits the time that all connections together may use in one iteration of the event loop. The first request of each
connection is not limited.

Work calls `LoopBudget.claim` before each further step, so that an iteration stays short however much work is waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

LOOP_BUDGET_SECONDS: Final = 0.003
"""Seconds in each loop iteration for the pipelined requests of all connections together, without the first request of
each connection. This time is enough for about a hundred small requests, with one write for each connection, which is
cheaper than a loop iteration and a write for each request.
"""


class Budget(Protocol):
    """Interface: decides how many steps of work may run in one iteration of the event loop."""

    def claim(self) -> bool:
        """Return whether the budget allows one more step in this iteration of the event loop."""


class LoopBudget:
    """A time budget for one iteration of the event loop. The first claim in an iteration starts the time
    measurement.
    """

    __slots__ = ("_end", "_monotonic", "_seconds")

    def __init__(self, monotonic: Callable[[], float], seconds: float = LOOP_BUDGET_SECONDS) -> None:
        self._monotonic = monotonic
        self._seconds = seconds
        self._end: float | None = None
        """Monotonic seconds when this iteration's budget is used up; None if nothing was claimed yet."""

    def another(self) -> LoopBudget:
        """Return a budget of as many seconds for other work, which then runs even if this budget is used up."""
        return LoopBudget(self._monotonic, self._seconds)

    def claim(self) -> bool:
        """Return whether the budget allows one more step in this iteration of the event loop."""
        now = self._monotonic()
        if self._end is None:
            self._end = now + self._seconds
            asyncio.get_running_loop().call_soon(self._renew)
        return now < self._end

    def _renew(self) -> None:
        self._end = None


class OneSlice:
    """A budget of zero seconds, which never allows another step in the same iteration of the event loop."""

    def claim(self) -> bool:
        """Return False: no further step may run in this iteration."""
        return False


ONE_SLICE: Final = OneSlice()
