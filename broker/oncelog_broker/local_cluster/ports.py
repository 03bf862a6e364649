"""Ports of loopback that are one owner's alone, also while no server listens there.

A server takes seconds to start, and comes back after it was killed: TCP does not tell others meanwhile that its port is
spoken for. A UDP socket of the same number does: whoever looks for a free port here passes it by, in this process or in
another one.
"""

from __future__ import annotations

import random
import socket
import weakref
from typing import Final

LOOPBACK: Final = "127.0.0.1"
RANGE: Final = range(10_240, 32_768)
"""Below the ports that Linux gives to outgoing connections (from 32768 on) and to who asks for any port. macOS begins
at 49152."""
ATTEMPTS: Final = 1000


class NoFreePort(Exception):
    """Nothing could be bound in the whole range."""


class OwnPort:
    """One that nobody else gets as long as this object is there. Raises OSError where it is another's."""

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
    """Free ports that follow one another. Raises NoFreePort."""
    firsts = range(RANGE.start, RANGE.stop - count + 1)
    for _ in range(ATTEMPTS):
        first = random.choice(firsts)  # noqa: S311
        try:
            return [OwnPort(number) for number in range(first, first + count)]
        except OSError:
            pass
    raise NoFreePort(f"no {count} free ports that follow one another, from {RANGE.start} to {RANGE.stop - 1}")


def is_free(port: int) -> bool:
    """Whether a server could listen there, also where connections of an earlier one linger."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
