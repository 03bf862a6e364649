"""Starts clients, and retries for a limited time if no broker can be reached.

The `start` of oncelog's client fails immediately if it reaches no broker. A task of a query connects anew for each
batch, and Spark runs a task only once, or at most four times within seconds, so without retries the restart of a broker
would end the query.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from oncelog.errors import ConnectionFailed

AGAIN_SECONDS: Final = 0.2
"""Seconds between two attempts to connect."""

logger = logging.getLogger(__name__)


class Startable(Protocol):
    async def start(self) -> None: ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=Startable)


async def opened(make: Callable[[], C], seconds: float) -> C:
    """Return a started client. Each attempt creates a new client, until `seconds` have passed.

    Raises ConnectionFailed if no broker was reached within that time; raises all other errors of `start` immediately.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    is_told = False
    while True:
        client = make()
        try:
            await client.start()
        except BaseException as error:
            await client.close()
            if not isinstance(error, ConnectionFailed) or loop.time() + AGAIN_SECONDS > deadline:
                raise
            if not is_told:
                logger.warning("%s; trying again for %.0f s", error, seconds)
            is_told = True
        else:
            return client
        await asyncio.sleep(AGAIN_SECONDS)
