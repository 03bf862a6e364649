"""Reserves loopback ports, so that a reserved port stays free for its server even while the server does not run.

A server takes seconds to start, and is restarted after a kill; meanwhile TCP does not show that its port is in use. To
reserve the port, a UDP socket is bound to the same port number, and every search for free ports with this module, in
any process, skips this number.
"""

from __future__ import annotations

import random
import socket
import weakref
from typing import Final

LOOPBACK: Final = "127.0.0.1"
RANGE: Final = range(10_240, 32_768)
"""The range of ports to choose from, below the ephemeral ports, which begin at 32768 on Linux and at 49152 on macOS."""
ATTEMPTS: Final = 1000


class NoFreePort(Exception):
    """Raised if there are not enough free ports in the range."""


class OwnPort:
    """A port that is reserved as long as this object exists. Raises OSError if the port is already reserved or in
    use."""

    def __init__(self, number: int) -> None:
        self.number = number
        claim = socket.socket(type=socket.SOCK_DGRAM)
        try:
            claim.bind((LOOPBACK, number))
            with socket.socket() as server:
                server.bind((LOOPBACK, number))
        except OSError:
            claim.close()
            raise
        weakref.finalize(self, claim.close)


def own_ports(count: int) -> list[OwnPort]:
    """Reserve `count` consecutive free ports. Raises NoFreePort."""
    firsts = range(RANGE.start, RANGE.stop - count + 1)
    for _ in range(ATTEMPTS):
        first = random.choice(firsts)  # noqa: S311
        try:
            return [OwnPort(number) for number in range(first, first + count)]
        except OSError:
            pass
    raise NoFreePort(f"no {count} consecutive free ports from {RANGE.start} to {RANGE.stop - 1}")


def is_free(port: int) -> bool:
    """Whether a server could bind this port now. Connections in TIME_WAIT do not make the port count as in use."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
