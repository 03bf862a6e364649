"""`zk_client` uses undocumented names of kazoo; these tests fail with a release of kazoo that renames one of them."""

import asyncio
import inspect
import socket
from types import SimpleNamespace

from kazoo.client import CLOSED_STATES, KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol import connection
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect, Transaction
from kazoo.protocol.states import KeeperState, WatchedEvent

from oncelog_broker.metadata.stores.store import Create
from oncelog_broker.metadata.stores.zookeeper import acls as zk_acls
from oncelog_broker.metadata.stores.zookeeper import sockets as zk_sockets
from oncelog_broker.metadata.stores.zookeeper.requests import AddWatch, Multi, MultiRead
from oncelog_broker.metadata.stores.zookeeper.session import ZooKeeperSession
from oncelog_broker.runtime.clock import SystemClock


class Listener:
    def __init__(self):
        self.heard = []
        self.changed = asyncio.Event()

    def on_connected(self, session, connected):
        self._hear("connected", connected)

    def on_disconnected(self, session):
        self._hear("disconnected")

    def on_over(self, session):
        self._hear("over")

    def on_changed(self, path):
        self._hear("changed", path)

    def _hear(self, *what):
        self.heard.append(what)
        self.changed.set()

    async def until(self, name):
        async with asyncio.timeout(60):
            while not (found := [each for each in self.heard if each[0] == name]):
                self.changed.clear()
                await self.changed.wait()
        return found[0]


async def test_the_table_of_watches_is_looked_up_by_path_and_dropped_by_these_names():
    """An event of a recursive watch names a path that was not watched itself. oncelog's table of watches therefore
    returns the same callback for every path.
    """
    listener = Listener()
    session = ZooKeeperSession("127.0.0.1:1", 1.0, listener, SystemClock())
    client = session._client
    assert "client._data_watchers.pop(path, [])" in inspect.getsource(ConnectionHandler._read_watch_event)
    assert inspect.getsource(KazooClient._reset).count("self._reset_watchers()") == 1
    for _ in range(2):
        (callback,) = client._data_watchers.pop("/any", [])
        callback(WatchedEvent("CHANGED", "CONNECTED", "/any"))
        client._reset_watchers()
    assert listener.heard == [("changed", "/any")] * 2


async def test_answers_and_events_have_one_way_into_the_loop():
    client = ZooKeeperSession("127.0.0.1:1", 1.0, Listener(), SystemClock())._client
    assert client.handler.running
    order = []
    result = client.handler.async_result()
    result.rawlink(lambda _: order.append("answer"))
    client.handler.dispatch_callback(SimpleNamespace(func=order.append, args=("event",)))
    result.set("x")
    client.handler.dispatch_callback(SimpleNamespace(func=order.append, args=("later event",)))
    assert order == []
    await asyncio.sleep(0)
    assert order == ["event", "answer", "later event"]
    client.handler.stop()
    assert client.handler.running, "after a stop answers would be told in kazoo's thread"


def test_a_closed_loop_does_not_raise_in_kazoos_thread():
    """Events that arrive after the loop is closed are discarded."""
    late = []

    async def make():
        listener = Listener()
        return ZooKeeperSession("127.0.0.1:1", 1.0, listener, SystemClock()), listener

    session, listener = asyncio.run(make())
    session._client.handler.dispatch_callback(SimpleNamespace(func=late.append, args=("answer",)))
    session._on_state("SUSPENDED")
    session._client._session_callback(KeeperState.CLOSED)
    assert (late, listener.heard) == ([], [])


def test_the_handshake_goes_through_invoke_and_answers_what_is_granted():
    source = inspect.getsource(ConnectionHandler._connect)
    assert source.index("self._invoke(") < source.index("client._session_callback(KeeperState.CONNECTED)")
    assert list(inspect.signature(ConnectionHandler._invoke).parameters) == ["self", "timeout", "request", "xid"]
    assert {"time_out", "session_id", "passwd"} <= set(Connect._fields)


def test_the_names_that_a_session_reaches_for_are_there():
    assert hasattr(connection, "ConnectionDropped")
    assert "self._expand_client_hosts()" in inspect.getsource(ConnectionHandler._connect_loop)
    named = inspect.getsource(ConnectionHandler._connect)
    assert "address=(hostip, port)" in named
    assert "hostname=host" in named
    assert {KeeperState.EXPIRED_SESSION, KeeperState.AUTH_FAILED, KeeperState.CLOSED} == set(CLOSED_STATES)
    assert list(inspect.signature(KazooClient._call).parameters) == ["self", "request", "async_object"]
    assert "timeout" in inspect.signature(SequentialThreadingHandler.create_connection).parameters or (
        "create_tcp_connection" in inspect.getsource(SequentialThreadingHandler.create_connection)
    )
    assert "self._socket = " in inspect.getsource(ConnectionHandler._connect)
    assert "while not self.client._stopped.is_set()" in inspect.getsource(ConnectionHandler.zk_loop)
    assert Transaction.type == Multi.type
    assert (AddWatch.type, MultiRead.type) == (106, 22)


async def test_more_requests_than_the_socket_pair_holds_do_not_stop_the_loop():
    """Kazoo's thread is busy connecting to a silent server; each request wakes the thread with one byte."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        listener = Listener()
        session = ZooKeeperSession(f"127.0.0.1:{silent.getsockname()[1]}", 2.0, listener, SystemClock())
        session.start()
        answers = [session.send(AddWatch("/")) for _ in range(5000)]
        session._on_disconnected()
        outcomes = await asyncio.gather(*answers, return_exceptions=True)
        assert {type(each).__name__ for each in outcomes} == {"ConnectionLoss"}
        await session.close()
        await listener.until("over")


async def test_events_are_read_many_at_a_time(zookeeper, monkeypatch):
    servers, _, chroot = zookeeper.partition("/")
    waits = []
    wait = zk_sockets._wait
    monkeypatch.setattr(zk_sockets, "_wait", lambda *arguments: (waits.append(arguments), wait(*arguments))[1])
    listener = Listener()
    session = ZooKeeperSession(servers, 5.0, listener, SystemClock())
    session.start()
    await listener.until("connected")
    acl = zk_acls.packed_for("/", is_protected=False)
    root = Create(f"/{chroot}-many")
    below = [Create(f"{root.path}/{number}") for number in range(500)]
    await session.send(Multi([root], [acl]))
    await session.send(AddWatch(root.path))
    waits.clear()
    await session.send(Multi(below, [acl] * len(below)))
    assert {("changed", each.path) for each in below} <= set(listener.heard)
    assert len(waits) < len(below), "some thirty, where the server is quicker; kazoo alone takes two for each"
    await session.close()
    await listener.until("over")


async def test_a_session_that_was_over_before_it_was_connected_is_told(zookeeper):
    from oncelog_broker.metadata.stores.store import SessionKey

    listener = Listener()
    servers = zookeeper.partition("/")[0]
    session = ZooKeeperSession(servers, 5.0, listener, SystemClock(), SessionKey(0x1234567890, b"x" * 16))
    session.start()
    await listener.until("over")
    await session.close()
    assert listener.heard == [("over",)]
