"""The ZooKeeper store when connections break and sessions end; `test_store_contract.py` tests its other properties."""

import asyncio
import itertools
import math
import re
import socket
import ssl

import pytest
from tests.support.certificates import Certificate
from tests.support.zookeeper.cutting_proxy import CuttingProxy, Moment
from tests.support.zookeeper.frames import Direction, Op

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.metadata.stores.store import (
    MAX_REQUEST_BYTES,
    BadVersion,
    ConnectionLost,
    Create,
    MetadataError,
    NodeExists,
    NoNode,
    RequestTooLarge,
    SessionExpired,
    SessionState,
    Set,
)
from oncelog_broker.metadata.stores.zookeeper import zookeeper_store as zookeeper_module
from oncelog_broker.metadata.stores.zookeeper.access import OPEN_ACCESS, ZooKeeperAccess
from oncelog_broker.metadata.stores.zookeeper.zookeeper_store import ZooKeeperStore, parse_connect
from oncelog_broker.runtime.clock import SystemClock
from oncelog_broker.security.zookeeper_tls import tls_to_zookeeper

LONG, SHORT = 20.0, 2.0
"""Session timeouts in seconds: one that never expires in a test, and one that does."""
SECONDS = 60.0
UNKNOWN_OPERATION = 117
"""An operation code that no request of ZooKeeper has."""


class Heard:
    """Collects the notifications of a store, so that tests can wait for one."""

    def __init__(self, store, root="/"):
        self.paths, self.states = [], []
        self._changed = asyncio.Event()
        store.watch(root, self._note(self.paths))
        store.watch_session(self._note(self.states))

    def _note(self, notes):
        def note(told):
            notes.append(told)
            self._changed.set()

        return note

    async def until(self, is_so):
        async with asyncio.timeout(SECONDS):
            while not is_so(self):
                self._changed.clear()
                await self._changed.wait()


