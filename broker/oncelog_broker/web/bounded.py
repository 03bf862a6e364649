"""The limits of the broker's HTTP listener on connections, request size and duration (`oncelog.http_bounds` enforces
them)."""

from __future__ import annotations

from typing import Any, Final

from uvicorn.config import Config

from oncelog.http_bounds import MAX_HEAD_BYTES, BoundedConnection

MAX_CONNECTIONS: Final = 16
"""Connections of all clients together; one more closes the connection idle for longest."""
EXCHANGE_SECONDS: Final = 30.0
"""Seconds from an idle connection to the end of its next response."""
REST_SECONDS: Final = 20.0
"""Idle connections are closed after this many seconds: a little longer than Prometheus's usual scrape interval."""


class BoundedHttp(BoundedConnection):
    """A connection that ends at its deadline, even if a response is not read."""

    def exchange_seconds(self) -> float:
        return EXCHANGE_SECONDS


def http_config(app: Any) -> Config:
    """The uvicorn configuration; uvicorn itself logs nothing."""
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
