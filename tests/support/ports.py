"""Ports that are one test's alone, also while no server listens there: brokers that are killed come back on theirs.

TCP does not tell others that a port is spoken for, so a UDP socket of the same number does: whoever looks for a free
port here passes it by, in this process or in another one.
"""

from __future__ import annotations

import random
import socket
import weakref
from typing import Final

LOOPBACK: Final = "127.0.0.1"
RANGE: Final = range(10_240, 16_384)
"""Below those that `reserved_ports` and the system give to others."""
ATTEMPTS: Final = 1000


class OwnPort:
    """A free port of loopback, which nobody else gets as long as this object is there."""

    def __init__(self) -> None:
        for number in random.sample(RANGE, ATTEMPTS):
            claim = socket.socket(type=socket.SOCK_DGRAM)
            try:
                claim.bind((LOOPBACK, number))
                with socket.socket() as server:
                    server.bind((LOOPBACK, number))
            except OSError:
                claim.close()
            else:
                self.number = number
                weakref.finalize(self, claim.close)
                return
        raise RuntimeError(f"no free port from {RANGE.start} to {RANGE.stop - 1}")
