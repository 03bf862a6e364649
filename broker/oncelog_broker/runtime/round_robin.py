"""A round-robin scheduler: the pieces of waiting work (its members) run in slices, in round-robin order, between the
other work of the event loop.

In each iteration of the event loop, one member gets a slice even if other work has used up the budget, so that no
member waits forever; more members get slices while the budget lasts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from oncelog_broker.runtime.loop_budget import ONE_SLICE, Budget


class Member(Protocol):
    """Work that needs more time than one iteration of the event loop allows."""

    def take_slice(self) -> bool:
        """Do one slice of the member's work. Returns whether more work is left; if True, the work remains a member of
        the scheduler.
        """


class RoundRobin:
    """The scheduler that all members (pieces of waiting work) of one kind share. If a member raises an error, the
    scheduler removes only that member.
    """

    def __init__(self, budget: Budget = ONE_SLICE) -> None:
        self.budget = budget
        self._members: deque[Member] = deque()
        """The members, in the order of their next slices."""
        self._is_scheduled = False

    def __bool__(self) -> bool:
        """Whether any member is waiting for a slice."""
        return bool(self._members)

    def join(self, member: Member) -> None:
        """Add a member, whose first slice comes in the next iteration of the event loop at the earliest. The member
        must not have joined already.
        """
        self._members.append(member)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._give_slices)

    def _give_slices(self) -> None:
        members = self._members
        self.budget.claim()  # this first claim of the iteration starts the measurement of the budget
        try:
            while members:
                first = members.popleft()
                if first.take_slice():
                    members.append(first)
                if not self.budget.claim():
                    break
        finally:
            self._is_scheduled = bool(members)
            if members:
                asyncio.get_running_loop().call_soon(self._give_slices)
