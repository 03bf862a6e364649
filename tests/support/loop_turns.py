"""What asyncio does with connections, in turns of the loop."""

from __future__ import annotations

import asyncio
from typing import Final

TURNS: Final = 10


async def settle() -> None:
    """Connections that were accepted before are served from here on, and those that were aborted are closed: each takes
    the loop some turns. A server that is closed knows all its connections then."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
