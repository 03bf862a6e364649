"""The bounds of the broker's HTTP listener (`oncelog.http_bounds` holds connections to them)."""

from __future__ import annotations

from typing import Any, Final

from uvicorn.config import Config

from oncelog.http_bounds import MAX_HEAD_BYTES, BoundedConnection

MAX_CONNECTIONS: Final = 16
"""Of all clients together: who connects beyond that takes the place of who has rested longest."""
EXCHANGE_SECONDS: Final = 30.0
"""From when a connection is free to when the answer to its next request is with the system."""
REST_SECONDS: Final = 20.0
"""A connection without a request is closed: a little longer than Prometheus' usual pause between two scrapes."""


class BoundedHttp(BoundedConnection):
    """A connection that ends with its time, also where an answer is not read."""

    def exchange_seconds(self) -> float:
        return EXCHANGE_SECONDS


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
