"""Received bytes are read immediately; the reader gets each byte exactly once, and never waits for bytes that have
already arrived.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from types import SimpleNamespace

import pytest
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import reply_header_struct

from oncelog_broker.metadata.stores.zookeeper import sockets as zk_sockets
from oncelog_broker.metadata.stores.zookeeper.session import _Handler
from oncelog_broker.metadata.stores.zookeeper.sockets import READ_BYTES, ReadAhead, select
from oncelog_broker.metadata.stores.zookeeper.wake_ups import WakeUps
from oncelog_broker.runtime.clock import SystemClock

SECONDS = 60.0
LITTLE = 0.02
"""Seconds of a short delay."""


class Counting(socket.socket):
    """Counts how many times a socket is read."""

    reads = 0

    def recv(self, size, *flags):
        self.reads += 1
        return super().recv(size, *flags)


@pytest.fixture
def ends():
    near, server = socket.socketpair()
    counted = Counting(fileno=near.detach())
    counted.setblocking(False)
    wake_ups = WakeUps()
    yield ReadAhead(counted), counted, server, wake_ups
    for each in (counted, server, wake_ups):
        each.close()


def wait(reading, seconds=SECONDS, writing=()):
    readable, writable = select(SystemClock().uptime, reading, writing, seconds)
    return [*readable, *writable]


class Kazoo:
    """Kazoo's own code for reading responses, over one of oncelog's sockets."""

    def __init__(self, connection):
        handler = _Handler(None, 1.0, None, SystemClock())
        self.reader = ConnectionHandler(SimpleNamespace(handler=handler), None)
        self.reader._socket = connection

    def answer(self, seconds=SECONDS):
        """Return the xid and the content of one response."""
        header, read, offset = self.reader._read_header(seconds)
        return header.xid, read[offset:]


def answer(xid, content):
    body = reply_header_struct.pack(xid, 7, 0) + content
    return struct.pack(">i", len(body)) + body


def test_several_answers_are_one_read_and_no_wait(ends, monkeypatch):
    connection, counted, server, wake_ups = ends
    server.sendall(b"".join(answer(xid, b"x" * xid) for xid in range(1, 101)))
    assert wait([connection, wake_ups]) == [connection]
    kazoo = Kazoo(connection)
    # The test fails if the code polls a descriptor.
    monkeypatch.setattr(zk_sockets, "_wait", None)
    for xid in range(1, 101):
        assert wait([connection, wake_ups]) == [connection]
        assert kazoo.answer() == (xid, b"x" * xid)
    assert counted.reads == 1
    assert not connection.is_readable()
    assert not connection.pending()


@pytest.mark.parametrize("cut", range(1, len(answer(1, b"content"))))
def test_an_answer_that_comes_in_two_parts_is_waited_for(ends, cut):
    connection, _, server, _ = ends
    whole = answer(1, b"content")
    server.sendall(answer(2, b"") + whole[:cut])
    kazoo = Kazoo(connection)
    assert kazoo.answer() == (2, b"")
    later = threading.Timer(LITTLE, server.sendall, [whole[cut:] + answer(3, b"")])
    later.start()
    assert kazoo.answer() == (1, b"content")
    assert kazoo.answer() == (3, b"")
    later.join(SECONDS)


def test_an_answer_that_is_longer_than_a_read_is_put_together(ends):
    connection, counted, server, _ = ends
    content = bytes(range(256)) * (3 * READ_BYTES // 256)
    sending = threading.Thread(target=server.sendall, args=[answer(1, content) + answer(2, b"next")])
    sending.start()
    kazoo = Kazoo(connection)
    assert kazoo.answer() == (1, content)
    assert kazoo.answer() == (2, b"next")
    sending.join(SECONDS)
    assert counted.reads >= 3


def test_half_an_answer_is_a_timeout(ends):
    connection, _, server, _ = ends
    server.sendall(answer(1, b"content")[:10])
    with pytest.raises(KazooTimeoutError):
        Kazoo(connection).answer(LITTLE)


def test_bytes_received_before_the_end_are_returned_before_the_end(ends):
    connection, _, server, _ = ends
    server.sendall(answer(1, b"one") + answer(2, b"two") + answer(3, b"three")[:9])
    server.close()
    kazoo = Kazoo(connection)
    assert kazoo.answer() == (1, b"one")
    assert wait([connection]) == [connection]
    assert kazoo.answer() == (2, b"two")
    with pytest.raises(ConnectionDropped):
        kazoo.answer()
    assert wait([connection]) == [connection], "the end stays"
    assert connection.recv(10) == b""


def test_another_thread_ends_the_connection_while_kazoo_waits(ends):
    connection, _, _, wake_ups = ends
    later = threading.Timer(LITTLE, connection.shutdown, [socket.SHUT_RDWR])
    later.start()
    assert wait([connection, wake_ups]) == [connection]
    assert connection.recv(10) == b""
    later.join(SECONDS)


def test_an_error_comes_after_what_was_read(ends):
    connection, _, server, _ = ends
    server.sendall(b"read")
    assert wait([connection]) == [connection]
    connection._connection = SimpleNamespace(recv=lambda size: (_ for _ in ()).throw(ConnectionResetError()))
    assert connection.recv(10) == b"read"
    with pytest.raises(ConnectionResetError):
        connection.recv(10)


def test_an_idle_socket_is_waited_for_until_the_timeout(ends):
    connection, counted, _, wake_ups = ends
    uptime = SystemClock().uptime
    began = uptime()
    assert wait([connection, wake_ups], LITTLE) == []
    assert uptime() - began >= LITTLE
    assert not counted.reads
    with pytest.raises(ssl.SSLWantReadError):  # kazoo waits for more data only after this error
        connection.recv(1)


def test_requests_are_seen_beside_answers_that_are_there(ends):
    connection, _, server, wake_ups = ends
    server.sendall(b"two answers")
    assert wait([connection, wake_ups]) == [connection]
    assert connection.recv(3) == b"two"
    wake_ups.send(b"\0")
    assert wait([connection, wake_ups]) == [connection, wake_ups]
    assert wake_ups.recv(1)
    assert wait([connection, wake_ups]) == [connection]
    assert connection.recv(100) == b" answers"
    later = threading.Timer(LITTLE, wake_ups.send, [b"\0"])
    later.start()
    assert wait([connection, wake_ups]) == [wake_ups]
    later.join(SECONDS)


def test_a_send_happens_at_once_and_waits_only_if_the_socket_is_full(ends):
    connection, _, server, _ = ends
    assert wait([], 0, [connection]) == [connection]
    sent = 0
    with pytest.raises(ssl.SSLWantWriteError):  # kazoo retries only after this error
        while True:
            sent += connection.send(b"x" * READ_BYTES)
    assert wait([], LITTLE, [connection]) == []
    reading = threading.Thread(target=lambda: [server.recv(READ_BYTES) for _ in range(sent // READ_BYTES)])
    reading.start()
    assert wait([], SECONDS, [connection]) == [connection]
    assert connection.send(b"x") == 1
    reading.join(SECONDS)


def test_kazoo_sends_all_of_a_long_request(ends):
    connection, _, server, _ = ends
    request = bytes(range(256)) * (32 * READ_BYTES // 256)
    received = []

    def read():
        while sum(map(len, received)) < len(request):
            received.append(server.recv(1 << 20))

    reading = threading.Thread(target=read)
    reading.start()
    Kazoo(connection).reader._write(request, SECONDS)
    reading.join(SECONDS)
    assert b"".join(received) == request
