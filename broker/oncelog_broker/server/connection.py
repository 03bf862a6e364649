"""One client connection: bytes in, frames cut, responses out in the order of the requests.

Requests are handled one at a time, in place: a request that must wait (a long poll, a topic to be created) mutes the
connection until its response is written, as Kafka does; what the client pipelines meanwhile stays in the buffer and,
when that is full, in the client's socket. Idempotent producing relies on this order (T17).

Memory: the receive buffer grows with the bytes received, never with a claimed length, and is given up when the
connection rests. A frame is a slice of it, valid until the request is handled; nothing may keep it longer. Responses
that the client does not read pile up to WRITE_HIGH_WATER_BYTES, then we stop reading.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from struct import Struct
from typing import Any, Final, Protocol, cast

from oncelog_broker.server.connections import Connections
from oncelog_broker.server.known_header import NO_HEADER, KnownHeader
from oncelog_broker.server.limits import FRAME_PROGRESS_SECONDS, RESPONSE_STALL_SECONDS, WRITE_HIGH_WATER_BYTES
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.wire_writers import Buffer

logger = logging.getLogger(__name__)

SIZE: Final = Struct(">i")
MIN_FRAME_BYTES: Final = 8
"""Api key, version and correlation id: less is no request."""
INITIAL_BUFFER_BYTES: Final = 16 * 1024
MEMORY_RETRY_SECONDS: Final = 0.05
"""How long a connection that got no memory for a large frame waits before it asks again."""
READ_AHEAD_BYTES: Final = 128 * 1024
"""Room beyond a large frame, so that one read may bring the next ones as well."""
SCATTER_BYTES: Final = 16 * 1024
"""Parts of a response from this size on go to the socket as they are; smaller ones are joined first."""


class FrameHandler(Protocol):
    """Serves one request; `frame` is without its size. Raises MalformedMessage for one that cannot be answered."""

    def __call__(self, connection: BrokerConnection, frame: memoryview, /) -> None: ...


class BrokerConnection(asyncio.BufferedProtocol):
    """A connection as the event loop sees it. `handle` gets each frame; `respond` takes each response."""

    __slots__ = (
        "_begin",
        "_buffer",
        "_connections",
        "_end",
        "_frame_is_lent",
        "_frame_since",
        "_handle",
        "_limits",
        "_loop",
        "_outgoing",
        "_reading_paused",
        "_reserved",
        "_stalled_since",
        "_transport",
        "_unsent",
        "_view",
        "_waiting",
        "_waiting_for",
        "client_host",
        "client_port",
        "known_header",
        "last_active",
        "listener",
        "state",
    )

    def __init__(self, handle: FrameHandler, connections: Connections, listener: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._handle = handle
        self._connections = connections
        self._limits = connections.limits
        self.listener = listener
        self._transport: asyncio.Transport | None = None
        self._buffer: bytearray | None = None
        self._view = memoryview(b"")
        self._begin = 0
        self._end = 0
        self._reserved = 0
        self._outgoing: list[Buffer] | None = None
        self._waiting = False
        self._waiting_for: asyncio.Future[Any] | None = None
        self._frame_is_lent = False
        self._reading_paused = False
        self._frame_since = 0.0
        self._stalled_since = 0.0
        self._unsent = 0
        self.last_active = self._loop.time()
        self.known_header: KnownHeader = NO_HEADER
        self.client_host = ""
        self.client_port = 0
        self.state: dict[str, object] = {}

    # --- the transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        host, port = (peer[0], peer[1]) if isinstance(peer, tuple) and len(peer) >= 2 else ("local", 0)
        self.client_host, self.client_port = host, port
        connected = transport.get_extra_info("socket")
        refused = self._connections.admit(self, host, -1 if connected is None else connected.fileno())
        if refused:
            logger.warning("connection refused", extra={"client": host, "reason": refused})
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        for option, size in (
            (socket.SO_SNDBUF, self._limits.send_buffer_bytes),
            (socket.SO_RCVBUF, self._limits.receive_buffer_bytes),
        ):
            if size >= 0:
                connected.setsockopt(socket.SOL_SOCKET, option, size)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.release(self, self.client_host)
        if self._waiting_for is not None:
            self._waiting_for.cancel()
        self._give_up_buffer()
        self._transport = None

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._buffer is None:
            self._replace_buffer(INITIAL_BUFFER_BYTES)
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self.last_active = self._loop.time()
        if not self.is_muted:
            self._handle_frames()
        elif self._end == len(self._view):
            self._pause_reading()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._stalled_since = self._loop.time()
        self._unsent = self._unsent_bytes()

    def resume_writing(self) -> None:
        self._stalled_since = 0.0
        self.last_active = self._loop.time()
        self._go_on()

    # --- frames in

    def _handle_frames(self) -> None:
        """Handle every whole frame in the buffer, until one mutes the connection; their responses leave together."""
        self._outgoing = []
        try:
            self._handle_each()
        except MalformedMessage as error:
            self.close(f"malformed request: {error}")
        except Exception:
            logger.exception("request failed", extra={"client": self.client_host})
            self.close("internal error")
        finally:
            outgoing, self._outgoing = self._outgoing, None
            self._write(outgoing)

    def _handle_each(self) -> None:
        view, end, handle = self._view, self._end, self._handle
        while not self.is_muted and self._transport is not None:
            available = end - self._begin
            if available < 4:
                break
            (size,) = SIZE.unpack_from(view, self._begin)
            if size < MIN_FRAME_BYTES or size > self._limits.request_max_bytes:
                self.close(f"frame of {size} bytes: socket.request.max.bytes={self._limits.request_max_bytes}")
                return
            if available - 4 < size:
                # Not the time of its first byte: while the connection was muted, the client could not go on.
                self._frame_since = self._frame_since or self._loop.time()
                self._make_room(size + 4)
                return
            start = self._begin + 4
            self._begin = start + size
            self._frame_since = 0.0
            handle(self, view[start : self._begin])
        if self._frame_is_lent:
            self._frame_is_lent = False
            self._replace_buffer(max(INITIAL_BUFFER_BYTES, self._end - self._begin))
            if self._end == len(self._view):
                self._pause_reading()
        elif self._begin == self._end:
            self._begin = self._end = 0
            if self._reserved and self._limits.is_short:
                self._give_up_buffer()
        elif self._end == len(self._view):
            self._make_room(0)

    def _make_room(self, frame_size: int) -> None:
        """Let the next read find room: move what is left to the front, grow when even that leaves none.

        The buffer at most doubles at a time, so it follows the bytes received, not the size that a client claims.
        """
        pending = self._end - self._begin
        capacity = len(self._view)
        if pending == capacity:
            wanted = min(2 * capacity, max(frame_size, capacity) + READ_AHEAD_BYTES)
            if not self._reserve(wanted):
                self._pause_reading()
                self._loop.call_later(MEMORY_RETRY_SECONDS, self._retry_room, frame_size)
                return
            self._replace_buffer(wanted)
        elif self._begin and self._begin + max(frame_size, pending + 1) > capacity:
            self._view[:pending] = self._view[self._begin : self._end]
            self._begin, self._end = 0, pending
        if self._end == len(self._view):
            self._pause_reading()

    def _reserve(self, capacity: int) -> bool:
        if not self._limits.reserve(capacity - self._reserved, self):
            return False
        self._reserved = capacity
        return True

    def _retry_room(self, frame_size: int) -> None:
        if self._transport is not None and not self.is_muted:
            self._make_room(frame_size)
            if self._end < len(self._view):
                self._resume_reading()

    def _replace_buffer(self, capacity: int) -> None:
        pending = self._end - self._begin
        buffer = bytearray(capacity)
        view = memoryview(buffer)
        view[:pending] = self._view[self._begin : self._end]
        self._buffer, self._view, self._begin, self._end = buffer, view, 0, pending

    def _give_up_buffer(self) -> None:
        """Drop the buffer (slices of it that are still in use keep it alive) and what it had reserved."""
        self._buffer = None
        self._view = memoryview(b"")
        self._begin = self._end = 0
        if self._reserved:
            self._limits.give_back(self._reserved, self)
            self._reserved = 0

    def _pause_reading(self) -> None:
        if not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    # --- responses out

    @property
    def is_muted(self) -> bool:
        """Whether a request waits for its response, or the client does not read its responses."""
        return self._waiting or self._stalled_since > 0.0

    def mute(self, waiting_for: asyncio.Future[Any] | None = None) -> None:
        """Handle no further request until `unmute`: the present one waits for its response.

        `waiting_for` is cancelled if the client goes: nobody else waits for it. Without it the request is still being
        worked on, and its frame stays as it is: what comes meanwhile goes into another buffer.
        """
        self._waiting = True
        self._frame_is_lent = waiting_for is None
        self._waiting_for = waiting_for

    def unmute(self) -> None:
        """The waiting request is answered: go on with what was pipelined. Only now the connection begins to rest."""
        self._waiting = False
        self._waiting_for = None
        self.last_active = self._loop.time()
        self._go_on()

    def _go_on(self) -> None:
        if self.is_muted or self._transport is None:
            return
        self._handle_frames()
        if not self.is_muted and self._end < max(1, len(self._view)):
            self._resume_reading()

    def respond(self, parts: list[Buffer]) -> None:
        """Send one response, which begins with its size and header; those of requests handled together go together."""
        if self._outgoing is not None:
            self._outgoing += parts
        else:
            self._write(parts)

    def _write(self, parts: list[Buffer]) -> None:
        if not parts or self._transport is None:
            return
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            pieces = coalesce(parts)
            if len(pieces) == 1:
                self._transport.write(pieces[0])
            else:
                self._transport.writelines(pieces)

    def close(self, reason: str) -> None:
        """Cut the connection and say why in the log."""
        if self._transport is not None:
            logger.info(
                "connection closed", extra={"client": f"{self.client_host}:{self.client_port}", "reason": reason}
            )
            self._transport.abort()

    def shut(self) -> None:
        """Close after what is written has gone out: the broker stops."""
        self._waiting = True
        if self._transport is not None:
            self._transport.close()

    def sweep(self, now: float) -> None:
        """Called now and then: close what is idle or stalled, give memory back. `now` is the loop's time."""
        if self._stalled_since:
            self._note_progress(now)
        if self._stalled_since and now - self._stalled_since > RESPONSE_STALL_SECONDS:
            self.close(f"responses not read for {RESPONSE_STALL_SECONDS:.0f} s")
        elif self._frame_since and now - self._frame_since > FRAME_PROGRESS_SECONDS:
            self.close(f"request not complete after {FRAME_PROGRESS_SECONDS:.0f} s")
        elif not self._waiting and now - self.last_active > self._limits.idle_seconds:
            self.close("idle for connections.max.idle.ms")
        elif not self._waiting and self._begin == self._end and now - self.last_active > 1.0:
            self._give_up_buffer()

    def _note_progress(self, now: float) -> None:
        """A client on a slow line reads a large response for longer than the limit: only who reads nothing stalls."""
        unsent = self._unsent_bytes()
        if unsent < self._unsent:
            self._stalled_since = now
        self._unsent = unsent

    def _unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()


def coalesce(parts: list[Buffer]) -> list[Buffer]:
    """The same bytes in few pieces: runs of small parts joined, large ones (record data) as they are."""
    if max(map(len, parts)) < SCATTER_BYTES:
        return [b"".join(parts)]
    result: list[Buffer] = []
    small: list[Buffer] = []
    for part in parts:
        if len(part) < SCATTER_BYTES:
            small.append(part)
            continue
        if small:
            result.append(b"".join(small))
            small = []
        result.append(part)
    if small:
        result.append(b"".join(small))
    return result
