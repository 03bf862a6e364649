"""The network: listening sockets, and connections to other brokers.

Listening sockets and connections use asyncio transports and protocols, which a network in memory can also provide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from oncelog_broker.runtime.accepting import ListeningSockets, Pace


class Listening(Protocol):
    """A bound address that accepts connections."""

    @property
    def port(self) -> int:
        """The actual port number, even if port 0 was bound."""

    async def start(self) -> None:
        """Start to accept connections; earlier connections wait in the backlog."""

    async def close(self) -> None:
        """Stop accepting connections. Established connections remain open."""


class Network(Protocol):
    """Interface of the network that the rest of the broker uses."""

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
        """Bind an address without accepting connections yet; a `host` of None or "" means every interface. Raises
        OSError if the address is in use.

        `pace` limits the rate of accepted connections; None means no limit. `is_shared`: other processes may listen on
        the same port.
        """

    async def connect(
        self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int, **tls: Any
    ) -> object:
        """Connect a protocol object that `factory` creates; `tls` has keyword arguments for `loop.create_connection`.
        Raises OSError.
        """


class RealNetwork:
    """Implements `Network` with TCP connections of the running event loop."""

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
