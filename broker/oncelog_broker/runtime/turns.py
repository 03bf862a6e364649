"""The time budget of one turn of the event loop, for requests that connections have pipelined.

All connections share one budget, so that a turn stays short however many have more to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

TURN_BUDGET_SECONDS: Final = 0.003
"""Seconds for all requests pipelined behind the first one of each connection: enough to answer about a hundred small
requests with one write per connection, which is cheaper than a turn and a write for each."""


class TurnBudget:
    """The time left in the present turn of the loop."""

    __slots__ = ("_end", "_monotonic", "_seconds")

    def __init__(self, monotonic: Callable[[], float], seconds: float = TURN_BUDGET_SECONDS) -> None:
        self._monotonic = monotonic
        self._seconds = seconds
        self._end: float | None = None

    def start_or_check(self) -> bool:
        """Start the budget of this turn unless it is running. Returns whether time is left."""
        now = self._monotonic()
        if self._end is None:
            self._end = now + self._seconds
            asyncio.get_running_loop().call_soon(self._begin_anew)
        return now < self._end

    def _begin_anew(self) -> None:
        self._end = None
