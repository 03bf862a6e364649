"""What happens in turns of the loop, which no clock is needed to wait for."""

from __future__ import annotations

import asyncio
from typing import Final

TURNS: Final = 20
CONNECTION_TURNS: Final = 10


async def turns(count: int = TURNS) -> None:
    """What can happen without waiting happens."""
    for _ in range(count):
        await asyncio.sleep(0)


async def settle() -> None:
    """Connections that were accepted before are served from here on, and those that were aborted are closed: each takes
    the loop some turns. A server that is closed knows all its connections then."""
    await turns(CONNECTION_TURNS)
