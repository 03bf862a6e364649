"""An event loop whose clock does not advance while callbacks are ready, and jumps to the next timer when no callback is
ready.

Loopback ports are Unix sockets here, so that bytes written at one end are immediately readable at the other. With TCP,
a kernel thread would deliver the bytes later on a busy machine. Therefore a test of timeouts and backoffs takes no real
time and has the same result on every machine. A test that counts requests per second uses this loop's clock, which no
other process can delay. No address beyond loopback is reachable, and no host name resolves.
"""

from __future__ import annotations

import asyncio
import errno
import os
import selectors
import socket
from collections.abc import Callable, Coroutine
from ipaddress import ip_address
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")

FIRST_PORT = 20_000


class _Selector(selectors.DefaultSelector):
    def __init__(self, passed: Callable[[float], None]) -> None:
        super().__init__()
        self._passed = passed

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or timeout == 0:
            return events
        if timeout is None:
            return super().select(None)
        self._passed(max(timeout, 0.0))
        return []


class _Listening:
    """Implements the methods of a listening TCP socket that tests use."""

    def __init__(self, host: str, port: int) -> None:
        self._name = host, port

    def getsockname(self) -> tuple[str, int]:
        return self._name


class _Server:
    def __init__(self, server: asyncio.Server, host: str, port: int) -> None:
        self._server = server
        self.sockets = (_Listening(host, port),)

    def close(self) -> None:
        self._server.close()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The loop's `time()` starts at 1000 s."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._ports = count(FIRST_PORT)
        super().__init__(_Selector(self._pass))

    def time(self) -> float:
        return self._now

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        port = port or next(self._ports)
        return _Server(await self.create_unix_server(protocol_factory, self._path(port)), host, port)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        if not ip_address(host).is_loopback:
            raise OSError(errno.ENETUNREACH, f"{host}: there is nothing beyond loopback")
        return await self.create_unix_connection(protocol_factory, self._path(port))

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, f"{host}: there are no names here")

    def _path(self, port: int) -> str:
        # an abstract address of a Unix socket, which needs no file and disappears with the socket
        return f"\0oncelog-{os.getpid()}-{id(self)}-{port}"

    def _pass(self, seconds: float) -> None:
        self._now += seconds


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine like asyncio.run, but raise the errors that the loop would otherwise only have logged."""
    complaints: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: complaints.append(context))
        result = runner.run(main)
    assert not complaints, complaints
    return result
