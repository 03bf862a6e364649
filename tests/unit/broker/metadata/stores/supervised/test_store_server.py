"""The store that a supervisor serves to workers: when sessions end, how long leases last, and what happens if a process
is killed or paused.

`../test_store_contract.py` tests the behaviour that all stores have in common.
"""

from __future__ import annotations

import asyncio
import json
import math
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncelog_broker.metadata.stores.embedded import EmbeddedStore
from oncelog_broker.metadata.stores.store import (
    MAX_REQUEST_BYTES,
    Create,
    MetadataStore,
    NoNode,
    RequestTooLarge,
    SessionExpired,
    SessionKey,
    SessionState,
)
from oncelog_broker.metadata.stores.supervised.messages import MAX_REQUEST_FRAME, Frames
from oncelog_broker.metadata.stores.supervised.store_server import READ_SECONDS, StoreServer
from oncelog_broker.metadata.stores.supervised.supervised_store import PATHS_PER_READ, SupervisedStore
from oncelog_broker.runtime.clock import SystemClock

PROGRAM = Path(__file__).with_name("store_processes.py")
SECONDS = 20.0


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[StoreServer]:
    server = StoreServer(EmbeddedStore.open(tmp_path / "metadata.db"), 0.5)
    yield server
    server.close()
    await server.store.close()


async def opened(server: StoreServer) -> SupervisedStore:
    return await SupervisedStore.open(await server.connect(), SystemClock())


@contextmanager
def process(role: str, end: socket.socket, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(PROGRAM), role, str(end.fileno()), *arguments]
    with end, subprocess.Popen(command, pass_fds=[end.fileno()], stdout=subprocess.PIPE, text=True) as started:
        end.close()
        try:
            yield started
        finally:
            started.kill()


async def has_czxid_above(store: MetadataStore, path: str, czxid: int) -> int:
    """Wait until the node exists and was created after the transaction `czxid`; return the node's czxid."""
    changed = asyncio.Event()
    unwatch = store.watch(path, lambda _: changed.set())
    async with asyncio.timeout(SECONDS):
        while (stat := await store.exists(path)) is None or stat.czxid <= czxid:
            await changed.wait()
            changed.clear()
    unwatch()
    return stat.czxid


async def is_gone(store: MetadataStore, path: str) -> None:
    changed = asyncio.Event()
    unwatch = store.watch(path, lambda _: changed.set())
    async with asyncio.timeout(SECONDS):
        while await store.exists(path) is not None:
            await changed.wait()
            changed.clear()
    unwatch()


async def test_the_nodes_of_a_killed_worker_go_at_once(tmp_path: Path) -> None:
    server = StoreServer(EmbeddedStore.open(tmp_path / "metadata.db"), 3600.0)  # no session times out
    ours = await opened(server)
    with process("worker", await server.connect(), "/there") as worker:
        await has_czxid_above(ours, "/there", 0)
        worker.send_signal(signal.SIGKILL)
        await is_gone(ours, "/there")
    server.close()
    await server.store.close()


async def test_a_paused_worker_loses_its_session_and_begins_another_one(server: StoreServer) -> None:
    ours = await opened(server)
    with process("worker", await server.connect(), "/there") as worker:
        first = await has_czxid_above(ours, "/there", 0)
        worker.send_signal(signal.SIGSTOP)
        await is_gone(ours, "/there")
        worker.send_signal(signal.SIGCONT)
        await has_czxid_above(ours, "/there", first)
    assert ours.session is SessionState.CONNECTED, "a worker that sends heartbeats keeps its session"


async def test_a_worker_that_stays_silent_after_its_session_hangs(tmp_path: Path) -> None:
    server = StoreServer(EmbeddedStore.open(tmp_path / "metadata.db"), 0.5, 0.5)
    ours, hung = await opened(server), asyncio.Event()
    with process("worker", await server.connect(hung.set), "/there") as worker:
        first = await has_czxid_above(ours, "/there", 0)
        worker.send_signal(signal.SIGSTOP)
        await is_gone(ours, "/there")
        worker.send_signal(signal.SIGCONT)
        await has_czxid_above(ours, "/there", first)
        assert not hung.is_set(), "the worker has begun another session in time"
        worker.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(SECONDS):
            await hung.wait()
        assert await ours.exists("/there") is None
    server.close()
    await server.store.close()


