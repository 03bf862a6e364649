"""Reserves ports on which several processes of one machine listen (SO_REUSEPORT). The parent of these processes makes
the reservation.

The parent binds the port without listening, so the parent's socket receives no connections. While the listening
processes are restarted, no process without SO_REUSEPORT can bind the port. With SO_REUSEPORT, the kernel lets any
process of the same user listen on the port. To detect a port that is already in use, the parent first binds it without
SO_REUSEPORT.
"""

from __future__ import annotations

import errno
import socket
from typing import Final

ATTEMPTS: Final = 20
"""Maximum number of attempts to find one free port number for all addresses of a host."""


class ReservedPort:
    """A port that is reserved until `close`."""

    def __init__(self, number: int, sockets: list[socket.socket]) -> None:
        """The constructor is internal: use `reserve_port`."""
        self.number = number
        self._sockets = sockets

    def close(self) -> None:
        for each in self._sockets:
            each.close()


def reserve_port(host: str, port: int) -> ReservedPort:
    """Reserve a port at all addresses of `host` ("": every interface); port 0 means any free port. Raises OSError if
    the port is in use.
    """
    for attempt in range(ATTEMPTS):
        sockets: list[socket.socket] = []
        try:
            number = port
            for family, kind, protocol, _, address in dict.fromkeys(
                socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            ):
                at = (address[0], number, *address[2:])
                try:
                    if number:
                        _bound(family, kind, protocol, at, is_shared=False).close()
                    sockets.append(_bound(family, kind, protocol, at, is_shared=True))
                except OSError as error:
                    if error.errno != errno.EAFNOSUPPORT:
                        raise
                    continue
                number = sockets[-1].getsockname()[1]
            if not sockets:
                raise OSError(errno.EAFNOSUPPORT, "no address of the host can be bound")
        except OSError as error:
            for each in sockets:
                each.close()
            if port or error.errno != errno.EADDRINUSE or attempt == ATTEMPTS - 1:
                raise
        else:
            return ReservedPort(number, sockets)
    raise AssertionError("unreachable")


def _bound(family: int, kind: int, protocol: int, address: tuple[object, ...], *, is_shared: bool) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made
