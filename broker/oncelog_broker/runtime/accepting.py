"""Accepts connections: several in one iteration of the event loop, and no faster than a configured pace.

asyncio's own servers accept only one connection in each iteration of the event loop. With such a server, a new client
waits one iteration for each client that has connected before it, which takes long while requests fill the iterations.
Connections that exceed the pace wait in the backlog of the listening socket. While connections must wait, the event
loop does not poll the listening socket.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

logger = logging.getLogger(__name__)

ACCEPTS_AT_ONCE: Final = 16
"""The maximum number of connections accepted in one iteration of the event loop, which takes a millisecond or two."""
RETRY_SECONDS: Final = 1.0
"""Seconds before the next attempt, after the system had no file descriptor or no memory for a connection."""


class Pace(Protocol):
    """Limits the rate of new connections."""

    def seconds(self) -> float:
        """Return the seconds until the next connection may be accepted; 0 means now."""

    def take(self) -> None:
        """Count one accepted connection."""


class ListeningSockets:
    """Bound, listening sockets; `factory` creates the protocol object of each connection."""

    def __init__(
        self, sockets: list[socket.socket], factory: Callable[[], asyncio.BufferedProtocol], pace: Pace | None
    ) -> None:
        self._sockets = sockets
        self._factory = factory
        self._pace = pace
        self._resting: dict[socket.socket, asyncio.TimerHandle] = {}
        self._connecting: set[asyncio.Task[None]] = set()

    @classmethod
    async def bind(
        cls,
        host: str | None,
        port: int,
        factory: Callable[[], asyncio.BufferedProtocol],
        pace: Pace | None,
        backlog: int,
        *,
        is_shared: bool = False,
    ) -> ListeningSockets:
        """Bind all addresses of `host`. Address families that the system does not support are skipped, as in the event
        loop's own servers. `is_shared`: other processes of this user may listen on the same port, and the kernel
        distributes the connections (SO_REUSEPORT). Raises OSError.
        """
        found = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        sockets: list[socket.socket] = []
        absent: OSError | None = None
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                try:
                    listening = socket.socket(family, kind, protocol)
                except OSError as error:
                    if error.errno != errno.EAFNOSUPPORT:
                        raise
                    absent = error
                    continue
                sockets.append(listening)
                listening.setblocking(False)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if is_shared:
                    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listening.bind(address)
                listening.listen(backlog)
        except OSError:
            for listening in sockets:
                listening.close()
            raise
        if not sockets and absent is not None:
            raise absent
        return cls(sockets, factory, pace)

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    async def start(self) -> None:
        for listening in self._sockets:
            self._look(listening)

    async def close(self) -> None:
        sockets, self._sockets = self._sockets, []
        for listening in sockets:
            resting = self._resting.pop(listening, None)
            if resting is not None:
                resting.cancel()
            asyncio.get_running_loop().remove_reader(listening.fileno())
            listening.close()
        for connecting in list(self._connecting):
            connecting.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)

    def _look(self, listening: socket.socket) -> None:
        self._resting.pop(listening, None)
        asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening)

    def _rest(self, listening: socket.socket, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening.fileno())
        self._resting[listening] = loop.call_later(seconds, self._look, listening)

    def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTS_AT_ONCE):
            seconds = 0.0 if self._pace is None else self._pace.seconds()
            if seconds > 0:
                self._rest(listening, seconds)
                return
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.error("cannot accept a connection, retrying in a second", extra={"reason": str(error)})
                self._rest(listening, RETRY_SECONDS)
                return
            if self._pace is not None:
                self._pace.take()
            connecting = loop.create_task(self._connect(accepted))
            self._connecting.add(connecting)
            connecting.add_done_callback(self._connecting.discard)

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            accepted.setblocking(False)
            with suppress(OSError):  # skip the error, because the client may have closed the connection already
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(self._factory, accepted)
        except OSError:
            accepted.close()
