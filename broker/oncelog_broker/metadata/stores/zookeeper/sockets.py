"""What kazoo takes for a socket, and how it waits for one: as few system calls as can be.

kazoo reads an answer in two pieces, waits before each of them, and makes a selector of its own for each wait: a dozen
system calls for an event of eighty bytes, of which a new topic of a thousand partitions makes two thousand. After each
of them its thread has to get the interpreter back, which our event loop may keep for milliseconds when it has work. So
whatever has come is read at once, and kazoo is served from there without a system call; and what can be sent is sent
without asking first.
"""

from __future__ import annotations

import math
import select as system
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

READ_BYTES: Final = 64 * 1024
"""Read at a time, about; what is beyond them stays in the system, which then stops the server from sending."""
RECORD_BYTES: Final = 16 * 1024
"""The longest record of TLS. Less is never asked for: no descriptor tells of the rest of a record."""

_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Waiting(Protocol):
    """What `select` takes."""

    def fileno(self) -> int: ...

    def is_readable(self) -> bool:
        """Whether `recv` has something to give, the end too. Makes no system call."""

    def fill(self) -> None:
        """Called when the descriptor is readable and `is_readable` was not. Raises OSError."""


class ReadAhead:
    """A connection that reads all that has come. Its TLS handshake is done, if it has TLS.

    With TLS it is readable when there is something that was meant for kazoo: else a record of TLS's own, or half of
    one, would have kazoo's thread wait for the rest, and no heartbeat would be sent meanwhile. Only `shutdown` is for
    other threads.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._has_tls = isinstance(connection, ssl.SSLSocket)
        self._received = b""
        self._taken = 0
        """Of these."""
        self._has_ended = False
        self._is_full = False
        """Nothing more could be sent, the last time."""

    def fileno(self) -> int:
        return self._connection.fileno()

    def setblocking(self, flag: bool) -> None:
        self._connection.setblocking(flag)

    def pending(self) -> int:
        """Bytes that `recv` gives without looking at the connection. kazoo does not wait while there are some."""
        return len(self._received) - self._taken

    def is_readable(self) -> bool:
        return self._taken < len(self._received) or self._has_ended

    def fill(self) -> None:
        """Read what has come, where nothing is left of what came before. Raises OSError."""
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
                    break  # it comes again when these are taken, or the end does
                raise
            if not piece:
                self._has_ended = True
                break
            pieces.append(piece)
            came += len(piece)
            if not self._has_tls:
                break  # that was all; of TLS it was one record
        self._received, self._taken = b"".join(pieces), 0

    def recv(self, size: int) -> bytes:
        """b"" at the end. Raises SSLWantReadError where a blocking socket would wait, with TLS or without: kazoo takes
        that for what it is, and any other error for the end. OSError."""
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
        """The socket's. That of `ssl` would first take the encryption away, and what the other thread sends at that
        moment would leave as it is."""
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
    ones, none after a timeout. If one is ready already, the descriptors are not polled."""
    until = None if seconds is None else uptime() + seconds
    while True:
        readable = [each for each in reading if each.is_readable()]
        writable = [each for each in writing if each.is_writable()]
        if readable or writable:
            return readable, writable
        if not _wait(reading, writing, None if until is None else max(0.0, until - uptime())):
            return [], []


def _wait(reading: Sequence[Waiting], writing: Sequence[ReadAhead], seconds: float | None) -> bool:
    """Wait for the descriptors, and have those told that are ready; whether there is one."""
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
