"""The time that connections may spend together in one turn of the event loop, beyond one request each.

All work that wants to continue asks the same `LoopBudget`, so an iteration of the loop stays short however much work
asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

LOOP_BUDGET_SECONDS: Final = 0.003
"""The time for the requests that all connections together have pipelined behind their first one: enough to answer some
hundred small ones with one write for each connection, which is cheaper than a loop iteration and a write for each."""


class Budget(Protocol):
    """How much may be done in a turn of the loop."""

    def claim(self) -> bool:
        """Whether the budget allows one more step in this iteration of the loop."""


class LoopBudget:
    """A budget of time. The first claim in a turn of the loop starts its clock."""

    __slots__ = ("_end", "_monotonic", "_seconds")

    def __init__(self, monotonic: Callable[[], float], seconds: float = LOOP_BUDGET_SECONDS) -> None:
        self._monotonic = monotonic
        self._seconds = seconds
        self._end: float | None = None
        """When the budget of this iteration is spent, in monotonic seconds; None if it was not claimed yet."""

    def claim(self) -> bool:
        """Whether the budget allows one more step in this iteration of the loop."""
        now = self._monotonic()
        if self._end is None:
            self._end = now + self._seconds
            asyncio.get_running_loop().call_soon(self._renew)
        return now < self._end

    def _renew(self) -> None:
        self._end = None


class OneSlice:
    """A budget without time: no further step is done in this iteration of the loop."""

    def claim(self) -> bool:
        """False."""
        return False


ONE_SLICE: Final = OneSlice()
