"""What kazoo takes for a socket, and how it waits for one.

kazoo asks for each answer in two pieces, the size and the rest, and waits in `select` before each, with a selector that
it makes for that one time: some twenty system calls for an answer of a hundred bytes, of which a thousand partitions
bring tens of thousands. Here all that has come is read at once, and what is there is given without a system call.
"""

from __future__ import annotations

import math
import select
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

READ_BYTES: Final = 64 * 1024
"""With one system call."""
MS_PER_SECOND: Final = 1000


class Readable(Protocol):
    """What kazoo waits for."""

    def fileno(self) -> int: ...

    def has_something(self) -> bool:
        """Whether `recv` has something to give, though nothing more comes."""

    def take_in(self) -> None:
        """Something may have come."""


class ReadAhead:
    """A connection, with what kazoo uses of a socket. Only `shutdown` is for other threads."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = b""
        self._at = 0
        """Up to where it was given away."""
        self._has_ended = False

    def fileno(self) -> int:
        return self._connection.fileno()

    def setblocking(self, flag: bool) -> None:
        self._connection.setblocking(flag)

    def pending(self) -> int:
        """Bytes that `recv` gives without looking at the socket."""
        return len(self._received) - self._at

    def has_something(self) -> bool:
        """The end is something, too. Raises OSError."""
        return self._at < len(self._received) or self._has_ended

    def take_in(self) -> None:
        """Raises OSError."""
        if not self._has_ended and self._at == len(self._received):
            received = self._read()
            if received is not None:
                self._received, self._at, self._has_ended = received, 0, not received

    def _read(self) -> bytes | None:
        """None: there is nothing yet. Raises OSError."""
        try:
            return self._connection.recv(READ_BYTES)
        except BlockingIOError:
            return None

    def recv(self, size: int) -> bytes:
        """Raises SSLWantReadError, which kazoo knows, where a blocking socket would wait; OSError."""
        if not self.has_something():
            self.take_in()
            if not self.has_something():
                raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "nothing has come")
        begin, self._at = self._at, min(self._at + size, len(self._received))
        return self._received[begin : self._at]

    def send(self, data: Any) -> int:
        return self._connection.send(data)

    def shutdown(self, how: int) -> None:
        self._connection.shutdown(how)

    def close(self) -> None:
        self._connection.close()


def wait(
    uptime: Callable[[], float], reading: Sequence[Readable], writing: Sequence[Any], seconds: float | None
) -> tuple[list[Readable], list[Any], list[Any]]:
    """As `select.select`: those of `reading` that have something to give, those of `writing` that have room, and none
    that is exceptional. `uptime` in seconds; `seconds` None: for as long as it takes. Raises ValueError for what is
    closed, OSError."""
    until = None if seconds is None else uptime() + seconds
    ready = [each for each in reading if each.has_something()]
    if ready and not writing:
        return ready, [], []
    polled = select.poll()
    for each in reading:
        polled.register(each, select.POLLIN)
    for each in writing:
        polled.register(each, select.POLLOUT)
    while True:
        left = 0.0 if ready else None if until is None else max(0.0, until - uptime())
        came = dict(polled.poll(None if left is None else math.ceil(left * MS_PER_SECOND)))
        for each in reading:
            if each.fileno() in came:
                each.take_in()
        ready = [each for each in reading if each.has_something()]
        room = [each for each in writing if each.fileno() in came]
        if ready or room or not came or (until is not None and uptime() >= until):
            return ready, room, []
