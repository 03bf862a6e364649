"""Those who have more to do than a turn of the loop allows: one after the other, while the turn lasts.

In each turn it is somebody's, even where others, who stand in no line, have used the turn up: nobody waits for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from oncelog_broker.runtime.turns import TurnBudget


class Waiting(Protocol):
    def take_turn(self) -> bool:
        """Do a little. Whether there is more to do, and it can be done."""


class TurnScheduler:
    """Shared by all connections."""

    def __init__(self, turn: TurnBudget) -> None:
        self.turn = turn
        self._waiting: deque[Waiting] = deque()
        self._goes_round = False

    def __bool__(self) -> bool:
        """Whether anybody waits for his turn."""
        return bool(self._waiting)

    def join(self, waiting: Waiting) -> None:
        """Its turn comes, in the next turn of the loop at the earliest. It must not be in the scheduler yet."""
        self._waiting.append(waiting)
        if not self._goes_round:
            self._goes_round = True
            asyncio.get_running_loop().call_soon(self._go_round)

    def _go_round(self) -> None:
        waiting = self._waiting
        self.turn.start_or_check()  # from here on it runs
        try:
            while waiting:
                first = waiting.popleft()
                if first.take_turn():
                    waiting.append(first)
                if not self.turn.start_or_check():
                    break
        finally:
            self._goes_round = bool(waiting)
            if waiting:
                asyncio.get_running_loop().call_soon(self._go_round)
