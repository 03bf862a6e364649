"""The network seam: how the broker gets listening sockets, and connections to other brokers.

What flows over them are asyncio transports and protocols, which an in-memory network can supply just as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from oncelog_broker.runtime.accepting import ListeningSockets, Pace


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
        return await ListeningSockets.bind(host, port, factory, pace, backlog)

    async def connect(
        self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int, **tls: Any
    ) -> object:
        return await asyncio.get_running_loop().create_connection(factory, host, port, **tls)