async def until_answered(ask):
    """Call `ask` until the connection is back; return its result."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                return await ask()
            except ConnectionLost:
                await asyncio.sleep(0.01)


@pytest.fixture(params=["plain", "tls"])
def zookeeper_proxy(request, zookeeper, tmp_path):
    """The proxy in front of ZooKeeper; each test runs without TLS and with TLS, and must see the same sessions, leases
    and lost responses.
    """
    if request.param == "plain":
        with CuttingProxy(zookeeper) as proxy:
            proxy.access = OPEN_ACCESS
            yield proxy
        return
    authority = Certificate.authority()
    (tmp_path / "authority.pem").write_text(authority.pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.issue(("CN", "zookeeper")).store(tmp_path / "server.pem"))
    settings = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(tmp_path / "authority.pem"),
    }
    with CuttingProxy(zookeeper, tls=context) as proxy:
        proxy.access = ZooKeeperAccess(tls_to_zookeeper(BrokerConfig.of(settings)))
        yield proxy


@pytest.fixture
async def open_zookeeper(zookeeper):
    opened = []

    async def open_one(connect=zookeeper, timeout=LONG):
        access = OPEN_ACCESS
        if isinstance(connect, CuttingProxy):
            connect, access = connect.connect_string, connect.access
        opened.append(
            await ZooKeeperStore.open(connect, session_timeout=timeout, connection_timeout=SECONDS, access=access)
        )
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


async def test_a_broken_connection_ends_no_session_and_the_watched_paths_are_named(open_zookeeper, zookeeper_proxy):
    store = await open_zookeeper(zookeeper_proxy)
    await store.create("/brief", ephemeral=True)
    session, heard = store.session_id, Heard(store)
    zookeeper_proxy.cut()
    await heard.until(lambda h: "/" in h.paths)
    assert await store.exists("/brief") is not None
    assert (store.session, store.session_id, heard.states) == (SessionState.CONNECTED, session, [])
    heard.paths.clear()
    await store.create("/a")
    assert heard.paths == ["/a"], "the watch is set again"


async def test_while_there_is_no_connection_everything_fails_at_once(open_zookeeper, zookeeper_proxy):
    store = await open_zookeeper(zookeeper_proxy)
    zookeeper_proxy.refuse()
    pending = asyncio.ensure_future(store.get_many([f"/{n}" for n in range(2000)]))
    zookeeper_proxy.cut()
    with pytest.raises(ConnectionLost):
        await pending
        while True:  # repeat while the response is faster than the cut
            await store.exists("/")
    for ask in (store.exists("/"), store.create("/a"), store.sync(), store.get_many(["/"])):
        with pytest.raises(ConnectionLost):
            await ask
    zookeeper_proxy.accept()
    assert await until_answered(lambda: store.exists("/a")) is None


@pytest.mark.parametrize(
    ("direction", "is_done"),
    [(Direction.REQUESTS, False), (Direction.ANSWERS, True)],
    ids=["before it is forwarded", "before it is answered"],
)
async def test_a_write_that_is_cut_off_is_connection_lost_and_reading_tells(
    open_zookeeper, zookeeper_proxy, direction, is_done
):
    store = await open_zookeeper(zookeeper_proxy)
    zookeeper_proxy.cut_when(lambda frame: frame.op == Op.MULTI, Moment.BEFORE, direction=direction)
    with pytest.raises(ConnectionLost):
        await store.create("/a", ephemeral=True)
    await until_answered(store.sync)
    found = await store.exists("/a")
    assert (found is not None) is is_done
    assert not is_done or found.ephemeral_owner == store.session_id


async def test_an_ended_session_is_told_and_another_one_begun_with_nothing_of_it(open_zookeeper):
    store, other = await open_zookeeper(), await open_zookeeper()
    await store.create("/brief", ephemeral=True)
    heard, first = Heard(store), store.session_id
    await other.end_session(store.session_key)
    assert await other.exists("/brief") is None
    await heard.until(lambda h: h.states == [SessionState.LOST, SessionState.CONNECTED])
    assert store.session_id not in (0, first)
    assert "/" in heard.paths
    again = await store.create("/brief", ephemeral=True)
    assert again.ephemeral_owner == store.session_id


async def test_a_session_whose_end_is_lost_on_the_way_is_ended_all_the_same(open_zookeeper, zookeeper_proxy):
    store, other = await open_zookeeper(), await open_zookeeper(zookeeper_proxy)
    await store.create("/brief", ephemeral=True)
    lost = zookeeper_proxy.cut_when(lambda frame: frame.op == Op.CLOSE_SESSION, Moment.BEFORE)
    await other.end_session(store.session_key)
    assert lost.count == 1
    assert await other.exists("/brief") is None


@pytest.mark.parametrize("times", [3, pytest.param(100, marks=pytest.mark.soak)])
async def test_a_session_is_begun_however_often_sessions_end(open_zookeeper, times):
    store, other = await open_zookeeper(), await open_zookeeper()
    heard, seen = Heard(store), {store.session_id}
    for number in range(times):
        await store.create(f"/{number}", ephemeral=True)
        await other.end_session(store.session_key)
        await heard.until(lambda h, n=number: len(h.states) == 2 * n + 2)
        seen.add(store.session_id)
    assert len(seen) == times + 1
    assert await store.children("/") == []


async def test_a_request_of_one_session_is_never_done_in_the_next(open_zookeeper, zookeeper_proxy):
    """The session ends unnoticed while more writes are in flight than a socket pair has room for wake-up bytes
    (`zk_wake_ups`).
    """
    store, other = await open_zookeeper(zookeeper_proxy), await open_zookeeper()
    heard = Heard(store)
    zookeeper_proxy.hold(Direction.REQUESTS)
    writes = [asyncio.ensure_future(store.create(f"/{n}", ephemeral=True)) for n in range(1000)]
    await asyncio.sleep(0)
    await other.end_session(store.session_key)
    zookeeper_proxy.cut()
    zookeeper_proxy.resume()
    await heard.until(lambda h: SessionState.CONNECTED in h.states)
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert all(isinstance(each, ConnectionLost | SessionExpired) for each in outcomes)
    await store.sync()
    assert await store.children("/") == []


async def test_a_session_begins_with_a_write_and_continues_with_a_sync(open_zookeeper, zookeeper_proxy):
    """A lagging server may return an older tree. Only a read after the session's own write cannot be that old."""
    sent = []
    zookeeper_proxy.cut_when(lambda frame: sent.append(frame.op), Moment.BEFORE, times=None)
    store = await open_zookeeper(zookeeper_proxy)
    heard = Heard(store)
    await store.get_many(["/"])
    began = [op for op in sent if op not in (Op.CREATE_SESSION, Op.EXISTS, Op.PING)]
    assert began[:2] == [Op.MULTI, Op.MULTI], "the chroot, and a write that changes nothing"
    sent.clear()
    zookeeper_proxy.cut()
    await heard.until(lambda h: "/" in h.paths)
    assert [op for op in sent if op not in (Op.CREATE_SESSION, Op.EXISTS, Op.PING)][:2] == [Op.ADD_WATCH, Op.SYNC]


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "asking"])
async def test_a_black_hole_is_noticed_before_the_session_can_have_ended(open_zookeeper, zookeeper_proxy, busy):
    """While requests are sent, kazoo itself never detects that its connection is dead."""
    clock = SystemClock()
    store = await open_zookeeper(zookeeper_proxy, SHORT)
    other = await open_zookeeper()
    numbers = itertools.count()

    async def create():
        """Create a node with a new name each time, because a pause of the server may cost such a short session its
        connection.
        """
        path = f"/brief{next(numbers)}"
        await store.create(path, ephemeral=True)
        return path

    brief = await until_answered(create)
    gone_at = asyncio.get_running_loop().create_future()

    async def look():
        if not gone_at.done() and await other.exists(brief) is None:
            gone_at.set_result(clock.uptime())

    looks = []
    other.watch(brief, lambda _: looks.append(asyncio.ensure_future(look())))
    heard = Heard(store)

    async def ask():
        while True:
            asked = [asyncio.ensure_future(store.exists("/")) for _ in range(3)]
            await asyncio.wait(asked, timeout=0.05)
            for each in asked:
                each.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    asking = asyncio.ensure_future(ask()) if busy else None
    assert store.lease_until < math.inf
    zookeeper_proxy.lose()
    zookeeper_proxy.refuse()
    await heard.until(lambda h: h.states[:1] == [SessionState.IN_DOUBT])
    lease_ended = store.lease_until
    assert lease_ended <= clock.uptime()
    async with asyncio.timeout(SECONDS):
        assert lease_ended < await gone_at
    zookeeper_proxy.heal()
    zookeeper_proxy.accept()
    await heard.until(lambda h: h.states[-1] is SessionState.CONNECTED)
    assert heard.states == [SessionState.IN_DOUBT, SessionState.LOST, SessionState.CONNECTED]
    assert store.lease_until > clock.uptime()
    if asking is not None:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.soak
