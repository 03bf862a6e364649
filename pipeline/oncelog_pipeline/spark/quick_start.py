"""Has a task's rows arrive 40 ms earlier: acknowledges at once what Spark's JVM has sent to a Python worker.

The JVM sends a task in several small parts over TCP: first what to do, then the rows. Nagle's algorithm, which Spark
leaves on, holds the second part until the first is acknowledged; and the kernel delays an acknowledgement for 40 ms
where the receiver has nothing to say. Where Spark's sockets are Unix domain sockets
(spark.python.unix.domain.socket.enabled), or outside of Linux, there is nothing to do here.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from typing import Any, Final

OPEN_FILES: Final = "/proc/self/fd"


class QuickStart:
    """What Spark unpickles in a worker first of all for a task: then the first part has arrived, and the second has
    not."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge()


def acknowledge() -> None:
    """Acknowledge now what was received on the TCP connections of this process. Raises nothing."""
    if not hasattr(socket, "TCP_QUICKACK"):
        return
    with suppress(OSError):  # no /proc
        for name in os.listdir(OPEN_FILES):
            with suppress(OSError):  # listing has closed its own; not each socket is of TCP
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    _acknowledge(int(name))


def _acknowledge(file: int) -> None:
    """Raises OSError."""
    connection = socket.socket(fileno=file)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    finally:
        connection.detach()  # it is another's
