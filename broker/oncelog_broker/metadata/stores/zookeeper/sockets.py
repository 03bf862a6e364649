"""The socket class that kazoo uses, and the function with which kazoo waits for sockets, both with as few system calls
as possible.

kazoo reads a response in two pieces, waits before each piece, and creates a selector for each wait. kazoo would
therefore make a dozen system calls for an event of eighty bytes, and a new topic of a thousand partitions causes two
thousand events. After each system call, kazoo's thread must acquire Python's interpreter lock again, and may wait for
milliseconds while the event loop is busy. This module therefore reads all available bytes into a buffer in one call,
and kazoo reads from this buffer without a system call. Bytes are sent without first waiting until the socket is
writable.
"""

from __future__ import annotations

import math
import select as system
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

READ_BYTES: Final = 64 * 1024
"""The approximate number of bytes to read in one call; more bytes stay in the operating system, which then stops the
server from sending.
"""
RECORD_BYTES: Final = 16 * 1024
"""The maximum size of a TLS record. With TLS, each read must request at least this many bytes, because polling the
descriptor does not show the rest of a record that was read in part.
"""

_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Waiting(Protocol):
    """The objects that `select` accepts for reading."""

    def fileno(self) -> int: ...

    def is_readable(self) -> bool:
        """Whether `recv` would return data, or report the end of the connection. This method makes no system call."""

    def fill(self) -> None:
        """Called when the descriptor is readable and `is_readable` was False. Raises OSError."""


class ReadAhead:
    """A connection that reads all available bytes into a buffer. If the connection has TLS, the handshake has already
    been done.

    With TLS, the connection counts as readable only when it has decrypted bytes for kazoo. If it also counted as
    readable after a TLS record without data, or after half a record, kazoo's thread would wait for more bytes, and
    would send no heartbeats during the wait. Other threads may call only `shutdown`.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._has_tls = isinstance(connection, ssl.SSLSocket)
        self._received = b""
        self._taken = 0
        """The number of bytes of the buffer that `recv` has already returned."""
        self._has_ended = False
        self._is_full = False
        """Whether the last call of `send` has sent no bytes."""

    def fileno(self) -> int:
        return self._connection.fileno()

    def setblocking(self, flag: bool) -> None:
        self._connection.setblocking(flag)

    def pending(self) -> int:
        """Return the number of bytes that `recv` returns without reading the connection; kazoo does not wait if there
        are any.
        """
        return len(self._received) - self._taken

    def is_readable(self) -> bool:
        return self._taken < len(self._received) or self._has_ended

    def fill(self) -> None:
        """Read the available bytes, if the buffer is empty. Raises OSError."""
        if self.is_readable():
            return
        size = RECORD_BYTES if self._has_tls else READ_BYTES
        pieces: list[bytes] = []
        came = 0
        while came < READ_BYTES:
            try:
                piece = self._connection.recv(size)
            except _NOT_NOW:
                break
            except OSError:
                if pieces:
                    break  # kazoo gets these bytes first; the next read reports the error again
                raise
            if not piece:
                self._has_ended = True
                break
            pieces.append(piece)
            came += len(piece)
            if not self._has_tls:
                break  # one call is enough: without TLS all bytes were read; with TLS, one record
        self._received, self._taken = b"".join(pieces), 0

    def recv(self, size: int) -> bytes:
        """Return up to `size` bytes, b"" at the end of the connection. Raises SSLWantReadError if no bytes are
        available. SSLWantReadError is also raised without TLS, because kazoo treats any other error as the end of the
        connection. Raises OSError.
        """
        self.fill()
        if not self.is_readable():
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "no data was received")
        taken = self._received[self._taken : self._taken + size]
        self._taken += len(taken)
        if self._taken == len(self._received):
            self._received, self._taken = b"", 0
        return taken

    def is_writable(self) -> bool:
        """Whether `send` may be able to send bytes."""
        return not self._is_full

    def can_send(self) -> None:
        """Record that the descriptor is writable."""
        self._is_full = False

    def send(self, data: Any) -> int:
        """Send as many bytes of `data` as possible; returns how many bytes were sent. Raises SSLWantWriteError if no
        byte was sent (even without TLS), and OSError for other failures.
        """
        try:
            return self._connection.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError) as error:
            self._is_full = True
            raise ssl.SSLWantWriteError(ssl.SSL_ERROR_WANT_WRITE, "not now") from error

    def shutdown(self, how: int) -> None:
        """Call the plain socket's `shutdown`. The `shutdown` of an SSL socket would first remove the encryption, and
        bytes that the other thread sends at that moment would be sent unencrypted.
        """
        socket.socket.shutdown(self._connection, how)

    def close(self) -> None:
        self._connection.close()


def select(
    uptime: Callable[[], float],
    reading: Sequence[Waiting],
    writing: Sequence[ReadAhead],
    seconds: float | None,
) -> tuple[list[Waiting], list[ReadAhead]]:
    """Wait until a connection is readable or writable, for `seconds` at most. Returns the readable and the writable
    connections; both lists are empty after a timeout. If a connection is ready already, the descriptors are not polled.
    """
    until = None if seconds is None else uptime() + seconds
    while True:
        readable = [each for each in reading if each.is_readable()]
        writable = [each for each in writing if each.is_writable()]
        if readable or writable:
            return readable, writable
        if not _wait(reading, writing, None if until is None else max(0.0, until - uptime())):
            return [], []


def _wait(reading: Sequence[Waiting], writing: Sequence[ReadAhead], seconds: float | None) -> bool:
    """Wait for the descriptors and mark the connections that are ready; returns whether any is ready."""
    asked = system.poll()
    ends = {each.fileno(): each.fill for each in reading}
    for descriptor in ends:
        asked.register(descriptor, system.POLLIN)
    for each in writing:
        ends[each.fileno()] = each.can_send
        asked.register(each.fileno(), system.POLLOUT)
    found = asked.poll(None if seconds is None else math.ceil(seconds * 1000))
    for descriptor, _ in found:
        ends[descriptor]()
    return bool(found)
