"""Clients that never complete a login: they abandon TLS handshakes, guess passwords, and send many bytes before the
login.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from processor_times import ThreadTimes, Times, net_of_other_work, passed
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
THEIR_ADDRESS, HONEST_ADDRESS = "127.0.0.1", "127.0.0.2"
HONEST_SECONDS = 30.0
LONG_NAME = 500_000
BEGINNERS = 2
AUTHORITY = Certificate.authority()
SERVER = AUTHORITY.issue(("CN", "broker"))
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "ssl.keystore.key": SERVER.key_pem(),
    "ssl.keystore.certificate.chain": SERVER.pem,
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "sasl.scram.first.users": "alice=secret",
    "max.connections": "20000",
    "max.connections.per.ip": "20000",  # the honest client connects from the same address as the hostile client
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": 'Plain required user_alice="secret";',
}


def _port(scene: Scene, listener: int) -> int:
    return int(re.findall(r"127\.0\.0\.1:(\d+)", scene.broker.start_line)[listener])


def _connect(scene: Scene, listener: int) -> socket.socket:
    return scene.opened(RawClient(_port(scene, listener), TIMEOUT_SECONDS)).socket


def _opened(scene: Scene, connection: socket.socket) -> socket.socket:
    scene.at_the_end(connection.close)
    return connection


def with_tls(scene: Scene) -> ssl.SSLSocket:
    """Open a connection to the TLS listener."""
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
    """Begin handshakes as fast as possible, and never finish them. During the attack an honest client must still be
    able to connect.
    """
    hello, port = _client_hello(), _port(scene, 1)
    waits: dict[str, list[float]] = {THEIR_ADDRESS: [], HONEST_ADDRESS: []}
    with ThreadPoolExecutor(BEGINNERS) as pool:
        beginning = [pool.submit(_begin_and_leave, scene, port, hello, size // BEGINNERS) for _ in range(BEGINNERS)]
        while not all(each.done() for each in beginning) or len(waits[HONEST_ADDRESS]) < HONEST_HANDSHAKES:
            waits[HONEST_ADDRESS].append(_honest_handshake(scene, port, HONEST_ADDRESS))
            with suppress(OSError):  # a client whose address has thousands of other connections must wait with them
                waits[THEIR_ADDRESS].append(_honest_handshake(scene, port, THEIR_ADDRESS))
    scene.watch(WATCHED_SECONDS)
    others, theirs = waits[HONEST_ADDRESS], waits[THEIR_ADDRESS]
    same = f"{len(theirs)} of {len(others)} from the same address" + (
        f", in up to {max(theirs):.1f} s" if theirs else ""
    )
    return (
        f"{size} handshakes begun and left; of honest ones meanwhile {len(others)} are done in up to "
        f"{max(others) * 1000:.0f} ms from another address, and {same}"
    )


def _begin_and_leave(scene: Scene, port: int, hello: bytes, count: int) -> None:
    for _number in range(count):
        try:
            _opened(scene, socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)).sendall(hello)
        except OSError:
            pass  # the broker had already closed the connection


def _honest_handshake(scene: Scene, port: int, address: str) -> float:
    """Return how many seconds the broker took to respond to a first request, not counting the time in which the broker
    or this client had no processor.
    """
    context = ssl.create_default_context(cadata=AUTHORITY.pem)
    broker, ours = scene.broker.pid, threading.get_native_id()
    threads, own = ThreadTimes(broker), ThreadTimes(os.getpid())
    before, own_before, began = threads.now(), own.now(), time.monotonic_ns()
    plain = socket.create_connection(("127.0.0.1", port), HONEST_SECONDS, source_address=(address, 0))
    with context.wrap_socket(plain, server_hostname="localhost") as shaken:
        shaken.sendall(frame(MetadataRequest(topics=[]), ApiKey.METADATA, 9))
        assert shaken.recv(1), "an honest handshake"
    wall = time.monotonic_ns() - began
    loop, prober = passed(before, threads.now()), passed(own_before, own.now())
    return net_of_other_work(wall, prober.get(ours, Times()), loop.get(broker, Times()), 0) / 1e9


def _passwords(scene: Scene, _: None, size: int) -> str:
    guess = frame(SaslHandshakeRequest(mechanism="PLAIN"), ApiKey.SASL_HANDSHAKE, 1)
    guess += frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0guess"), ApiKey.SASL_AUTHENTICATE, 1)
    for _number in range(size):
        # after the first refusal, the broker reads nothing more from this connection
        _connect(scene, 2).sendall(guess * 20)
    scene.watch(WATCHED_SECONDS)
    return f"{size} connections with 20 wrong passwords each"


def _scram(scene: Scene, _: None, size: int) -> str:
    """The user names have maximal length, because the broker hashes each name."""
    begun = frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), ApiKey.SASL_HANDSHAKE, 1)
    name = b"n" * LONG_NAME
    begun += frame(SaslAuthenticateRequest(auth_bytes=b"n,,n=%b,r=nonce" % name), ApiKey.SASL_AUTHENTICATE, 1)
    for _number in range(size):
        _connect(scene, 2).sendall(begun)
    scene.watch(WATCHED_SECONDS)
    return f"{size} logins by SCRAM begun with names of {LONG_NAME:,} bytes, and left"


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
    HostileClient("TLS handshakes begun and left", _handshakes, size=10_000, small=400, settings=SETTINGS),
    HostileClient("passwords guessed", _passwords, size=3_000, small=200, settings=SETTINGS),
    HostileClient("logins by SCRAM begun and left", _scram, size=300, small=30, settings=SETTINGS),
    HostileClient("much before the login", _much, size=200, small=20, settings=SETTINGS),
)
