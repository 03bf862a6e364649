"""The socket replacement for kazoo: it is readable when it has data for kazoo, and never sends without encryption."""

import selectors
import socket
import ssl
import threading

import pytest
from tests.support.certificates import Certificate

from oncelog_broker.metadata.stores.zookeeper.sockets import RECORD_BYTES, ReadAhead, select
from oncelog_broker.metadata.stores.zookeeper.tls import connected
from oncelog_broker.metadata.stores.zookeeper.wake_ups import WakeUps
from oncelog_broker.runtime.clock import SystemClock

SECONDS = 60.0


class Server:
    """The server's end of the connection, whose TLS records the test sends one by one."""

    def __init__(self, context):
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.raw = None

    def serve(self, listening):
        self.raw, _ = listening.accept()
        self.raw.settimeout(SECONDS)
        while True:
            try:
                self.tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                self.raw.sendall(self.outgoing.read())
                self.incoming.write(self.raw.recv(65536))

    def session_tickets(self):
        """Return the TLS 1.3 session tickets, which a server sends after the handshake."""
        return self.outgoing.read()

    def record(self, data):
        self.tls.write(data)
        return self.outgoing.read()


@pytest.fixture
def ends(tmp_path):
    authority = Certificate.authority()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.issue(("CN", "zookeeper")).store(tmp_path / "server.pem"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Server(context)
        serving = threading.Thread(target=server.serve, args=[listening])
        serving.start()
        trusting = ssl.create_default_context(cadata=authority.pem)
        client = connected(listening.getsockname(), "localhost", SECONDS, trusting)
        serving.join(SECONDS)
    client.setblocking(False)
    other = WakeUps()
    yield client, server, other
    for each in (client, server.raw, other):
        each.close()


def wait(reading, seconds=SECONDS):
    return select(SystemClock().uptime, reading, [], seconds)[0]


def arrived(client):
    """Wait until the socket has received bytes."""
    with selectors.DefaultSelector() as selector:
        selector.register(client, selectors.EVENT_READ)
        assert selector.select(SECONDS)


def test_tls_control_records_make_nothing_readable(ends):
    client, server, other = ends
    server.raw.sendall(server.session_tickets())
    arrived(client)
    assert wait([client, other], 0) == []
    other.send(b"a request is to be sent")
    assert wait([client, other]) == [other]


def test_half_a_record_makes_nothing_readable(ends):
    client, server, other = ends
    tickets, record = server.session_tickets(), server.record(b"an answer")
    server.raw.sendall(tickets + record[:10])
    arrived(client)
    assert wait([client], 0) == []
    other.send(b"x")
    assert wait([client, other]) == [other]
    server.raw.sendall(record[10:])
    assert wait([client]) == [client]
    assert client.recv(100) == b"an answer"


def test_all_records_that_have_come_are_read_at_once_and_hide_nobody_else(ends):
    client, server, other = ends
    server.raw.sendall(server.session_tickets() + server.record(b"onetwo") + server.record(b"three"))
    assert wait([client]) == [client]
    assert client.recv(3) == b"one"
    assert client.pending() == len(b"twothree")
    assert wait([client, other]) == [client], "nothing more comes, and there is more"
    other.send(b"x")
    assert wait([client, other]) == [client, other]
    assert client.recv(100) == b"twothree"
    assert wait([client], 0) == []
    with pytest.raises(ssl.SSLWantReadError):
        client.recv(1)


def test_no_decrypted_bytes_stay_unnoticed_in_openssl(ends):
    """The server sends more bytes than one read returns, in TLS records of different lengths."""
    client, server, other = ends
    sent = b"".join(bytes([65 + each]) * length for each, length in enumerate([1, RECORD_BYTES, 5000] * 9))
    records = (server.record(bytes([65 + each]) * length) for each, length in enumerate([1, RECORD_BYTES, 5000] * 9))
    everything = b"".join([server.session_tickets(), *records])
    sending = threading.Thread(target=server.raw.sendall, args=[everything])
    sending.start()
    received = b""
    while len(received) < len(sent):
        assert wait([client, other]) == [client]
        received += client.recv(7000)
    sending.join(SECONDS)
    assert received == sent
    assert wait([client], 0) == []


def test_the_end_of_a_tls_connection_is_readable(ends):
    client, server, _ = ends
    server.raw.sendall(server.session_tickets())
    server.raw.close()
    assert wait([client]) == [client]
    assert client.recv(10) == b""
    assert wait([client]) == [client]


def test_a_connection_that_another_thread_ends_keeps_its_encryption(ends):
    """`ssl.SSLSocket.shutdown` removes the encryption first, so later bytes would be sent and read as plain text."""
    client, server, _ = ends
    server.raw.sendall(server.session_tickets() + server.record(b"an answer"))
    arrived(client)
    client.shutdown(socket.SHUT_WR)
    with pytest.raises(OSError, match=r"."):
        client.send(b"digest brokers:password")
    assert wait([client]) == [client]
    assert client.recv(100) == b"an answer"
    received = b""
    while piece := server.raw.recv(65536):
        received += piece
    assert b"password" not in received


def test_a_tls_write_waits_for_the_socket(ends):
    client, _, _ = ends
    assert select(SystemClock().uptime, [], [client], SECONDS)[1] == [client]
    assert isinstance(client, ReadAhead)
