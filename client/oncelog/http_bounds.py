"""One HTTP connection that cannot harm anybody: there are few of them, their requests are small, and all takes an end.

uvicorn parses (with h11) and writes. What it lacks is a bound on how many connections there are, on the head of a
request that comes whole in one read, and on how long a client may take to send one or to read the answer. The broker's
HTTP listener and the console add theirs here; nothing else of the client imports this, or needs uvicorn.

- A connection that finds no place takes that of one without a whole request, the one that has waited longest; only
  where all are being answered, that of the oldest answer. So half-sent requests keep nobody out.
- A head has at most `MAX_HEAD_BYTES`, and one slice: h11 looks only at what is incomplete after a read, so what is read
  is given to it in slices, and what is behind a whole request only when that is answered.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

MAX_HEAD_BYTES: Final = 16 * 1024
"""Of a request, its line and headers. To be given to uvicorn as `h11_max_incomplete_event_size`."""
SLICE_BYTES: Final = 1024
"""By so much a head may be larger than the bound."""

REQUEST_IS_WHOLE: Final = frozenset({h11.DONE, h11.MUST_CLOSE})


class HttpConnections:
    """Those that are open, the one that has begun to wait for a request longest ago first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[BoundedConnection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, connection: BoundedConnection) -> None:
        """Find it a place, if need be that of another one."""
        if len(self._open) >= self._limit:
            oldest = next(iter(self._open))
            next((each for each in self._open if not each.is_answering), oldest).abort()
        self._open[connection] = None

    def on_exchange(self, connection: BoundedConnection) -> None:
        """It has just been answered."""
        if self._open.pop(connection, 1) is None:
            self._open[connection] = None

    def leave(self, connection: BoundedConnection) -> None:
        self._open.pop(connection, None)

    def close(self) -> None:
        """Whoever serves stops."""
        for connection in list(self._open):
            connection.abort()


class BoundedConnection(H11Protocol):
    """A connection as the event loop sees it."""

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
        """What has come and h11 does not have yet: less than one read of the transport."""
        self._end: asyncio.TimerHandle | None = None

    @property
    def is_answering(self) -> bool:
        """Whether a whole request is here, and its answer is not complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def exchange_seconds(self) -> float:
        """From when the connection is free until `on_late` is called, unless an answer is complete before."""
        raise NotImplementedError

    def on_late(self) -> None:
        """The time is over."""
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
        while self._unparsed and not self.transport.is_closing():  # it closes where a request was refused
            if self.conn.their_state in REQUEST_IS_WHOLE:
                self.flow.pause_reading()  # until it is answered
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
        """Close at once, whatever is under way."""
        self._disarm()
        self._all.leave(self)
        self.transport.abort()

    def arm(self) -> None:
        """Begin the time of the next exchange."""
        self._disarm()
        self._end = self.loop.call_later(self.exchange_seconds(), self.on_late)

    def _disarm(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
