"""The network: listening sockets, and connections to other brokers.

Both use asyncio transports and protocols, which an in-memory network can supply as well.
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
        """The actual port, also after binding port 0."""

    async def start(self) -> None:
        """Start accepting connections; before that they wait in the backlog."""

    async def close(self) -> None:
        """Stop accepting. Established connections stay open."""


class Network(Protocol):
    """The network, as the rest of the broker uses it."""

    async def listen(
        self,
        host: str | None,
        port: int,
        factory: Callable[[], asyncio.BufferedProtocol],
        *,
        backlog: int,
        pace: Pace | None = None,
        is_shared: bool = False,
    ) -> Listening:
        """Bind without accepting yet; host None or "" is every interface. Raises OSError if the address is in use.

        `pace` limits the rate of accepted connections; None: unlimited. `is_shared`: other processes may listen on the
        same port.
        """

    async def connect(
        self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int, **tls: Any
    ) -> object:
        """Connect the protocol that `factory` makes; `tls` as for `loop.create_connection`. Raises OSError."""


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
        is_shared: bool = False,
    ) -> Listening:
        return await ListeningSockets.bind(host, port, factory, pace, backlog, is_shared=is_shared)

    async def connect(
        self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int, **tls: Any
    ) -> object:
        return await asyncio.get_running_loop().create_connection(factory, host, port, **tls)
