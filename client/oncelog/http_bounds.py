"""An HTTP connection for uvicorn with limits on the number of connections, the request size and the duration.

uvicorn parses requests (with h11) and writes responses. uvicorn does not limit the number of connections, the size of a
request head received in a single read, or the time in which a client sends a request or reads a response. The broker's
HTTP listener and the console add these limits; the rest of the client does not import this module or need uvicorn.

- A connection above the limit replaces the connection that has been idle longest without a complete request. If all
  connections are waiting for responses, the new connection replaces the connection whose response began first.
  Half-sent requests therefore do not
  block other clients.
- A head has at most `MAX_HEAD_BYTES`, plus one slice. h11 limits only a head that is incomplete after a read. Therefore
  bytes are passed to h11 in slices, and bytes after a complete request only after its response.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

MAX_HEAD_BYTES: Final = 16 * 1024
"""Maximum bytes of a request's line and headers. Pass the limit to uvicorn as `h11_max_incomplete_event_size`."""
SLICE_BYTES: Final = 1024
"""Number of bytes passed to h11 together; a head may exceed its limit by this many bytes."""

REQUEST_IS_WHOLE: Final = frozenset({h11.DONE, h11.MUST_CLOSE})


class HttpConnections:
    """The open connections; ordered so that the connection that has been idle longest comes first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[BoundedConnection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, connection: BoundedConnection) -> None:
        """Add a connection; at the limit, close another connection."""
        if len(self._open) >= self._limit:
            oldest = next(iter(self._open))
            next((each for each in self._open if not each.is_answering), oldest).abort()
        self._open[connection] = None

    def on_exchange(self, connection: BoundedConnection) -> None:
        """Record that the response of this connection is complete."""
        if self._open.pop(connection, 1) is None:
            self._open[connection] = None

    def leave(self, connection: BoundedConnection) -> None:
        self._open.pop(connection, None)

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._open):
            connection.abort()


class BoundedConnection(H11Protocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any] | None = None,
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        connections: HttpConnections,
    ) -> None:
        super().__init__(config, server_state, app_state or {}, _loop)
        self._all = connections
        self._unparsed = b""
        """Received bytes that were not passed to h11 yet; at most the bytes of one read of the transport."""
        self._end: asyncio.TimerHandle | None = None

    @property
    def is_answering(self) -> bool:
        """Whether the response to a complete request is in progress."""
        return self.cycle is not None and not self.cycle.response_complete

    def exchange_seconds(self) -> float:
        """Return the number of seconds that a connection may stay idle before `on_late` is called; a complete response
        ends the wait.
        """
        raise NotImplementedError

    def on_late(self) -> None:
        """Close the connection, because the time of the exchange is over."""
        self.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._all.enter(self)
        self.arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._all.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        self._parse()

    def _parse(self) -> None:
        # uvicorn has refused the request and is closing the connection
        while self._unparsed and not self.transport.is_closing():
            if self.conn.their_state in REQUEST_IS_WHOLE:
                self.flow.pause_reading()  # read nothing more until the response is complete
                return
            size = len(self._unparsed) if self.conn.their_state is h11.SEND_BODY else SLICE_BYTES
            part, self._unparsed = self._unparsed[:size], self._unparsed[size:]
            super().data_received(part)

    def on_response_complete(self) -> None:
        self._all.on_exchange(self)
        self.arm()
        super().on_response_complete()
        self._parse()

    def abort(self) -> None:
        """Close the connection immediately."""
        self._disarm()
        self._all.leave(self)
        self.transport.abort()

    def arm(self) -> None:
        """Start the timer for the next request of this connection."""
        self._disarm()
        self._end = self.loop.call_later(self.exchange_seconds(), self.on_late)

    def _disarm(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
