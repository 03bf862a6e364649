"""TLS between a socket and a connection: limits on received bytes, and the order of sent bytes."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from tests.support.certificates import Certificate
from tests.support.wires import RecordingDispatcher, RecordingTransport, frame, limits, until

from oncelog_broker.runtime.loop_budget import LoopBudget
from oncelog_broker.security.principal import ANONYMOUS
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_broker.server.net.connections import Connections
from oncelog_broker.server.net.memory_budget import Holding
from oncelog_broker.server.net.tls_handshakes import TlsHandshakes
from oncelog_broker.server.net.tls_transport import OPENSSL_BYTES, RECEIVE_BYTES, TlsTransport

NOISE: Final = b"\x17" * 4096


class Watched:
    """A `MemoryBIO` that records the largest number of bytes it ever held."""

    def __init__(self, inner: ssl.MemoryBIO) -> None:
        self._inner = inner
        self.most = 0

    @property
    def pending(self) -> int:
        self.most = max(self.most, self._inner.pending)
        return self._inner.pending

    def write(self, data: memoryview) -> int:
        written = self._inner.write(data)
        self.most = max(self.most, self._inner.pending)
        return written

    def read(self) -> bytes:
        self.most = max(self.most, self._inner.pending)
        return self._inner.read()


class SecuredWire:
    """A TLS connection with both of its ends, after the handshake."""

    def __init__(self, directory: Path, rates: Any = None, **changes: Any) -> None:
        authority = Certificate.authority()
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(authority.issue(("CN", "broker")).store(directory / "broker.pem"))
        client = ssl.create_default_context(cadata=authority.pem)
        security: Any = SimpleNamespace(
            name="SSL", tls=SimpleNamespace(server=server), principal_of=lambda _: ANONYMOUS
        )
        self.dispatcher = RecordingDispatcher()
        self.connections = Connections(limits(**changes), LoopBudget(lambda: 0.0, 1.0), rates)
        self.connection: BrokerConnection | None = None
        self.socket = RecordingTransport()
        self.transport = TlsTransport(security, TlsHandshakes(), self.connections, self._make)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def _make(self, principal: Any) -> BrokerConnection:
        self.connection = BrokerConnection(
            self.dispatcher.handle, self.connections, "SSL", principal, is_encrypted=True
        )
        return self.connection

    async def shake(self) -> None:
        self.transport.connection_made(self.socket)
        while True:
            try:
                self.client.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self.exchange()
        await self.exchange()

    async def exchange(self) -> None:
        self.receive(self.outgoing.read())
        for _ in range(3):
            await asyncio.sleep(0)
        self.incoming.write(b"".join(self.socket.written))
        self.socket.written.clear()

    def receive(self, data: bytes) -> bytes:
        """Deliver as many bytes of `data` as the transport reads, as a socket would. Returns the bytes that were not
        read.
        """
        while data and not self.socket.paused:
            room = self.transport.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self.transport.buffer_updated(size)
        return data

    def send(self, data: bytes) -> bytes:
        self.client.write(data)
        return self.receive(self.outgoing.read())

    def watch(self) -> tuple[Watched, Watched]:
        """Replace both buffers with ones that record their size from now on."""
        transport: Any = self.transport
        transport._incoming, transport._outgoing = Watched(transport._incoming), Watched(transport._outgoing)
        return transport._incoming, transport._outgoing

    @property
    def left(self) -> int:
        """The number of received bytes that have not reached the connection."""
        assert self.transport._tls is not None
        return self.transport._incoming.pending + self.transport._tls.pending()


async def test_bytes_after_the_end_of_a_tls_stream_are_dropped(tmp_path: Path) -> None:
    """No memory budget counts the remaining bytes, and no code would ever read these bytes."""
    wire = SecuredWire(tmp_path)
    await wire.shake()
    wire.send(frame(b"M" * 8) + frame(b"A" * 8))
    with pytest.raises(ssl.SSLWantReadError):
        wire.client.unwrap()
    wire.receive(wire.outgoing.read())
    for _ in range(100):
        wire.receive(NOISE)
    assert wire.transport._incoming.pending <= len(NOISE)
    assert not wire.socket.closed


async def test_an_answer_that_comes_when_the_connection_is_closing_cuts_off_none_before_it(tmp_path: Path) -> None:
    """The socket's buffer still has some earlier responses."""
    wire = SecuredWire(tmp_path)
    await wire.shake()
    wire.send(frame(b"A" * 8) + frame(b"O" * 8))
    assert wire.connection is not None
    wire.connection.shut()
    assert wire.socket.closed
    slot, _ = wire.dispatcher.waiting.pop()
    wire.connection.respond([b"late"], slot)
    wire.connection.finish(slot)
    assert not wire.socket.aborted