@pytest.mark.parametrize("run", range(8))
async def test_a_follower_that_dies_right_after_a_heartbeat_does_not_make_the_lease_outlast_the_session(ensemble, run):
    """The follower has responded to the heartbeat, but may not have informed its leader, which is the server that ends
    sessions.
    """
    clock, timeout = SystemClock(), 3.0
    leader = ensemble.leader
    follower = next(number for number in (1, 2, 3) if number != leader)
    chroot = f"/heartbeats-{run}-{clock.now_ms()}"
    other = await ZooKeeperStore.open(ensemble.server(leader).address + chroot, session_timeout=LONG)
    store = await ZooKeeperStore.open(ensemble.server(follower).address + chroot, session_timeout=timeout)
    gone_at = asyncio.get_running_loop().create_future()
    await store.create("/brief", ephemeral=True)
    other.watch("/brief", lambda _: gone_at.done() or gone_at.set_result(clock.uptime()))
    await other.sync()
    heard = Heard(store)
    async with asyncio.timeout(SECONDS):
        for _ in range(4 + run):
            before = store.lease_until
            while store.lease_until == before:  # noqa: ASYNC110  the moment after a heartbeat
                await asyncio.sleep(0.001)
        ensemble.server(follower).kill()
        lease_until = store.lease_until
        await heard.until(lambda h: SessionState.IN_DOUBT in h.states)
        ended_at = await gone_at
    assert store.lease_until == lease_until < ended_at
    print(f"lease ended {ended_at - lease_until:.2f} s before the session")
    await other.close()
    await store.close()


