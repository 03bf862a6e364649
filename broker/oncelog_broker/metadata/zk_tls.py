"""TLS beneath kazoo.

kazoo's own TLS is not used. It trusts the system's authorities beside those that are configured, waits in `select` for
what OpenSSL has decrypted already, and has no way to end a connection from another thread. Here a socket counts as
readable when there is something to be read that was meant for kazoo: else a record of TLS's own, or half of one, would
have its thread wait for the rest, and no heartbeat would be sent meanwhile.
"""

from __future__ import annotations

import socket
import ssl

from oncelog_broker.metadata.zk_sockets import READ_BYTES, ReadAhead


class TlsSocket(ReadAhead):
    """A connection whose handshake is done."""

    def __init__(self, tls: ssl.SSLSocket) -> None:
        super().__init__(tls)
        self._tls = tls

    def has_something(self) -> bool:
        """Also what OpenSSL has and the socket has not any more."""
        self.take_in()
        return super().has_something()

    def _read(self) -> bytes | None:
        try:
            return self._tls.recv(READ_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def shutdown(self, how: int) -> None:
        """The socket's. That of `ssl` would first take the encryption away, and what the other thread sends at that
        moment would leave as it is."""
        socket.socket.shutdown(self._tls, how)


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
