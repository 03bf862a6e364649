"""TLS between a socket and a `BrokerConnection`: the event loop uses this object as a protocol, and the connection uses
this object as its transport.

`TlsTransport` replaces the loop's `start_tls` for four reasons: a connection must be counted in the limits before its
handshake costs processor time; handshakes must be scheduled (`tls_handshakes`); encrypted bytes must be counted
together with the bytes in the socket's buffer; and a client that has ended its stream must still get its responses. A
`BrokerConnection` uses it in the same way as a TCP transport.

All connections receive through one shared buffer, because received bytes are decrypted immediately into the buffer of
the connection, which the memory budget counts. Each read of a socket takes at most as many bytes as the connection's
buffer has room for, plus one record, so that hardly any bytes remain here when the connection pauses reading. OpenSSL
also gets only that many bytes per call, because its buffers never shrink. A connection has at most UNCOUNTED_BYTES that
no budget counts.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any, Final, cast

from oncelog_broker.security.listener_security import ListenerSecurity, NoPrincipal
from oncelog_broker.security.principal import Principal
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_broker.server.net.connections import Connections
from oncelog_broker.server.net.tls_handshakes import HANDSHAKE_SECONDS, TlsHandshakes
from oncelog_protocol.wire_writers import Buffer

logger = logging.getLogger(__name__)

RECEIVE_BYTES: Final = 128 * 1024
"""Largest read of a socket in bytes; a read is also limited to the room in the connection's receive buffer."""
RECORD_BYTES: Final = 17 * 1024
"""The maximum size in bytes of a TLS record, and the minimum size of a read, because an incomplete record cannot be
decrypted.
"""
OPENSSL_BYTES: Final = 2 * RECORD_BYTES
"""The maximum number of bytes inside OpenSSL in each direction; one call passes at most this many bytes. When the
connection pauses reading, at most this many bytes remain inside OpenSSL: an incomplete record, and the bytes of one
read that did not fit into the connection's buffer.
"""
PLAIN_BYTES: Final = 32 * 1024
"""Number of plain-text bytes that can be encrypted into at most OPENSSL_BYTES: two complete TLS records."""
UNCOUNTED_BYTES: Final = 2 * OPENSSL_BYTES * 4 // 3 + RECORD_BYTES
"""The bytes of both OpenSSL buffers, which are a third larger than necessary, and of the buffer for the current record.
"""
HANDSHAKE_READ_BYTES: Final = 4096
"""The maximum size in bytes of a read until the handshake is done; a client's first message fits into such a read.
While a client waits for its handshake, further bytes stay in its socket.
"""
HANDSHAKE_INPUT_BYTES: Final = 64 * 1024
"""Limit on the bytes that a client may send before its handshake is done: a client's certificate chain takes some
kilobytes.
"""
HANDSHAKE_RECORD: Final = 0x16
"""The first byte of a TLS connection: the type of a handshake record."""
_RECEIVED: Final = memoryview(bytearray(RECEIVE_BYTES))
_ONE_RECORD: Final = _RECEIVED[:RECORD_BYTES]

MakeConnection = Callable[[Principal], BrokerConnection]


