"""The socket object that kazoo uses, and the way it waits for one: with as few system calls as possible.

kazoo reads an answer in two pieces, waits before each, and creates a selector for each wait: a dozen system calls for
an event of eighty bytes, of which a new topic of a thousand partitions causes two thousand. After each call its thread
has to get the interpreter lock back, which our busy event loop may hold for milliseconds. So all available bytes are
read at once, and kazoo is served from that buffer without a system call; and bytes are sent without waiting for
writability first.
"""

from __future__ import annotations

import math
import select as system
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

READ_BYTES: Final = 64 * 1024
"""Bytes to read at once, approximately; further ones stay in the system, which then stops the server from sending."""
RECORD_BYTES: Final = 16 * 1024
"""The longest record of TLS. Never ask for less: with TLS, the descriptor does not show the rest of a record that was
read in part."""

_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Waiting(Protocol):
    """The objects that `select` accepts."""

    def fileno(self) -> int: ...

    def is_readable(self) -> bool:
        """Whether `recv` has something to give, the end too. Makes no system call."""

    def fill(self) -> None:
        """Called when the descriptor is readable and `is_readable` was not. Raises OSError."""


class ReadAhead:
    """A connection that reads all available bytes. The TLS handshake has been done, if the connection has TLS.

    With TLS it is readable only when it has bytes for kazoo: otherwise a TLS record without data, or half of a record,
    would make kazoo's thread wait for the rest, and no heartbeat would be sent meanwhile. Only `shutdown` is for other
    threads.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._has_tls = isinstance(connection, ssl.SSLSocket)
        self._received = b""
        self._taken = 0
        """Number of bytes of the buffer that were taken."""
        self._has_ended = False
        self._is_full = False
        """Nothing more could be sent, the last time."""

    def fileno(self) -> int:
        return self._connection.fileno()

    def setblocking(self, flag: bool) -> None:
        self._connection.setblocking(flag)

    def pending(self) -> int:
        """Bytes that `recv` returns without reading the connection. kazoo does not wait while there are some."""
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
                    break  # the error, or the end, comes again when these bytes are taken
                raise
            if not piece:
                self._has_ended = True
                break
            pieces.append(piece)
            came += len(piece)
            if not self._has_tls:
                break  # everything was read; with TLS it was one record
        self._received, self._taken = b"".join(pieces), 0

    def recv(self, size: int) -> bytes:
        """b"" at the end. Raises SSLWantReadError if a blocking socket would wait, with TLS or without: kazoo
        understands that, and treats any other error as the end. OSError."""
        self.fill()
        if not self.is_readable():
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "nothing has come")
        taken = self._received[self._taken : self._taken + size]
        self._taken += len(taken)
        if self._taken == len(self._received):
            self._received, self._taken = b"", 0
        return taken

    def is_writable(self) -> bool:
        """Whether `send` may be tried."""
        return not self._is_full

    def can_send(self) -> None:
        """The descriptor is writable."""
        self._is_full = False

    def send(self, data: Any) -> int:
        """How many bytes were sent. Raises SSLWantWriteError for none, as `recv` does, and OSError."""
        try:
            return self._connection.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError) as error:
            self._is_full = True
            raise ssl.SSLWantWriteError(ssl.SSL_ERROR_WANT_WRITE, "not now") from error

    def shutdown(self, how: int) -> None:
        """The socket's. `unwrap` of `ssl` would first remove the encryption, and bytes that the other thread sends at
        that moment would leave unencrypted."""
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
    ones; both are empty after a timeout. If one is ready already, the descriptors are not polled."""
    until = None if seconds is None else uptime() + seconds
    while True:
        readable = [each for each in reading if each.is_readable()]
        writable = [each for each in writing if each.is_writable()]
        if readable or writable:
            return readable, writable
        if not _wait(reading, writing, None if until is None else max(0.0, until - uptime())):
            return [], []


def _wait(reading: Sequence[Waiting], writing: Sequence[ReadAhead], seconds: float | None) -> bool:
    """Wait for the descriptors and mark the ready ones; returns whether any is ready."""
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
