"""An event loop whose clock stands still while there is anything to do, and jumps to the next timer when there is not.

Sockets are real, and work within one process: what one end writes, the other can read at once. So a test of timeouts
and backoffs takes no time, gives the same result on a busy machine, and counts requests per second of a clock that
nobody else can hold up. There is nothing beyond loopback, and no name server.
"""

from __future__ import annotations

import asyncio
import errno
import selectors
import socket
from collections.abc import Callable, Coroutine
from ipaddress import ip_address
from typing import Any, TypeVar

T = TypeVar("T")

LOOKS = 3
"""How often nothing must have happened before the clock moves: the kernel may hand a connection over a little later."""


class _Selector(selectors.DefaultSelector):
    def __init__(self, passed: Callable[[float], None]) -> None:
        super().__init__()
        self._passed = passed

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        for _ in range(LOOKS):
            events = super().select(0)
            if events or timeout == 0:
                return events
        if timeout is None:
            return super().select(None)
        self._passed(max(timeout, 0.0))
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()` begins at 1000."""

    def __init__(self) -> None:
        self._now = 1000.0
        super().__init__(_Selector(self._pass))

    def time(self) -> float:
        return self._now

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, f"{host}: there are no names here")

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        if not ip_address(address[0]).is_loopback:
            raise OSError(errno.ENETUNREACH, "there is nothing beyond loopback")
        await super().sock_connect(sock, address)

    def _pass(self, seconds: float) -> None:
        self._now += seconds


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run; what the loop would have complained about is raised."""
    complaints: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: complaints.append(context))
        result = runner.run(main)
    assert not complaints, complaints
    return result
