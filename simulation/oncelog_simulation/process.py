"""A simulated process: its ready callbacks, its clock, and whether it is alive, paused or dead.

The context variable `PROCESS` tells a callback to which process it belongs; tasks and timers inherit it like any
context variable. A dead process executes no more code. The objects of a dead process are kept in `remains` until the
run is over, because a `finally` block of a collected object could otherwise run while other processes continue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import ContextVar, copy_context
from random import Random
from typing import Any

from oncelog_simulation.clock import HostClock


class ProcessIsDead(BaseException):
    """Raised in the code of a process that was killed by its own call, or that makes a call after its death. The code
    should not catch this exception.
    """


class Process:
    """One process of a simulated host. `name` is unique in the process's run."""

    __slots__ = (
        "busy_until",
        "clock",
        "context",
        "has_turn",
        "host",
        "is_alive",
        "is_paused",
        "is_watched",
        "name",
        "number",
        "random",
        "ready",
        "remains",
    )

    def __init__(self, name: str, number: int, clock: HostClock, random: Random) -> None:
        self.name = name
        self.host = name.partition(".")[0]
        """The name of the host on which the process runs."""
        self.number = number
        """The number of the process in its run; the first process has number 0."""
        self.clock = clock
        self.random = random
        """The source of this process's entropy and of the durations of its iterations."""
        self.ready: deque[asyncio.Handle] = deque()
        """The ready handles, in asyncio's order."""
        self.is_alive = True
        self.is_paused = False
        self.is_watched = False
        """Whether judges check the effects of each iteration of this process."""
        self.has_turn = False
        """Whether the next iteration of this process is already in the loop's heap of events."""
        self.busy_until = 0.0
        """Virtual time in seconds at which the last iteration of this process ends."""
        self.context = copy_context()
        """The context in which callbacks run that come from outside the process, for example for arriving bytes."""
        self.context.run(PROCESS.set, self)
        self.remains: list[Any] = []
        """Objects of a dead process that must not be garbage-collected before the run is over."""

    def __repr__(self) -> str:
        return f"<process {self.name}>"

    def check_alive(self) -> None:
        """Raise ProcessIsDead if this process was killed."""
        if not self.is_alive:
            raise ProcessIsDead(self.name)


PROCESS: ContextVar[Process] = ContextVar("PROCESS")
"""The process to which the running code belongs."""
