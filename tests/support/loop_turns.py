"""Runs turns of the event loop, so that tests need not wait for a clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

TURNS: Final = 20
CONNECTION_TURNS: Final = 10
ATTEMPTS: Final = 3


async def turns(count: int = TURNS) -> None:
    """Run `count` turns of the event loop, enough that no callback is ready afterwards."""
    for _ in range(count):
        await asyncio.sleep(0)


async def settle() -> None:
    """Let the loop serve connections that were accepted before and close connections that were aborted, which takes
    several turns of the loop. Afterwards, a server can be closed together with all of its connections.
    """
    await turns(CONNECTION_TURNS)


async def shortest(measure: Callable[[], Awaitable[float]], limit: float) -> float:
    """Return the smallest of up to ATTEMPTS results of `measure`, in seconds; the first one below `limit` is enough.
    Code that holds the loop for too long does so in each attempt; a busy machine lengthens only some attempts.
    """
    found = [await measure()]
    while found[-1] >= limit and len(found) < ATTEMPTS:
        found.append(await measure())
    return min(found)


class Turns:
    """Measures how long the event loop's thread computes in one turn; time in which the thread had no CPU does not
    count.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self.count = 0

    async def until(self, condition: Any) -> None:
        while not condition():
            before = time.thread_time()
            await asyncio.sleep(0)
            self.longest = max(self.longest, time.thread_time() - before)
            self.count += 1
