"""The network seam: how the broker gets listening sockets, and connections to other brokers.

What flows over them are asyncio transports and protocols, which an in-memory network can supply just as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from oncelog_broker.runtime.accepting import Pace, PacedListening


class Listening(Protocol):
    """A bound address."""

    @property
    def port(self) -> int:
        """The real port, also where port 0 was asked for."""

    async def start(self) -> None:
        """Begin to accept connections; until then they wait in the backlog."""

    async def close(self) -> None:
        """Stop accepting. Connections that stand are their owner's business."""


class Network(Protocol):
    """What the rest of the broker knows of the network."""

    async def listen(
        self,
        host: str | None,
        port: int,
        factory: Callable[[], asyncio.BufferedProtocol],
        *,
        backlog: int,
        pace: Pace | None = None,
    ) -> Listening:
        """Bind, without accepting yet; host None or "" is every interface. OSError where the address is taken.

        `pace`: how fast connections are accepted, None: as they come.
        """

    async def connect(
        self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int, **tls: Any
    ) -> object:
        """Connect the protocol that `factory` makes; `tls`: as `loop.create_connection` takes it. OSError."""


class _RealListening:
    __slots__ = ("_server",)

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        await self._server.start_serving()

    async def close(self) -> None:
        self._server.close()


class RealNetwork:
    """TCP through the running event loop."""

    __slots__ = ()

    async def listen(
        self,
        host: str | None,
        port: int,
        factory: Callable[[], asyncio.BufferedProtocol],
        *,
        backlog: int,
        pace: Pace | None = None,
    ) -> Listening:
        if pace is not None:
            return await PacedListening.bind(host, port, factory, pace, backlog)
        loop = asyncio.get_running_loop()
        return _RealListening(
            await loop.create_server(factory, host or None, port, backlog=backlog, start_serving=False)
        )

    async def connect(
        self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int, **tls: Any
    ) -> object:
        return await asyncio.get_running_loop().create_connection(factory, host, port, **tls)
