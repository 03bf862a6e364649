"""How kazoo's thread is woken for each request: in the place of its pair of sockets.

kazoo sends a byte for each request, and reads one when it sends the request on. Of requests that fail while there is no
connection the bytes stay until there is one: with some 250 of them the pair is full, and the next one who asks, our
event loop, would stand still until ZooKeeper answers. Here bytes are counted, and at most one of them is sent.
"""

from __future__ import annotations

import socket
import threading


class WakeUps:
    """Both ends of the pair. Readable while more was sent than received; sending never waits."""

    def __init__(self) -> None:
        self._reading, self._writing = socket.socketpair()
        self._lock = threading.Lock()
        self._count = 0

    def fileno(self) -> int:
        return self._reading.fileno()

    def send(self, data: bytes) -> int:
        """One wake-up. Raises OSError once it is closed."""
        with self._lock:
            is_first = not self._count
            self._count += 1  # before the byte: whoever that wakes asks `is_readable`
            if is_first or self._writing.fileno() < 0:
                self._writing.send(b"\0")
        return len(data)

    def recv(self, size: int) -> bytes:
        """One wake-up, whatever the size. Raises BlockingIOError where there is none, OSError once it is closed."""
        with self._lock:
            if not self._count:
                raise BlockingIOError
            self._count -= 1
            if not self._count:
                self._reading.recv(1)
        return b"\0"

    def is_readable(self) -> bool:
        """Whether `recv` has one to give: without a system call, and without waiting for who is sending it."""
        return self._count > 0

    def fill(self) -> None:
        """For `zk_sockets.select`: there is nothing to be read ahead."""

    def close(self) -> None:
        """May be repeated: kazoo closes both ends."""
        with self._lock:
            self._reading.close()
            self._writing.close()
