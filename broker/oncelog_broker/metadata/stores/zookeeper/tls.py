"""TLS beneath kazoo.

kazoo's own TLS is not used. It trusts the system's authorities in addition to the configured ones, lets `select` see
bytes that OpenSSL has already decrypted, and cannot end a connection from another thread (`sockets.py`).
"""

from __future__ import annotations

import socket
import ssl

from oncelog_broker.metadata.stores.zookeeper.sockets import ReadAhead


def connected(address: tuple[str, int], host: str, seconds: float, context: ssl.SSLContext) -> ReadAhead:
    """`host`: the host name that the certificate must have. The connection may take so long, and its handshake again.
    Raises OSError, which ssl.SSLError is, too."""
    plain = socket.create_connection(address, seconds)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return ReadAhead(context.wrap_socket(plain, server_hostname=host))
    except BaseException:
        plain.close()
        raise
