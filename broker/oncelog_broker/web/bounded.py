"""One HTTP connection that cannot harm anybody: there are few of them, their requests are small, and all takes an end.

uvicorn parses (with h11) and writes. It bounds the head of a request; what it lacks is a bound on how long a client may
take to send one, or to read the answer, and on how many connections there are.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

MAX_CONNECTIONS: Final = 16
"""Of all clients together: who connects beyond that takes the place of who has rested longest."""
MAX_HEAD_BYTES: Final = 16 * 1024
"""Of a request, its line and headers."""
EXCHANGE_SECONDS: Final = 30.0
"""From when a connection is free to when the answer to its next request is with the system."""
REST_SECONDS: Final = 20.0
"""A connection without a request is closed: a little longer than Prometheus' usual pause between two scrapes."""


class HttpConnections:
    """Those that are open, the one that has begun to wait for a request longest ago first."""

    def __init__(self) -> None:
        self._open: dict[BoundedHttp, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, connection: BoundedHttp) -> None:
        if len(self._open) >= MAX_CONNECTIONS:
            next(iter(self._open)).abort()
        self._open[connection] = None

    def on_exchange(self, connection: BoundedHttp) -> None:
        """It has just been answered."""
        if self._open.pop(connection, 1) is None:
            self._open[connection] = None

    def leave(self, connection: BoundedHttp) -> None:
        self._open.pop(connection, None)

    def close(self) -> None:
        """The broker stops."""
        for connection in list(self._open):
            connection.abort()


class BoundedHttp(H11Protocol):
    """A connection as the event loop sees it."""

    def __init__(self, config: Config, state: ServerState, connections: HttpConnections) -> None:
        super().__init__(config, state, {})
        self._all = connections
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._all.enter(self)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._all.leave(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._all.on_exchange(self)
        self._arm()
        super().on_response_complete()

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        self._disarm()
        self._all.leave(self)
        self.transport.abort()

    def _arm(self) -> None:
        self._disarm()
        self._end = self.loop.call_later(EXCHANGE_SECONDS, self.abort)

    def _disarm(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None


def http_config(app: Any) -> Config:
    """How uvicorn treats each connection; it logs nothing by itself."""
    config = Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        interface="asgi3",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(REST_SECONDS),
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )
    config.load()
    return config
