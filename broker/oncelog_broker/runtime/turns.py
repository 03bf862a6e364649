"""How much may be done in one turn of the event loop, so that nobody waits long for his own.

Whoever has more to do than the loop owes him in a turn asks `TurnBudget` whether a little time is left. All share it,
so a turn stays short however many ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

TURN_BUDGET_SECONDS: Final = 0.003
"""For what all connections together have pipelined behind their first request: enough to answer some hundred small
ones with one write for each connection, which is cheaper than a turn and a write for each."""


class TurnBudget:
    """The time that is left in the present turn of the loop."""

    __slots__ = ("_end", "_monotonic", "_seconds")

    def __init__(self, monotonic: Callable[[], float], seconds: float = TURN_BUDGET_SECONDS) -> None:
        self._monotonic = monotonic
        self._seconds = seconds
        self._end: float | None = None

    def start_or_check(self) -> bool:
        """Whether there is time for one thing more. It begins to run with the first question in a turn."""
        now = self._monotonic()
        if self._end is None:
            self._end = now + self._seconds
            asyncio.get_running_loop().call_soon(self._begin_anew)
        return now < self._end

    def _begin_anew(self) -> None:
        self._end = None
