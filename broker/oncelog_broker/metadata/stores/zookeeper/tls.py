"""TLS for the connection that kazoo uses.

kazoo's own TLS is not used, for three reasons. kazoo trusts the system's certificate authorities in addition to the
configured authorities, kazoo waits in `select` even when OpenSSL has decrypted bytes left, and kazoo cannot end a
connection from another thread (`sockets.py`).
"""

from __future__ import annotations

import socket
import ssl

from oncelog_broker.metadata.stores.zookeeper.sockets import ReadAhead


def connected(address: tuple[str, int], host: str, seconds: float, context: ssl.SSLContext) -> ReadAhead:
    """Connect and do the TLS handshake; `host` is the host name that the certificate must have. Connecting may take
    `seconds`, and the handshake another `seconds`. Raises OSError, including its subclass ssl.SSLError.
    """
    plain = socket.create_connection(address, seconds)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return ReadAhead(context.wrap_socket(plain, server_hostname=host))
    except BaseException:
        plain.close()
        raise
