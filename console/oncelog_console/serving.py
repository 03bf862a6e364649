"""The HTTP listener: uvicorn, with limits on connections, request sizes and times."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from starlette.types import ASGIApp
from uvicorn import Config, Server

from oncelog.http_bounds import MAX_HEAD_BYTES, BoundedConnection, HttpConnections
from oncelog_console.limits import HEAD_SECONDS, MAX_CONNECTIONS

REST_SECONDS: Final = 20
"""Seconds without a request after which a connection is closed."""
STOP_SECONDS: Final = 3
BACKLOG: Final = 64


class FewConnections(BoundedConnection):
    """A connection that is closed if no request arrives in time, or if its response is not read."""

    def exchange_seconds(self) -> float:
        return HEAD_SECONDS

    def on_late(self) -> None:
        """While a response is being created, no time limit applies. The exception is a request that the guard has
        rejected, because its connection would otherwise close only when the client has read everything.
        """
        if self.is_answering and not self.transport.is_closing():
            self.arm()
        else:
            self.abort()


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on this address. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


class Serving(Server):
    """uvicorn's server, which reports when it is ready."""

    def __init__(self, app: ASGIApp, ready: Callable[[], None]) -> None:
        config = Config(
            app,
            http=cast(Any, partial(FewConnections, connections=HttpConnections(MAX_CONNECTIONS))),
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
    """Serve until SIGINT or SIGTERM."""
    await Serving(app, ready).serve(sockets=[listening])
