"""TLS between a socket and a connection: what a client may send, and what becomes of what is to leave."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from tests.support.certificates import Certificate
from tests.support.wires import RecordingDispatcher, RecordingTransport, frame, limits

from oncelog_broker.runtime.turns import TurnBudget
from oncelog_broker.security.principal import ANONYMOUS
from oncelog_broker.server.connection import BrokerConnection
from oncelog_broker.server.connections import Connections
from oncelog_broker.server.handshakes import Handshakes
from oncelog_broker.server.secured import SecuredTransport

NOISE: Final = b"\x17" * 4096


class SecuredWire:
    """A TLS connection and both its ends, with the handshake done."""

    def __init__(self, directory: Path, rates: Any = None) -> None:
        authority = Certificate.authority()
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(authority.issue(("CN", "broker")).store(directory / "broker.pem"))
        client = ssl.create_default_context(cadata=authority.pem)
        security: Any = SimpleNamespace(
            name="SSL", tls=SimpleNamespace(server=server), principal_of=lambda _: ANONYMOUS
        )
        self.dispatcher = RecordingDispatcher()
        self.connections = Connections(limits(), TurnBudget(lambda: 0.0, 1.0), rates)
        self.connection: BrokerConnection | None = None
        self.socket = RecordingTransport()
        self.transport = SecuredTransport(security, Handshakes(), self.connections, self._make)
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

    def receive(self, data: bytes) -> None:
        """Feed `data` as a socket would, as far as it is read."""
        while data and not self.socket.paused:
            room = self.transport.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self.transport.buffer_updated(size)

    def send(self, data: bytes) -> None:
        self.client.write(data)
        self.receive(self.outgoing.read())


async def test_what_comes_behind_the_end_is_not_kept(tmp_path: Path) -> None:
    """It is in no ledger, and nothing would ever read it."""
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
    """The socket still has some of those."""
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


async def test_nobody_who_is_turned_away_has_a_handshake(tmp_path: Path) -> None:
    """Though the loop reads what he sends, which uvloop does however early it is told not to."""
    wire = SecuredWire(tmp_path, SimpleNamespace(count=lambda _: None, turns_away=lambda *_: True))
    wire.transport.connection_made(wire.socket)
    with pytest.raises(ssl.SSLWantReadError):
        wire.client.do_handshake()
    await wire.exchange()
    assert wire.incoming.pending == 0, "nothing was answered"
    wire.transport.connection_lost(None)
    assert (len(wire.connections), wire.connections.limits.connections) == (0, 0)


async def test_what_openssl_itself_says_leaves_at_once(tmp_path: Path) -> None:
    """That a client of TLS 1.2 may not negotiate again: it waits for that, and one that asks on has it gather."""
    wire = SecuredWire(tmp_path)
    await wire.shake()
    wire.transport._outgoing.write(b"alert")  # Python's own TLS cannot ask for it
    wire.send(frame(b"A" * 8)[:-1])
    assert wire.socket.written == [b"alert"]
