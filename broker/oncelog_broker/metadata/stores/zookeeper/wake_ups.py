"""How kazoo's thread is woken for each request: in the place of its pair of sockets.

kazoo sends a byte for each request, and reads one when it sends the request on. The bytes of requests that fail without
a connection stay until there is one: with some 250 of them the pair is full, and the next request would block our event
loop until ZooKeeper answers. Here wake-ups are counted, and at most one byte is sent.
"""

from __future__ import annotations

import socket
import threading


class WakeUps:
    """Both ends of the pair. It is readable while more wake-ups were sent than received; sending never blocks."""

    def __init__(self) -> None:
        self._reading, self._writing = socket.socketpair()
        self._lock = threading.Lock()
        self._count = 0

    def fileno(self) -> int:
        return self._reading.fileno()

    def send(self, data: bytes) -> int:
        """Send one wake-up. Raises OSError once it is closed."""
        with self._lock:
            is_first = not self._count
            self._count += 1  # before the byte: the thread that it wakes calls `is_readable`
            if is_first or self._writing.fileno() < 0:
                self._writing.send(b"\0")
        return len(data)

    def recv(self, size: int) -> bytes:
        """Receive one wake-up, whatever the size. Raises BlockingIOError if there is none, OSError once it is
        closed."""
        with self._lock:
            if not self._count:
                raise BlockingIOError
            self._count -= 1
            if not self._count:
                self._reading.recv(1)
        return b"\0"

    def is_readable(self) -> bool:
        """Whether `recv` has a wake-up to return: without a system call, and without waiting for the sender."""
        return self._count > 0

    def fill(self) -> None:
        """For `zk_sockets.select`: there is nothing to read ahead."""

    def close(self) -> None:
        """May be repeated: kazoo closes both ends."""
        with self._lock:
            self._reading.close()
            self._writing.close()
