"""Binds the HTTP listener and accepts connections before the logs are loaded, so that health checks get responses
during the start."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, cast

from uvicorn.server import ServerState

from oncelog.http_bounds import HttpConnections
from oncelog_broker.config.http_keys import HTTP_LISTENER, HttpAddress
from oncelog_broker.runtime.network import Network
from oncelog_broker.web.bounded import MAX_CONNECTIONS, BoundedHttp, http_config

BACKLOG = 64


class HttpListener:
    """A listener that accepts HTTP connections."""

    def __init__(self, address: HttpAddress, close: Any, connections: HttpConnections) -> None:
        """The constructor is internal: use `open`."""
        self.address = address
        self._close = close
        self.connections = connections

    @classmethod
    async def open(cls, address: HttpAddress, app: Any, network: Network) -> HttpListener:
        """Bind the address and accept connections. Raises OSError with a message that says what to do."""
        # Errors that clients cause are not logged; exceptions of the pages (metrics, health) are logged.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        config, state, connections = http_config(app), ServerState(), HttpConnections(MAX_CONNECTIONS)
        factory = cast(Any, partial(BoundedHttp, config, state, connections=connections))
        try:
            listening = await network.listen(address.host, address.port, factory, backlog=BACKLOG)
        except OSError as error:
            why = error.strerror or str(error)
            raise OSError(
                f"cannot listen on {address}: {why}. Set `{HTTP_LISTENER.name}` to another address."
            ) from error
        await listening.start()
        return cls(address._replace(port=listening.port), listening.close, connections)

    async def close(self) -> None:
        """Stop accepting, and close open connections."""
        await self._close()
        self.connections.close()
        await asyncio.sleep(0)
