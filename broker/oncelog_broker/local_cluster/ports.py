"""Free ports for servers that must come back on the same port after they were killed."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LOOPBACK: Final = "127.0.0.1"
RANGE: Final = range(16_384, 32_768)
"""Below the ports that Linux gives to outgoing connections (from 32768 on) and to who asks for any port: a server that
was killed finds its port free. macOS begins at 49152."""
ATTEMPTS: Final = 1000


class NoFreePort(Exception):
    """Nothing could be bound in the whole range."""


@contextmanager
def reserved_ports(count: int) -> Iterator[list[int]]:
    """Different free ports of loopback, bound until the block ends; from then on another process might take one."""
    sockets: list[socket.socket] = []
    try:
        for _ in range(ATTEMPTS):
            if len(sockets) == count:
                break
            one = socket.socket()
            try:
                one.bind((LOOPBACK, random.choice(RANGE)))  # noqa: S311
            except OSError:
                one.close()
            else:
                sockets.append(one)
        if len(sockets) < count:
            raise NoFreePort(f"no {count} free ports from {RANGE.start} to {RANGE.stop - 1}")
        yield [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def is_free(port: int) -> bool:
    """Whether a server could listen there, also where connections of an earlier one linger."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
