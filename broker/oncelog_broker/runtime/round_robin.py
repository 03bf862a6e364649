"""A round-robin scheduler: each member gets a slice in turn, between the other work of the loop.

In each iteration of the loop one member gets its slice, even if other work has spent the budget, so that no member
waits for ever; further members get theirs while the budget lasts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from oncelog_broker.runtime.loop_budget import ONE_SLICE, Budget


class Member(Protocol):
    """Something with more work than fits into one turn of the loop."""

    def take_slice(self) -> bool:
        """Work for one slice. Returns whether more can be done now: then it stays a member."""


class RoundRobin:
    """The scheduler that all members of one kind of work share. An error of a member ends its membership, not that of
    others."""

    def __init__(self, budget: Budget = ONE_SLICE) -> None:
        self.budget = budget
        self._members: deque[Member] = deque()
        """The members, in the order of their next slices."""
        self._is_scheduled = False

    def __bool__(self) -> bool:
        """Whether any member waits for its slice."""
        return bool(self._members)

    def join(self, member: Member) -> None:
        """The first slice of the member comes in the next iteration of the loop at the earliest. The member must not
        have joined already."""
        self._members.append(member)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._give_slices)

    def _give_slices(self) -> None:
        members = self._members
        self.budget.claim()  # its clock begins here
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
