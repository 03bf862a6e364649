"""Wakes kazoo's thread for each request; replaces kazoo's pair of sockets.

For each request, kazoo writes a byte to its pair of sockets, and reads a byte when it sends the request to a server.
The bytes of requests that fail without a connection remain in the pair until there is a connection. kazoo's pair of
sockets is full after about 250 unread bytes; the next request would then block the event loop until ZooKeeper answers.
`WakeUps` counts wake-ups instead, and sends at most one byte.
"""

from __future__ import annotations

import socket
import threading


class WakeUps:
    """Both ends of kazoo's pair of sockets, in one object. The object is readable while more wake-ups were sent than
    received; sending never blocks.
    """

    def __init__(self) -> None:
        self._reading, self._writing = socket.socketpair()
        self._lock = threading.Lock()
        self._count = 0

    def fileno(self) -> int:
        return self._reading.fileno()

    def send(self, data: bytes) -> int:
        """Send one wake-up. Raises OSError after `close`."""
        with self._lock:
            is_first = not self._count
            self._count += 1  # count first, because the awakened thread calls `is_readable`
            if is_first or self._writing.fileno() < 0:
                self._writing.send(b"\0")
        return len(data)

    def recv(self, size: int) -> bytes:
        """Receive one wake-up, whatever `size` is. Raises BlockingIOError if there is no wake-up, OSError after
        `close`.
        """
        with self._lock:
            if not self._count:
                raise BlockingIOError
            self._count -= 1
            if not self._count:
                self._reading.recv(1)
        return b"\0"

    def is_readable(self) -> bool:
        """Whether `recv` has a wake-up to return; this makes no system call and does not wait for the sender."""
        return self._count > 0

    def fill(self) -> None:
        """Does nothing, because this object has no data to read ahead. The method `select` of `sockets` calls it for
        each object.
        """

    def close(self) -> None:
        """Let later calls of `send` and `recv` fail. May be called repeatedly, because kazoo closes both ends."""
        with self._lock:
            self._reading.close()
            self._writing.close()