async def test_a_paused_supervisor_leaves_sessions_in_doubt_and_ends_none(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with process("supervisor", theirs, str(tmp_path / "metadata.db"), "2") as supervisor:
        assert supervisor.stdout is not None
        assert await asyncio.to_thread(supervisor.stdout.readline) == "serving\n"
        gone = asyncio.Event()
        store = await SupervisedStore.open(ours, SystemClock(), gone.set)
        session, states = store.session_id, asyncio.Queue[SessionState]()
        await store.create("/there", ephemeral=True)
        store.watch_session(states.put_nowait)
        supervisor.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(SECONDS):
            assert await states.get() is SessionState.IN_DOUBT
        assert store.lease_until <= SystemClock().uptime()
        await asyncio.sleep(2)  # longer than the session timeout by the supervisor's clock
        supervisor.send_signal(signal.SIGCONT)
        async with asyncio.timeout(SECONDS):
            assert await states.get() is SessionState.CONNECTED
        assert store.session_id == session
        assert await store.exists("/there") is not None
        supervisor.kill()
        async with asyncio.timeout(SECONDS):
            assert await states.get() is SessionState.LOST
            await gone.wait()
    with pytest.raises(SessionExpired, match="supervisor"):
        await store.get("/there")
    await store.close()


async def test_a_lease_ends_before_the_session_can(server: StoreServer) -> None:
    before = SystemClock().uptime()
    store = await opened(server)
    assert before < store.lease_until < SystemClock().uptime() + server.session_seconds
    await store.close()
    assert store.lease_until == -math.inf


async def test_a_successor_ends_the_session_with_its_key_and_with_no_other(server: StoreServer) -> None:
    before, after = await opened(server), await opened(server)
    await before.create("/there", ephemeral=True)
    key = before.session_key
    assert key is not None
    await after.end_session(SessionKey(key.session_id, b"guessed"))
    await after.end_session(SessionKey(key.session_id + 1, key.password))
    assert await after.exists("/there") is not None
    states = asyncio.Queue[SessionState]()
    before.watch_session(states.put_nowait)
    await after.end_session(key)
    assert await after.exists("/there") is None
    async with asyncio.timeout(SECONDS):
        assert [await states.get(), await states.get()] == [SessionState.LOST, SessionState.CONNECTED]
    assert before.session_id != key.session_id


async def test_watchers_are_told_of_possibly_missed_changes_at_the_next_session(server: StoreServer) -> None:
    store, other = await opened(server), await opened(server)
    seen, connected = list[str](), asyncio.Event()
    store.watch("/brokers", seen.append)
    store.watch_session(lambda state: connected.set() if state is SessionState.CONNECTED else None)
    assert store.session_key is not None
    await other.end_session(store.session_key)
    async with asyncio.timeout(SECONDS):
        await connected.wait()
    assert seen == ["/brokers"]


async def test_a_write_of_an_ended_session_is_not_done_in_the_next_one(server: StoreServer) -> None:
    store, other = await opened(server), await opened(server)
    assert store.session_key is not None
    connection = server.session(store.session_key)
    assert connection is not None
    connection.expire()  # the worker does not know this yet
    with pytest.raises(SessionExpired):
        await store.create("/late")
    await other.sync()
    assert await other.exists("/late") is None


async def test_a_node_whose_creation_is_under_way_when_the_worker_ends_goes_too(server: StoreServer) -> None:
    ours = await opened(server)
    connection = await server.connect()
    frames = Frames(lambda _: None, lambda: None)
    await asyncio.get_running_loop().create_unix_connection(lambda: frames, sock=connection)
    frames.send([1, "begin"])
    frames.send([2, "write", [["create", "/there", "", True]]])
    frames.send([3, "write", [["create", "/kept", "", False]]])
    frames.close()
    await has_czxid_above(ours, "/kept", 0)
    await is_gone(ours, "/there")


async def test_another_sessions_change_is_told(server: StoreServer) -> None:
    writer, watcher = await opened(server), await opened(server)
    told = asyncio.Queue[str]()
    watcher.watch("/a", told.put_nowait)
    stat = await writer.create("/a", bytes(range(256)))
    async with asyncio.timeout(SECONDS):
        assert await told.get() == "/a"
    assert await watcher.get("/a") == (bytes(range(256)), stat)
    assert watcher.last_zxid == stat.czxid


async def test_ephemeral_nodes_name_their_session(server: StoreServer) -> None:
    one, other = await opened(server), await opened(server)
    stat = await one.create("/there", ephemeral=True)
    assert stat.ephemeral_owner == one.session_id != other.session_id
    await other.close()
    assert await one.exists("/there") == stat, "the end of another session deletes nothing of this one"


async def test_many_nodes_are_read_in_pieces(server: StoreServer) -> None:
    store = await opened(server)
    paths = [f"/{n}" for n in range(PATHS_PER_READ + 10)]
    await store.multi([Create(path, path.encode()) for path in paths])
    found = await store.get_many([*paths, "/none"])
    assert [None if node is None else node[0] for node in found] == [*(path.encode() for path in paths), None]


async def test_a_write_that_zookeeper_would_not_take_is_refused(server: StoreServer) -> None:
    store = await opened(server)
    with pytest.raises(RequestTooLarge):
        await store.create("/a", bytes(MAX_REQUEST_BYTES))
    worst = b"\x01" * (MAX_REQUEST_BYTES - 1000)  # as JSON text, each byte takes six characters of a message
    await store.create("/a", worst)
    assert (await store.get("/a"))[0] == worst


async def test_a_longer_frame_than_any_request_closes_the_connection(server: StoreServer) -> None:
    connection = await server.connect()
    lost = asyncio.Event()
    frames = Frames(lambda _: None, lost.set)
    transport, _ = await asyncio.get_running_loop().create_unix_connection(lambda: frames, sock=connection)
    transport.write((MAX_REQUEST_FRAME + 1).to_bytes(4, "big"))
    async with asyncio.timeout(SECONDS):
        await lost.wait()


async def test_a_change_is_told_before_an_answer_that_shows_it(server: StoreServer) -> None:
    """A worker could otherwise mistake the event of an old change for a change after its last read."""
    received = asyncio.Queue[list[object]]()
    frames = Frames(received.put_nowait, lambda: None)
    connection = await server.connect()
    await asyncio.get_running_loop().create_unix_connection(lambda: frames, sock=connection)
    frames.send([1, "begin"])
    async with asyncio.timeout(SECONDS):
        await received.get()
        (theirs,) = server._connections
        server._on_changed("/a")
        theirs._on_message([2, "exists", "/a"])
        assert [(await received.get())[0] for _ in range(2)] == [0, 2]


async def test_an_opening_that_is_cut_short_leaves_no_connection(server: StoreServer) -> None:
    connection = await server.connect()
    opening = asyncio.ensure_future(SupervisedStore.open(connection, SystemClock()))
    for _ in range(3):  # the connection is open, but the session has not begun
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert connection.fileno() == -1


async def test_writes_survive_the_supervisor(tmp_path: Path) -> None:
    file = tmp_path / "metadata.db"
    ours, theirs = socket.socketpair()
    with process("supervisor", theirs, str(file), "60") as supervisor:
        store = await SupervisedStore.open(ours, SystemClock())
        stat = await store.create("/kept", b"x")
        await store.create("/brief", ephemeral=True)
        supervisor.kill()
    await store.close()
    again = EmbeddedStore.open(file)
    data, found = await again.get("/kept")
    assert (data, found.czxid) == (b"x", stat.czxid)
    with pytest.raises(NoNode):
        await again.get("/brief")
    assert again.last_zxid > stat.czxid, "a czxid is never used twice"
    await again.close()


async def test_a_session_that_is_over_before_the_worker_knows_it_is_followed_by_another_one() -> None:
    """A worker that is paused while it begins a session finds the answer and the end of that session together."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    loop = asyncio.get_running_loop()

    async def received() -> tuple[int, str]:
        (length,) = struct.unpack(">I", await asyncio.wait_for(loop.sock_recv(ours, 4), SECONDS))
        number, name, *_ = json.loads(await loop.sock_recv(ours, length))
        return number, name

    def frame(*message: object) -> bytes:
        body = json.dumps(message).encode()
        return struct.pack(">I", len(body)) + body

    with ours:
        opening = asyncio.create_task(SupervisedStore.open(theirs, SystemClock()))
        first, name = await received()
        assert name == "begin"
        await loop.sock_sendall(ours, frame(first, 1, "done", [7, "p" * 16, SECONDS]) + frame(0, 1, "over"))
        store = await opening
        beat, name = await received()
        assert name == "beat"
        await loop.sock_sendall(ours, frame(beat, 1, "failed", "SessionExpired", "", "the session is over"))
        begun, name = await received()
        assert name == "begin"
        await loop.sock_sendall(ours, frame(begun, 1, "done", [8, "q" * 16, SECONDS]))
        assert (await received())[1] == "beat"
        assert (store.session, store.session_id) == (SessionState.CONNECTED, 8)
    await store.close()


async def test_a_heartbeat_that_waits_unread_when_the_supervisor_continues_keeps_the_session(
    server: StoreServer,
) -> None:
    """The loop of a process that was stopped for little longer than a session calls the timers before it reads."""
    store = await opened(server)
    await store.sync()
    (connection,) = server._connections
    key, loop = connection.key, asyncio.get_running_loop()
    beat = asyncio.ensure_future(store.sync())
    connection._heard -= 2 * server.session_seconds
    connection._check_silence(loop.time())
    await beat
    assert key is not None
    assert connection.key is key
    await store.sync()
    await asyncio.sleep(2 * READ_SECONDS)
    assert (connection.key, store.session) == (key, SessionState.CONNECTED)
    await store.close()
