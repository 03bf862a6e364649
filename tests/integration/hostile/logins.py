"""Strangers who never get in: TLS handshakes begun and left, passwords guessed, and much sent before the login."""

from __future__ import annotations

import re
import socket
import ssl
import time

from raw_client import SIZE, TIMEOUT_SECONDS, RawClient, frame
from tests.support.certificates import Certificate

from hostile.client import HostileClient
from hostile.scene import Scene
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog_protocol.messages.sasl_handshake import SaslHandshakeRequest

WATCHED_SECONDS = 2.0
HONEST_HANDSHAKES = 5
AUTHORITY = Certificate.authority()
SERVER = AUTHORITY.issue(("CN", "broker"))
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "ssl.keystore.key": SERVER.key_pem(),
    "ssl.keystore.certificate.chain": SERVER.pem,
    "sasl.enabled.mechanisms": "PLAIN",
    "max.connections": "20000",
    "max.connections.per.ip": "20000",  # the honest client has the same address
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": 'Plain required user_alice="secret";',
}


def _connect(scene: Scene, listener: int) -> socket.socket:
    port = int(re.findall(r"127\.0\.0\.1:(\d+)", scene.broker.start_line)[listener])
    return scene.opened(RawClient(port, TIMEOUT_SECONDS)).socket


def with_tls(scene: Scene) -> ssl.SSLSocket:
    """A connection to the listener with TLS."""
    context = ssl.create_default_context(cadata=AUTHORITY.pem)
    shaken = context.wrap_socket(_connect(scene, 1), server_hostname="localhost")
    scene.at_the_end(shaken.close)
    return shaken


def _client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cadata=AUTHORITY.pem).wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def _handshakes(scene: Scene, _: None, size: int) -> str:
    """Whoever comes meanwhile and is in earnest gets in."""
    hello = _client_hello()
    context = ssl.create_default_context(cadata=AUTHORITY.pem)
    waits = []
    for number in range(size):
        try:
            _connect(scene, 1).sendall(hello)
        except OSError:
            pass  # an older one of ours was cut off; so is this one, perhaps
        if number % (size // HONEST_HANDSHAKES) == size // HONEST_HANDSHAKES - 1:
            began = time.monotonic()
            with context.wrap_socket(_connect(scene, 1), server_hostname="localhost") as shaken:
                shaken.sendall(frame(MetadataRequest(topics=[]), ApiKey.METADATA, 9))
                assert shaken.recv(1), "an honest handshake"
            waits.append(time.monotonic() - began)
    scene.watch(WATCHED_SECONDS)
    return f"{size} handshakes begun; honest ones meanwhile take up to {max(waits) * 1000:.0f} ms"


def _passwords(scene: Scene, _: None, size: int) -> str:
    guess = frame(SaslHandshakeRequest(mechanism="PLAIN"), ApiKey.SASL_HANDSHAKE, 1)
    guess += frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0guess"), ApiKey.SASL_AUTHENTICATE, 1)
    for _number in range(size):
        _connect(scene, 2).sendall(guess * 20)  # after the first one is refused, nothing is looked at
    scene.watch(WATCHED_SECONDS)
    return f"{size} connections with 20 wrong passwords each"


def _much(scene: Scene, _: None, size: int) -> str:
    refused = 0
    for _number in range(size):
        connection = _connect(scene, 2)
        try:
            connection.sendall(SIZE.pack(100 * 1024 * 1024) + bytes(8 << 20))
            refused += connection.recv(1) == b""
        except OSError:
            refused += 1
    assert refused == size, f"{refused} of {size} were cut off"
    return f"{size} frames of 100 MB before the login, all cut off"


CLIENTS = (
    HostileClient("TLS handshakes begun and left", _handshakes, size=9_000, small=400, settings=SETTINGS),
    HostileClient("passwords guessed", _passwords, size=3_000, small=200, settings=SETTINGS),
    HostileClient("much before the login", _much, size=200, small=20, settings=SETTINGS),
)
