"""Runs turns of the event loop without waiting for a clock."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

TURNS: Final = 20
CONNECTION_TURNS: Final = 10


async def turns(count: int = TURNS) -> None:
    """Run loop turns until no callback is ready."""
    for _ in range(count):
        await asyncio.sleep(0)


async def settle() -> None:
    """Connections that were accepted before are served from here on, and those that were aborted are closed: each takes
    the loop some turns. A server that is closed knows all its connections then."""
    await turns(CONNECTION_TURNS)


class Turns:
    """Measures how long the event loop's thread computes in one turn, without the time in which it had no processor."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.count = 0

    async def until(self, condition: Any) -> None:
        while not condition():
            before = time.thread_time()
            await asyncio.sleep(0)
            self.longest = max(self.longest, time.thread_time() - before)
            self.count += 1
