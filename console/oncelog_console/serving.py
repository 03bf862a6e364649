"""The HTTP listener: uvicorn, with few connections, small requests, and an end to waiting for them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final, cast

from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from oncelog_console.limits import HEAD_SECONDS, MAX_CONNECTIONS, MAX_HEAD_BYTES

REST_SECONDS: Final = 20
"""A connection without a request is closed."""
STOP_SECONDS: Final = 3
BACKLOG: Final = 64


class FewConnections(H11Protocol):
    """A connection, if there are not too many. It ends where no request comes, and where its answer is not read."""

    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if len(self.server_state.connections) >= MAX_CONNECTIONS:
            self.transport = cast(asyncio.Transport, transport)
            self.transport.abort()
            return
        super().connection_made(cast(asyncio.Transport, transport))
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._end is not None:
            self._end.cancel()
            super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._arm()

    def _arm(self) -> None:
        if self._end is not None:
            self._end.cancel()
        self._end = self.loop.call_later(HEAD_SECONDS, self._end_if_unused)

    def _end_if_unused(self) -> None:
        """While an answer is made there is no hurry. One that the guard has broken off is not taken: a connection that
        closes when all of it is sent never would."""
        if self.cycle is None or self.cycle.response_complete or self.transport.is_closing():
            self.transport.abort()
        else:
            self._arm()


def listening_socket(host: str, port: int) -> socket.socket:
    """Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


class Serving(Server):
    """uvicorn's server, which says when it is ready."""

    def __init__(self, app: ASGIApp, ready: Callable[[], None]) -> None:
        config = Config(
            app,
            http=FewConnections,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=REST_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and not self.should_exit:
            self._ready()


async def serve(app: Any, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Until SIGINT or SIGTERM."""
    await Serving(app, ready).serve(sockets=[listening])
