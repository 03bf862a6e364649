"""The limits of the broker's HTTP listener on connections, request size and duration; `oncelog.http_bounds` enforces
these limits."""

from __future__ import annotations

from typing import Any, Final

from uvicorn.config import Config

from oncelog.http_bounds import MAX_HEAD_BYTES, BoundedConnection

MAX_CONNECTIONS: Final = 16
"""Maximum number of connections of all clients together; a further connection closes the longest idle connection."""
EXCHANGE_SECONDS: Final = 30.0
"""Maximum seconds from the time at which a connection becomes idle until the end of its next response."""
REST_SECONDS: Final = 20.0
"""Seconds after which an idle connection is closed, a little longer than Prometheus's usual scrape interval."""


class BoundedHttp(BoundedConnection):
    """A connection that is closed at its deadline, even if the client does not read its response."""

    def exchange_seconds(self) -> float:
        return EXCHANGE_SECONDS


def http_config(app: Any) -> Config:
    """Return the configuration of uvicorn, which itself logs nothing."""
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
