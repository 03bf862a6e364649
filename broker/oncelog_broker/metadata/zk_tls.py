"""TLS beneath kazoo: what it takes for a socket, and how it waits for one.

kazoo's own TLS is not used. It trusts the system's authorities beside those that are configured, waits in `select` for
what OpenSSL has decrypted already, and has no way to end a connection from another thread. Here a socket counts as
readable when there is something to be read that was meant for kazoo: else a record of TLS's own, or half of one, would
have its thread wait for the rest, and no heartbeat would be sent meanwhile.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

READ_BYTES: Final = 64 * 1024

Select = Callable[..., tuple[list[Any], list[Any], list[Any]]]


class TlsSocket:
    """A connection whose handshake is done, with what kazoo uses of a socket. Only `shutdown` is for other threads."""

    def __init__(self, tls: ssl.SSLSocket) -> None:
        self._tls = tls
        self._received = b""
        self._has_ended = False

    def fileno(self) -> int:
        return self._tls.fileno()

    def setblocking(self, flag: bool) -> None:
        self._tls.setblocking(flag)

    def pending(self) -> int:
        """Bytes that `recv` gives without looking at the socket."""
        return len(self._received)

    def fill(self) -> bool:
        """Whether `recv` has something to give, the end too. Raises OSError."""
        if not self._received and not self._has_ended:
            try:
                self._received = self._tls.recv(READ_BYTES)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return False
            self._has_ended = not self._received
        return True

    def recv(self, size: int) -> bytes:
        """Raises SSLWantReadError where a blocking socket would wait, OSError."""
        if not self.fill():
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "nothing has come")
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def send(self, data: Any) -> int:
        return self._tls.send(data)

    def shutdown(self, how: int) -> None:
        """The socket's. That of `ssl` would first take the encryption away, and what the other thread sends at that
        moment would leave as it is."""
        socket.socket.shutdown(self._tls, how)

    def close(self) -> None:
        self._tls.close()


def connected(address: tuple[str, int], host: str, seconds: float, context: ssl.SSLContext) -> TlsSocket:
    """`host`: whose certificate it must be. The connection may take so long, and its handshake again. Raises OSError,
    which ssl.SSLError is, too."""
    plain = socket.create_connection(address, seconds)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return TlsSocket(context.wrap_socket(plain, server_hostname=host))
    except BaseException:
        plain.close()
        raise


def select(raw: Select, uptime: Callable[[], float], reading: list[Any], *others: Any) -> Any:
    """`raw(reading, writing, exceptional, seconds)`, where a TlsSocket among `reading` is ready when it has something
    to give."""
    ours = next((each for each in reading if isinstance(each, TlsSocket)), None)
    if ours is None:
        return raw(reading, *others)
    writing, exceptional, seconds = others
    until = None if seconds is None else uptime() + seconds
    beside = [each for each in reading if each is not ours]
    while not ours.fill():
        left = None if until is None else max(0.0, until - uptime())
        ready, *rest = raw(reading, writing, exceptional, left)
        came = ours in ready
        found = [each for each in ready if each is not ours]
        if came and ours.fill():
            return [ours, *found], *rest
        if found or any(rest) or not came:
            return found, *rest
    ready, *rest = raw(beside, writing, exceptional, 0) if beside or writing or exceptional else ([], [], [])
    return [ours, *ready], *rest
