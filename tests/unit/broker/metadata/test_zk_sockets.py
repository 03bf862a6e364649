"""What has come from ZooKeeper is read at once, and given in the pieces that kazoo asks for."""

import select
import socket
import ssl
import threading

import pytest

from oncelog_broker.metadata.zk_sockets import ReadAhead, wait
from oncelog_broker.metadata.zk_wake_ups import WakeUps
from oncelog_broker.runtime.clock import SystemClock

SECONDS = 60.0


class Counted:
    """A socket whose reads are counted."""

    def __init__(self, connection):
        self.connection = connection
        self.reads = 0

    def recv(self, size):
        self.reads += 1
        return self.connection.recv(size)

    def __getattr__(self, name):
        return getattr(self.connection, name)


@pytest.fixture
def ends():
    ours, server = socket.socketpair()
    ours.setblocking(False)
    client, wake_ups = ReadAhead(Counted(ours)), WakeUps()
    yield client, server, wake_ups
    for each in (client, server, wake_ups):
        each.close()


def waited(reading, seconds=SECONDS, writing=()):
    return wait(SystemClock().uptime, reading, writing, seconds)


def test_what_has_come_is_read_once_and_given_in_pieces(ends):
    client, server, wake_ups = ends
    server.sendall(b"fourpiece" * 100)
    for _ in range(100):
        assert waited([client, wake_ups])[0] == [client]
        assert client.recv(4) == b"four"
        assert waited([client])[0] == [client]
        assert client.recv(5) == b"piece"
    assert client.pending() == 0
    assert client._connection.reads == 1


def test_what_is_there_asks_the_system_for_nothing_and_hides_no_request(ends, monkeypatch):
    client, server, wake_ups = ends
    server.sendall(b"onetwo")
    assert waited([client])[0] == [client]
    monkeypatch.setattr(select, "poll", None)
    assert waited([client, wake_ups], None)[0] == [client]
    wake_ups.send(b"\0")
    assert waited([client, wake_ups], None)[0] == [client, wake_ups]
    assert client.recv(3) == b"one"
    wake_ups.recv(1)
    assert waited([client, wake_ups], None)[0] == [client]
    assert client.recv(100) == b"two"


def test_an_answer_that_comes_in_two_parts_is_waited_for_twice(ends):
    client, server, _ = ends
    server.sendall(b"half")
    assert waited([client])[0] == [client]
    assert client.recv(100) == b"half"
    assert waited([client], 0)[0] == []
    with pytest.raises(ssl.SSLWantReadError):
        client.recv(1)
    sending = threading.Timer(0.01, server.sendall, [b"the rest"])
    sending.start()
    assert waited([client])[0] == [client]
    assert client.recv(100) == b"the rest"
    sending.join()


def test_what_came_before_the_end_is_given_before_it(ends):
    client, server, _ = ends
    server.sendall(b"last")
    server.close()
    assert waited([client])[0] == [client]
    assert client.recv(2) == b"la"
    assert client.recv(2) == b"st"
    assert waited([client])[0] == [client]
    assert client.recv(1) == b""
    assert waited([client])[0] == [client], "and once more"
    assert client.recv(1) == b""


def test_a_request_ends_the_wait_for_answers(ends):
    client, _, wake_ups = ends
    sending = threading.Timer(0.01, wake_ups.send, [b"\0"])
    sending.start()
    assert waited([client, wake_ups])[0] == [wake_ups]
    sending.join()


def test_nothing_that_comes_ends_the_wait_with_its_time(ends):
    client, _, wake_ups = ends
    assert waited([client, wake_ups], 0.005) == ([], [], [])


def test_room_to_write_is_waited_for(ends):
    client, server, _ = ends
    assert waited([], writing=[client]) == ([], [client], [])
    while waited([], 0, [client])[1]:
        client.send(bytes(1 << 20))
    reading = threading.Timer(
        0.01, lambda: [server.recv(1 << 20) for _ in range(64) if select.select([server], [], [], 0)[0]]
    )
    reading.start()
    assert waited([], writing=[client])[1] == [client]
    reading.join()


def test_a_connection_that_breaks_says_so():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()
    near.setblocking(False)
    broken = ReadAhead(near)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    far.close()
    with pytest.raises(ConnectionResetError):
        waited([broken])
    broken.close()
    with pytest.raises(ValueError, match="negative"):
        waited([broken])


def test_another_thread_can_end_it(ends):
    client, _, _ = ends
    ending = threading.Timer(0.01, client.shutdown, [socket.SHUT_RDWR])
    ending.start()
    assert waited([client])[0] == [client]
    assert client.recv(1) == b""
    ending.join()