async def test_an_oversized_write_is_refused_before_it_is_sent(open_zookeeper):
    store = await open_zookeeper()
    half = b"x" * (MAX_REQUEST_BYTES // 2)
    with pytest.raises(RequestTooLarge):
        await store.multi([Create("/a", half), Create("/b", half), Create("/c")])
    assert await store.children("/") == []
    await store.create("/a", b"x" * (MAX_REQUEST_BYTES - 100))


async def test_very_many_nodes_are_read_in_as_many_requests_as_it_takes(open_zookeeper):
    store = await open_zookeeper()
    await store.multi([Create(f"/{n}", b"%d" % n) for n in range(2500)])
    found = await store.get_many([f"/{n}" for n in range(3000)])
    assert [None if each is None else each[0] for each in found] == [b"%d" % n for n in range(2500)] + [None] * 500


async def test_the_stats_of_a_multi_are_those_of_its_nodes(open_zookeeper):
    store = await open_zookeeper()
    made, changed = await store.multi([Create("/a", ephemeral=True), Set("/a", b"x")])
    assert (made.version, changed.version) == (0, 1)
    assert await store.get("/a") == (b"x", changed)
    assert changed.ephemeral_owner == store.session_id


@pytest.mark.parametrize(
    ("operation", "error"),
    [(Create("/a"), NodeExists), (Set("/a", b"", 7), BadVersion), (Create("/none/a"), NoNode)],
)
async def test_a_refused_operation_is_told_apart_from_those_around_it(open_zookeeper, operation, error):
    store = await open_zookeeper()
    await store.create("/a")
    with pytest.raises(MetadataError) as raised:
        await store.multi([Create("/b"), operation, Create("/c")])
    assert type(raised.value) is error


async def test_the_chroot_is_made_with_all_that_is_above_it(open_zookeeper, zookeeper):
    deep = await open_zookeeper(f"{zookeeper}/clusters/one")
    await deep.create("/a", b"x")
    flat = await open_zookeeper(zookeeper)
    assert (await flat.get("/clusters/one/a"))[0] == b"x"
    told = []
    deep.watch("/", told.append)
    await deep.sync()  # now the server has registered the watch
    await flat.set("/clusters/one/a", b"y")
    await deep.sync()
    assert told == ["/a"]


@pytest.mark.parametrize(
    ("servers", "reason"),
    [
        ("127.0.0.1:1", r"127\.0\.0\.1:1: .*[Cc]onnection refused"),
        ("nowhere.invalid:2181", r"no address found for nowhere\.invalid"),
    ],
)
async def test_failed_connection_attempts_are_logged_from_time_to_time_and_at_the_end(
    servers, reason, monkeypatch, caplog
):
    look_up = socket.getaddrinfo

    def unknown(host, *arguments):
        if host == "nowhere.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return look_up(host, *arguments)

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr(zookeeper_module, "WAITING_LOG_SECONDS", 0.5)
    with pytest.raises(ConnectionLost, match=rf"no answer of ZooKeeper at {re.escape(servers)} in 3 s.*{reason}"):
        await ZooKeeperStore.open(servers, session_timeout=1.0, connection_timeout=3.0)
    told = [record for record in caplog.records if record.message == "waiting for ZooKeeper"]
    assert told
    assert all(after.created - before.created > 0.4 for before, after in itertools.pairwise(told)), "now and then"
    assert told[-1].servers == servers
    assert re.search(reason, told[-1].last_try)


def test_the_connect_string_is_parsed():
    assert parse_connect("a:1,b:2/c/d/") == ("a:1,b:2", "/c/d")
    assert parse_connect("a:1") == ("a:1", "")
    for text in ("", "/c", "a:1,,b:2", "a:1/c//d"):
        with pytest.raises(ValueError):
            parse_connect(text)


async def test_a_server_that_refuses_a_watch_is_of_no_use(open_zookeeper, monkeypatch, caplog):
    """ZooKeeper servers before 3.6 do not know the request AddWatch. Without that request a broker would never learn of
    changes, so it must not continue with the data of its first read.
    """
    store = await open_zookeeper(timeout=SHORT)
    heard = Heard(store)
    await store.create("/seen")
    await heard.until(lambda h: "/seen" in h.paths)
    monkeypatch.setattr(zookeeper_module.AddWatch, "type", UNKNOWN_OPERATION)
    store.watch("/other", lambda path: None)
    await heard.until(lambda h: SessionState.LOST in h.states)
    with pytest.raises(ConnectionLost, match=r"does not let us watch /.*version 3\.6 or later"):
        await store.get("/seen")
    assert len([line for line in caplog.records if "does not let us watch" in line.message]) <= 2
    assert SessionState.CONNECTED not in heard.states
    monkeypatch.undo()
    await heard.until(lambda h: SessionState.CONNECTED in h.states)
    assert await store.exists("/seen") is not None