class _State(Enum):
    SHAKING = auto()
    OPEN = auto()
    CLOSED = auto()


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """One TLS connection of a client. The limits count the connection from its acceptance on; after the handshake, the
    `BrokerConnection` is counted in its place.
    """

    def __init__(
        self, security: ListenerSecurity, handshakes: TlsHandshakes, connections: Connections, make: MakeConnection
    ) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._security = security
        self.listener = security.name
        self._handshakes = handshakes
        self._connections = connections
        self._make = make
        self._raw: asyncio.Transport | None = None
        self.host = ""
        """The client's address."""
        self._until = self._loop.time() + HANDSHAKE_SECONDS
        self._state = _State.SHAKING
        self._incoming: ssl.MemoryBIO
        self._outgoing: ssl.MemoryBIO
        self._encrypted: list[bytes] = []
        """Encrypted bytes that were taken out of OpenSSL's buffer `_outgoing` and are not sent yet; these bytes must be
        sent before the bytes in `_outgoing`.
        """
        self._tls: ssl.SSLObject | None = None
        self._first_bytes = b""
        self._app: BrokerConnection | None = None
        self._is_paused = False
        """Whether the connection has paused reading, so that the socket is not read."""
        self._will_pump = False
        self._has_ended = False
        """Whether the client has ended its stream."""
        self._told_of_end: bool | None = None
        """Whether the transport stays open after the client has ended its stream, as the connection decided; None
        before the end of the client's stream.
        """

    # --- methods that the socket's transport calls --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if isinstance(peer, tuple) and len(peer) >= 2 else "local"
        if self._connections.refuse_if_over_rate(self._raw, self.host, self.listener):
            self._state = _State.CLOSED  # ignore further bytes: uvloop delivers some even if reading is paused
            return
        refused = self._connections.admit(self, self.host)
        if refused:
            logger.warning("connection refused", extra={"client": self.host, "reason": refused})
            self._raw.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._app is None:
            return _RECEIVED[:HANDSHAKE_READ_BYTES]
        room = self._app.room_bytes
        return _RECEIVED[:room] if room > RECORD_BYTES else _ONE_RECORD

    def buffer_updated(self, nbytes: int) -> None:
        if self._has_ended:
            # OpenSSL takes no bytes after the end of the stream, so they would only accumulate, and no budget counts
            # them.
            return
        if self._state is _State.OPEN:
            self._pump(_RECEIVED[:nbytes])
        elif self._state is _State.SHAKING:
            self._receive_handshake(bytes(_RECEIVED[:nbytes]))

    def eof_received(self) -> bool:
        self._has_ended = True
        if self._state is not _State.OPEN:
            return False
        if self._is_paused:
            return True
        return self._tell_of_end()

    def connection_lost(self, exc: Exception | None) -> None:
        was_open, self._state, self._raw = self._state is _State.OPEN, _State.CLOSED, None
        if was_open and self._app is not None:
            self._app.connection_lost(exc)
        else:
            self._handshakes.leave(self)
            self._connections.release(self, self.host)
            if self._app is not None:
                self._app.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._app is not None:
            self._app.pause_writing()

    def resume_writing(self) -> None:
        if self._app is not None:
            self._app.resume_writing()

    # --- methods for the TLS handshake --------------------------------------------------------------------------------

    def _receive_handshake(self, received: bytes) -> None:
        if self._tls is None:
            if not self._first_bytes and received[0] != HANDSHAKE_RECORD:
                self.close(f"no TLS: is its security.protocol that of the listener {self._security.name}?")
                return
            self._first_bytes += received
            size = len(self._first_bytes)
        else:
            self._incoming.write(received)
            size = self._incoming.pending
        if size > HANDSHAKE_INPUT_BYTES:
            self.close("more than a TLS handshake before its end")
            return
        if self._raw is not None:
            self._raw.pause_reading()
        self._handshakes.on_input(self)

    def take_step(self) -> None:
        """Process the received bytes of the handshake, when the scheduler selects this handshake."""
        if self._state is not _State.SHAKING or self._raw is None:
            return
        if self._tls is None:
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            assert self._security.tls is not None
            self._tls = self._security.tls.server.wrap_bio(self._incoming, self._outgoing, server_side=True)
            self._incoming.write(self._first_bytes)
            self._first_bytes = b""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            self._raw.resume_reading()
        except (ssl.SSLError, ValueError) as error:
            self._flush()  # send OpenSSL's last bytes, an alert with the reason of the failure
            reason = getattr(error, "verify_message", None) or getattr(error, "reason", None) or str(error)
            self.close(f"TLS handshake failed: {reason}", gently=True)
        else:
            self._flush()
            self._open()

    def _open(self) -> None:
        """Create the `BrokerConnection`, which is counted in the limits in place of this object, and pass the bytes
        that were received after the handshake to it.
        """
        assert self._tls is not None
        assert self._raw is not None
        self._handshakes.leave(self)
        try:
            principal = self._security.principal_of(self._tls)
        except NoPrincipal as error:
            self.close(str(error), gently=True)
            return
        self._state = _State.OPEN
        self._connections.release(self, self.host)
        self._app = self._make(principal)
        self._app.connection_made(self)
        self._raw.resume_reading()
        self._pump()

    # --- methods that receive and decrypt bytes -----------------------------------------------------------------------

    def _pump(self, received: memoryview | None = None) -> None:
        """Decrypt the buffered bytes and the bytes of `received`, as far as the connection accepts them."""
        app, tls, incoming = self._app, self._tls, self._incoming
        assert app is not None
        assert tls is not None
        try:
            while not self._is_paused and self._raw is not None and not self._raw.is_closing():
                room = app.get_buffer(-1)
                assert len(room), "a connection without room has paused"
                size, received, is_end = _read_into(tls, incoming, received, room)
                if self._outgoing.pending:
                    self._flush()  # there are bytes to send, for example the alert that refuses a renegotiation
                if size:
                    app.buffer_updated(size)
                if is_end:
                    self._has_ended = True
                    if not self._is_paused and not self._tell_of_end():
                        self._close_raw()
                    return
                if size < len(room):
                    return
            if self._is_paused and received is not None:
                incoming.write(received)
        except ssl.SSLError as error:
            self._abort(f"TLS: {error.reason or error}")

    def _tell_of_end(self) -> bool:
        """Notify the connection that the client has ended its stream; returns whether the transport stays open for
        responses.
        """
        if self._told_of_end is None and self._app is not None:
            self._told_of_end = self._app.eof_received()
        return bool(self._told_of_end)

    def pause_reading(self) -> None:
        self._is_paused = True
        if self._raw is not None:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._raw is None:
            return
        if not self._has_ended:
            self._raw.resume_reading()
        if not self._will_pump:
            # Schedule the call, because this code runs inside a call of the connection.
            self._will_pump = True
            self._loop.call_soon(self._pump_on)

    def _pump_on(self) -> None:
        self._will_pump = False
        if self._is_paused or self._state is not _State.OPEN:
            return
        self._pump()
        if self._has_ended and not self._is_paused and self._raw is not None and not self._tell_of_end():
            self._close_raw()

    # --- methods that encrypt and send bytes --------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        self._encrypt(data)
        self._flush()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        for piece in list_of_data:
            self._encrypt(piece)
        self._flush()

    def _encrypt(self, piece: Buffer) -> None:
        raw, tls, size = self._raw, self._tls, len(piece)
        if raw is None or raw.is_closing():
            return  # close now: OpenSSL has sent the end of the stream, and the socket's buffered bytes are still sent
        if self._app is None or tls is None or not size:
            return
        try:
            if self._outgoing.pending + size <= PLAIN_BYTES:
                tls.write(piece)
                return
            view = memoryview(piece)
            for start in range(0, size, PLAIN_BYTES):
                self._encrypted.append(self._outgoing.read())
                tls.write(view[start : start + PLAIN_BYTES])
        except ssl.SSLError as error:
            self._abort(f"TLS: {error.reason or error}")

    def _flush(self) -> None:
        if self._encrypted:
            encrypted, self._encrypted = [*self._encrypted, self._outgoing.read()], []
            if self._raw is not None:
                self._raw.writelines(encrypted)
        elif self._raw is not None and self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def get_write_buffer_size(self) -> int:
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high, low)

    # --- methods that close the connection ----------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._raw is None or self._raw.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    def abort(self) -> None:
        if self._raw is not None:
            self._raw.abort()

    def close(self, reason: str | None = None, *, gently: bool = False) -> None:
        """The method of an asyncio transport: send the buffered bytes, then the end of the stream, and close. With a
        `reason`, log the reason and abort the connection; `gently` first sends the handshake's last bytes.
        """
        if reason is None:
            self._close_raw()
            return
        logger.info("connection closed", extra={"client": self.host, "listener": self._security.name, "reason": reason})
        if gently:
            self._close_raw()
        else:
            self.abort()

    def _close_raw(self) -> None:
        if self._raw is None or self._raw.is_closing():
            return
        if self._tls is not None:
            try:
                self._tls.unwrap()
            except (ssl.SSLError, ValueError):
                pass  # do not wait until the client ends its stream
            self._flush()
        self._raw.close()

    def _abort(self, reason: str) -> None:
        if self._app is not None:
            self._app.close(reason)
        self.abort()

    # --- methods of `OpenConnection`, used until the handshake is done ------------------------------------------------

    def shut(self) -> None:
        """Close the connection: the broker is stopping."""
        self.abort()

    def sweep(self, now: float) -> None:
        """Periodic check: close the connection if its handshake takes too long. `now` is the loop's time."""
        if self._state is _State.SHAKING and now > self._until:
            self.close(f"no TLS handshake within {HANDSHAKE_SECONDS:.0f} s")


def _read_into(
    tls: ssl.SSLObject, incoming: ssl.MemoryBIO, received: memoryview | None, room: memoryview
) -> tuple[int, memoryview | None, bool]:
    """Returns how many bytes were decrypted into `room`, the rest of `received` (which follows the bytes in
    `incoming`), and whether the client has ended its stream.
    """
    size, space = 0, len(room)
    while True:
        if received is not None and incoming.pending < RECORD_BYTES:  # OpenSSL may need more bytes to complete a record
            fits = OPENSSL_BYTES - incoming.pending
            incoming.write(received[:fits])
            received = received[fits:] if len(received) > fits else None
        try:
            read = tls.read(space - size, cast(Any, room[size:] if size else room))
        except ssl.SSLWantReadError:
            if received is not None:
                continue  # continue, because the TLS record contained no data
            return size, None, False
        except ssl.SSLZeroReturnError:
            return size, received, True
        if not read:
            return size, received, True
        size += cast(int, read)
        if size == space or not (incoming.pending or received is not None or tls.pending()):
            return size, received, False
