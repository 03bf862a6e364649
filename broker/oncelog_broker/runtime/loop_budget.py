"""The time that connections may spend together in one turn of the event loop, beyond one request each.

Everybody who has more to do asks the same `LoopBudget`, so a turn of the loop stays short however many ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

LOOP_BUDGET_SECONDS: Final = 0.003
"""For the requests that all connections together have pipelined behind their first one: enough to answer some hundred
small ones with one write for each connection, which is cheaper than a turn of the loop and a write for each."""


class Budget(Protocol):
    """How much may be done in a turn of the loop."""

    def claim(self) -> bool:
        """Whether there is time for one thing more in this turn of the loop."""


class LoopBudget:
    """A budget of time. The first claim in a turn of the loop starts its clock."""

    __slots__ = ("_end", "_monotonic", "_seconds")

    def __init__(self, monotonic: Callable[[], float], seconds: float = LOOP_BUDGET_SECONDS) -> None:
        self._monotonic = monotonic
        self._seconds = seconds
        self._end: float | None = None
        """When the time of this turn is spent, in monotonic seconds; None if nobody has claimed any yet."""

    def claim(self) -> bool:
        """Whether there is time for one thing more in this turn of the loop."""
        now = self._monotonic()
        if self._end is None:
            self._end = now + self._seconds
            asyncio.get_running_loop().call_soon(self._renew)
        return now < self._end

    def _renew(self) -> None:
        self._end = None


class OneSlice:
    """A budget without time: nothing more is done in this turn of the loop."""

    def claim(self) -> bool:
        """False."""
        return False


ONE_SLICE: Final = OneSlice()
