"""Connects a broker to other brokers without a network: requests are function calls that may be lost, held, repeated or
never get a response.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any

from oncelog_broker.replication.peers import PeerUnavailable, Purpose

SURELY_SECONDS = 20


class Fate(Enum):
    """What happens to one request between two brokers: delivered, lost, held, repeated, or left without a response."""

    LOST = "the request does not arrive"
    ANSWER_LOST = "it is handled, and nobody hears of it"
    TWICE = "it is handled twice, and the second answer comes"
    HELD = "it arrives when the test says `let_go`"


class MemoryPeers:
    """Replaces `Peers`.

    `handlers[broker_id]` is called with each request to that broker; it returns the response or an awaitable of the
    response.
    """

    def __init__(self) -> None:
        self.handlers: dict[int, Callable[[Any], Any]] = {}
        self.sent: list[tuple[int, Any]] = []
        self.fates: list[Fate] = []
        """What happens to the next requests, one element for each request; when the list is empty, requests are
        delivered.
        """
        self._held = asyncio.Event()
        self._news = asyncio.Event()

    async def send(self, broker_id: int, request: Any, *, purpose: Purpose, timeout: float) -> Any:
        self.sent.append((broker_id, request))
        self._news.set()
        fate = self.fates.pop(0) if self.fates else None
        if broker_id not in self.handlers or fate is Fate.LOST:
            raise PeerUnavailable(broker_id, "lost")
        if fate is Fate.HELD:
            await self._held.wait()
        for _ in range(2 if fate is Fate.TWICE else 1):
            answer = self.handlers[broker_id](request)
            if inspect.isawaitable(answer):
                answer = await answer
        if fate is Fate.ANSWER_LOST:
            raise PeerUnavailable(broker_id, "the answer is lost")
        return answer

    def let_go(self) -> None:
        """Deliver the requests that are held."""
        self._held.set()

    async def sent_to(self, broker_id: int, count: int) -> list[Any]:
        """Wait until `count` requests were sent to the broker, and return all of them."""
        async with asyncio.timeout(SURELY_SECONDS):
            while len(found := [request for to, request in self.sent if to == broker_id]) < count:
                self._news.clear()
                await self._news.wait()
        return found
