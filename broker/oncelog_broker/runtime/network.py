"""The network seam: how the broker gets listening sockets.

What flows over them are asyncio transports and protocols, which an in-memory network can supply just as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class Listening(Protocol):
    """Bound sockets that accept connections."""

    @property
    def port(self) -> int:
        """The real port, also where port 0 was asked for."""

    async def close(self) -> None:
        """Stop accepting. Connections that stand are their owner's business."""


class Network(Protocol):
    """What the rest of the broker knows of the network."""

    async def listen(
        self, host: str | None, port: int, factory: Callable[[], asyncio.BufferedProtocol], *, backlog: int
    ) -> Listening:
        """Accept connections; host None or "" is every interface. Raises OSError where the address is taken."""


class _RealListening:
    __slots__ = ("_server",)

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        self._server.close()


class RealNetwork:
    """TCP through the running event loop."""

    __slots__ = ()

    async def listen(
        self, host: str | None, port: int, factory: Callable[[], asyncio.BufferedProtocol], *, backlog: int
    ) -> Listening:
        loop = asyncio.get_running_loop()
        return _RealListening(await loop.create_server(factory, host or None, port, backlog=backlog))