async def test_a_refused_connection_has_no_handshake(tmp_path: Path) -> None:
    """uvloop reads the client's first bytes even if the transport was paused immediately."""
    wire = SecuredWire(tmp_path, SimpleNamespace(count=lambda _: None, refuse_if_over_rate=lambda *_: True))
    wire.transport.connection_made(wire.socket)
    with pytest.raises(ssl.SSLWantReadError):
        wire.client.do_handshake()
    await wire.exchange()
    assert wire.incoming.pending == 0, "nothing was answered"
    wire.transport.connection_lost(None)
    assert (len(wire.connections), wire.connections.limits.connections) == (0, 0)


async def test_tls_records_of_openssl_itself_are_sent_at_once(tmp_path: Path) -> None:
    """A TLS 1.2 client waits for the refusal of its renegotiation; if refusals were not sent, repeated renegotiations
    would fill the buffer.
    """
    wire = SecuredWire(tmp_path)
    await wire.shake()
    wire.transport._outgoing.write(b"alert")  # Python's own TLS client cannot request a renegotiation
    wire.send(frame(b"A" * 8)[:-1])
    assert wire.socket.written == [b"alert"]


async def test_little_stays_in_openssl_when_a_connection_stops_reading(tmp_path: Path) -> None:
    """The request waits. Further bytes of the client that do not fit into the connection's buffer are counted by no
    memory budget.
    """
    wire = SecuredWire(tmp_path)
    await wire.shake()
    requests = [frame(b"A" + bytes([number % 256]) * (number % 300 + 8)) for number in range(2000)]
    unread = wire.send(frame(b"M" * 8) + b"".join(requests))
    assert wire.socket.paused
    assert len(unread) > RECEIVE_BYTES
    assert wire.left <= OPENSSL_BYTES
    assert wire.connection is not None
    while len(wire.dispatcher.frames) < 1 + len(requests):
        if wire.dispatcher.waiting:
            slot, _ = wire.dispatcher.waiting.pop()
            wire.connection.finish(slot)
        await asyncio.sleep(0)
        unread = wire.receive(unread)
    assert wire.dispatcher.frames[1:] == [request[4:] for request in requests]


async def test_little_stays_in_openssl_when_the_memory_budget_is_full(tmp_path: Path) -> None:
    wire = SecuredWire(tmp_path, queued_max_request_bytes=150_000)
    await wire.shake()
    first, second = (Holding(wire.connections.limits.requests, "127.0.0.1") for _ in range(2))
    assert first.hold(80_000)
    assert second.hold(100_000), "one at a time may go beyond its share"
    data = frame(b"A" * 900_000)
    unread = wire.send(data)
    assert wire.socket.paused
    assert len(unread) > RECEIVE_BYTES
    assert wire.left <= OPENSSL_BYTES
    first.owe(0)
    second.owe(0)
    await until(lambda: not wire.socket.paused)
    while unread:
        unread = wire.receive(unread)
        await asyncio.sleep(0)
    assert wire.dispatcher.frames == [data[4:]]


async def test_openssl_gets_little_at_a_time(tmp_path: Path) -> None:
    """The buffers of OpenSSL never shrink, and no memory budget counts these buffers."""
    wire = SecuredWire(tmp_path)
    await wire.shake()
    incoming, outgoing = wire.watch()
    for size in (8, 20_000, 300_000, 900_000, 900_000):
        data = frame(b"N" + b"x" * (size - 1))
        assert wire.send(data) == b""
        assert wire.dispatcher.frames.pop() == data[4:]
    assert incoming.most <= OPENSSL_BYTES
    answers: list[list[bytes]] = [[b"a" * 100], [b"b" * 300_000], [b"c" * 900] * 300, [b"d", b"e" * 70_000, b"f" * 10]]
    for answer in answers:
        wire.socket.written.clear()
        wire.transport.writelines(answer)
        wire.incoming.write(b"".join(wire.socket.written))
        expected = b"".join(answer)
        read = b""
        while len(read) < len(expected):
            read += wire.client.read(len(expected))
        assert read == expected
        assert len(wire.socket.written) == 1, "given to the socket at once"
    assert outgoing.most <= OPENSSL_BYTES
