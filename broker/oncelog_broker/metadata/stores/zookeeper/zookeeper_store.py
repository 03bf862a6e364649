"""The metadata store of a cluster: ZooKeeper, through kazoo.

- The store has one persistent recursive watch for each watched path. After each connect the watches are set again. The
  callback of each watched path is then called with that path, because changes while the connection was broken were not
  reported.
- The first request of a new session is a write that has no effect; the first request of a resumed session is a sync.
  All other requests are sent after that request. A read in a session is therefore never older than the beginning of the
  session.
- kazoo's states do not prove that this broker still owns its id: during a network partition, kazoo may not report the
  broken connection, and never reports the end of the session. The store's own heartbeats therefore maintain a lease
  (`lease.py`); when the lease ends, the state is IN_DOUBT.
- When a session has expired, another session begins immediately; requests and watches of the old session are not
  carried over.
- The broker's identity (`access.py`) is sent first on each connection; nodes that the broker creates are protected
  according to `acls.py`, if configured.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from kazoo import exceptions as kazoo
from kazoo.protocol.serialization import Exists, GetACL, GetChildren, GetData, Sync

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.stores.lease import HEARTBEAT_SHARE, SILENCE_SHARE, Lease
from oncelog_broker.metadata.stores.store import (
    ANY_VERSION,
    AccessDenied,
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    MetadataError,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionCallback,
    SessionExpired,
    SessionKey,
    SessionState,
    Set,
    Stat,
    StoreUnavailable,
    Unsubscribe,
    WatchCallback,
    ancestors_of,
    check_operation,
    check_path,
    check_size,
    parent_of,
    size_of,
)
from oncelog_broker.metadata.stores.watches import Subscribers, Watches
from oncelog_broker.metadata.stores.zookeeper import acls as zk_acls
from oncelog_broker.metadata.stores.zookeeper.access import OPEN_ACCESS, ZooKeeperAccess
from oncelog_broker.metadata.stores.zookeeper.requests import AddWatch, Multi, MultiRead
from oncelog_broker.metadata.stores.zookeeper.session import Connected, MakeSession, Session, ZooKeeperSession
from oncelog_broker.runtime.clock import Clock, SystemClock

PATHS_PER_READ: Final = 1000
WAITING_LOG_SECONDS: Final = 3.0
"""Seconds between two log lines of a startup that waits for ZooKeeper."""
REFUSED_SECONDS: Final = 1.0
"""If the servers have ended a session before it had begun, or have refused a watch, the store begins another session
after this number of seconds.
"""

_NOT_WATCHED: Final = None
_log = logging.getLogger(__name__)


class ZooKeeperStore:
    """A `MetadataStore` on a ZooKeeper ensemble (3.6 or later). Open a store with `ZooKeeperStore.open`; an instance
    belongs to one event loop.
    """

    def __init__(
        self,
        servers: str,
        chroot: str,
        session_timeout: float,
        clock: Clock,
        access: ZooKeeperAccess = OPEN_ACCESS,
        make_session: MakeSession = ZooKeeperSession,
    ) -> None:
        self._servers = servers
        self._make_session = make_session
        self._chroot = chroot
        self._access = access
        self._session_timeout = session_timeout
        self._clock = clock
        self._watches = Watches()
        self._session_watches: Subscribers[SessionState] = Subscribers()
        self._state = SessionState.LOST
        self._session: Session | None = None
        self._key: SessionKey | None = None
        """The key of the session; None before a session has begun."""
        self._refused = ""
        """The reason why the connection cannot be used, for messages; "" if the connection can be used."""
        self._is_connected = False
        self._connects = 0
        self._lease = Lease(session_timeout)
        self._lease_timer: asyncio.TimerHandle | None = None
        self._unanswered: list[float] = []
        """The sending times of the heartbeats that are not answered yet."""
        self._stopping: set[asyncio.Task[None]] = set()
        self._closed = False
        self._began: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(
        cls,
        connect: str,
        *,
        session_timeout: float = 18.0,
        connection_timeout: float = 18.0,
        clock: Clock | None = None,
        access: ZooKeeperAccess = OPEN_ACCESS,
        make_session: MakeSession = ZooKeeperSession,
    ) -> ZooKeeperStore:
        """Begin a session and wait until a server has accepted it. `connect` has the form `host:port,host:port/chroot`;
        the chroot is created if it does not exist. `make_session` creates the session with the servers.

        Raises ConnectionLost if no server has answered within `connection_timeout` seconds, ValueError for a malformed
        `connect`.
        """
        servers, chroot = parse_connect(connect)
        store = cls(servers, chroot, session_timeout, clock or SystemClock(), access, make_session)
        store._begin_session()
        waiting = asyncio.get_running_loop().create_task(store._say_that_we_wait())
        try:
            async with asyncio.timeout(connection_timeout):
                await asyncio.shield(store._began)
                await store._warn_of_open_nodes()
        except TimeoutError as error:
            trouble = store._trouble
            await store.close()
            message = f"no answer of ZooKeeper at {servers} in {connection_timeout:g} s; the last try: {trouble}"
            raise ConnectionLost("", message) from error
        except BaseException:
            await store.close()
            raise
        finally:
            waiting.cancel()
        return store

    async def _say_that_we_wait(self) -> None:
        while True:
            await asyncio.sleep(WAITING_LOG_SECONDS)
            _log.warning("waiting for ZooKeeper", extra={"servers": self._servers, "last_try": self._trouble})

    @property
    def _trouble(self) -> str:
        return self._refused or ("none" if self._session is None else self._session.trouble)

    async def end_session(self, key: SessionKey) -> None:
        until = asyncio.get_running_loop().time() + self._lease.timeout
        try:
            while not await self._is_over(key, until):
                pass  # try again, because the other process may have resumed the session
        except TimeoutError as error:
            raise ConnectionLost("", "the earlier session could not be closed") from error
        await self.sync()  # wait for this sync, after which reads of this store no longer return the session's nodes

    async def _is_over(self, key: SessionKey, until: float) -> bool:
        """Whether the session has ended on the servers. If the servers still have the session, this method takes the
        session over and closes it. Call the method again to check whether the servers received the close. Raises
        TimeoutError if the servers have not answered by `until`, a time of the event loop.
        """
        taken = _Taken()
        session = self._make_session(self._servers, self._session_timeout, taken, self._clock, key, self._access)
        session.start()
        try:
            async with asyncio.timeout_at(until):
                return await taken.is_over
        finally:
            await session.close()

    @property
    def last_zxid(self) -> int:
        return 0 if self._session is None else self._session.last_zxid

    @property
    def session_timeout(self) -> float:
        """The session timeout that the servers have granted, in seconds."""
        return self._lease.timeout

    # --- methods of MetadataStore

    @property
    def session(self) -> SessionState:
        return self._state

    @property
    def session_id(self) -> int:
        return 0 if self._key is None else self._key.session_id

    @property
    def session_key(self) -> SessionKey | None:
        return self._key

    @property
    def lease_until(self) -> float:
        return -math.inf if self._state is SessionState.LOST else self._lease.until

    async def sync(self) -> None:
        await self._ask("/", Sync(self._full("/")))

    async def get(self, path: str) -> tuple[bytes, Stat]:
        data, stat = await self._ask(path, GetData(self._full(path), _NOT_WATCHED))
        return data or b"", _stat(stat)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        full = [self._full(path) for path in paths]
        pieces = [full[start : start + PATHS_PER_READ] for start in range(0, len(full), PATHS_PER_READ)]
        answers = [self._ask("", MultiRead(piece)) for piece in pieces]
        found: list[tuple[bytes, Stat] | None] = []
        for answer in await asyncio.gather(*answers):
            for path, node in zip(paths[len(found) :], answer, strict=False):
                if isinstance(node, Exception) and not isinstance(node, kazoo.NoNodeError):
                    raise _translated(node, path)
                found.append(None if isinstance(node, Exception) else node)
        return found

    async def exists(self, path: str) -> Stat | None:
        stat = await self._ask(path, Exists(self._full(path), _NOT_WATCHED))
        return None if stat is None else _stat(stat)

    async def children(self, path: str) -> list[str]:
        names: list[str] = await self._ask(path, GetChildren(self._full(path), _NOT_WATCHED))
        return sorted(name for name in names if (path, name) != ("/", "zookeeper"))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return _written(await self.multi([Set(path, data, version)]))

    async def create(self, path: str, data: bytes = b"", ephemeral: bool = False, make_parents: bool = False) -> Stat:
        wanted = Create(path, data, ephemeral)
        missing: list[Operation] = []
        while True:
            try:
                return _written(await self.multi([*missing, wanted]))
            except NoNode:
                if not make_parents:
                    raise
            except NodeExists as error:
                if error.path == path:
                    raise
                # Search for missing ancestors again, because another session has just created one of them.
            missing = await self._missing_ancestors(path)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        for operation in operations:
            check_operation(operation)
        if not operations:
            return []
        request = self._multi(operations)
        check_size(operations, [size_of(operation) for operation in request.operations])
        results: list[Stat | Exception | None] = await self._ask(operations[0].path, request)
        for operation, result in zip(operations, results, strict=True):
            # Find the operation with the actual error: the other operations of a failed multi report only "rolled back"
            # or "not tried".
            if isinstance(result, Exception) and not isinstance(
                result, kazoo.RolledBackError | kazoo.RuntimeInconsistency
            ):
                raise _refusal(result, operation)
        stats = [result for result in results if not isinstance(result, Exception)]
        if len(stats) < len(results):
            raise StoreUnavailable(operations[0].path, "the ensemble refused a write without saying why")
        return stats

    def watch(self, path: str, callback: WatchCallback) -> Unsubscribe:
        is_known = path in self._watches.roots()
        unsubscribe = self._watches.watch(path, callback)
        if self._is_connected and not is_known:
            assert self._session is not None
            self._set_watch(self._session, path)
        return unsubscribe

    def watch_session(self, callback: SessionCallback) -> Unsubscribe:
        return self._session_watches.add(callback)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._stop_lease_timer()
        self._tell(SessionState.LOST)
        if self._session is not None:
            await self._session.close()
        if self._stopping:
            await asyncio.wait(tuple(self._stopping))

    # --- callbacks of the session, in the event loop

    def on_connected(self, session: Session, connected: Connected) -> None:
        """Send all requests that must precede the requests of callers, before this method returns."""
        if session is not self._session:
            return
        is_new = self._key is None
        _log.info("connected to ZooKeeper", extra={"session": hex(connected.key.session_id), "is_new": is_new})
        self._connects += 1
        self._is_connected = True
        self._key = connected.key
        self._unanswered.clear()
        if is_new:
            self._lease = Lease(connected.timeout)
            if connected.timeout != self._session_timeout:
                extra = {"asked": self._session_timeout, "granted": connected.timeout}
                _log.warning("ZooKeeper grants another session timeout", extra=extra)
        self._lease.seen_by_leader(connected.asked_at)
        if is_new:
            self._make_chroot(session)
        for root in self._watches.roots():
            self._set_watch(session, root)
        first = self._multi([Check("/", ANY_VERSION)]) if is_new else Sync(self._full("/"))
        session.send(first).add_done_callback(partial(self._on_begun, self._connects))
        self._beat(self._connects)

    def on_disconnected(self, session: Session) -> None:
        if session is self._session and not self._closed:
            self._is_connected = False
            _log.warning("the connection to ZooKeeper was lost")

    def on_over(self, session: Session) -> None:
        if session is not self._session or self._closed:
            return
        _log.warning("the ZooKeeper session has expired")
        had_begun = self._state is not SessionState.LOST
        self._is_connected = False
        self._key = None
        self._stop_lease_timer()
        self._tell(SessionState.LOST)
        self._dispose(session)
        if had_begun:
            self._begin_session()
        else:  # wait first, because the servers may refuse the broker's identity repeatedly
            asyncio.get_running_loop().call_later(REFUSED_SECONDS, self._begin_session)

    def on_changed(self, path: str) -> None:
        if path == self._chroot:
            self._watches.changed(["/"])
        elif path.startswith(self._chroot + "/"):
            self._watches.changed([path[len(self._chroot) :]])

    # --- private methods for the session, its first request and its heartbeats ----------------------------------------

    def _begin_session(self) -> None:
        if not self._closed:
            self._session = self._make_session(
                self._servers, self._session_timeout, self, self._clock, None, self._access
            )
            self._session.start()

    def _dispose(self, session: Session) -> None:
        task = asyncio.get_running_loop().create_task(session.close())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def _make_chroot(self, session: Session) -> None:
        """Create the chroot; NodeExists is ignored, because another broker may have created the chroot."""
        names = self._chroot.split("/")[1:]
        for depth in range(1, len(names) + 1):
            acl = zk_acls.packed_for("/", is_protected=self._access.protects_nodes)
            session.send(Multi([Create("/" + "/".join(names[:depth]))], [acl]))

    def _set_watch(self, session: Session, root: str) -> None:
        def on_answer(answer: asyncio.Future[Any]) -> None:
            error = None if answer.cancelled() else answer.exception()
            if error is not None and not isinstance(error, _UNREACHABLE):
                self._on_watch_refused(session, root, error)

        session.send(AddWatch(self._full(root))).add_done_callback(on_answer)

    def _on_watch_refused(self, session: Session, root: str, error: BaseException) -> None:
        """End the session, because without its watches a broker would continue with an outdated cluster image. Another
        session begins a little later, perhaps with another server of the ensemble; until a server accepts the watches,
        the session state is LOST.
        """
        if session is not self._session or self._closed:
            return
        if not self._refused:
            self._refused = (
                f"ZooKeeper does not let us watch {self._full(root)} ({error!r}): version 3.6 or later is needed, and "
                "the right to read the watched nodes"
            )
            _log.error(self._refused)
        self._session, self._key, self._is_connected = None, None, False
        self._stop_lease_timer()
        self._tell(SessionState.LOST)
        self._dispose(session)
        asyncio.get_running_loop().call_later(REFUSED_SECONDS, self._begin_session)

    def _on_begun(self, connects: int, answer: asyncio.Future[Any]) -> None:
        """Handle the response to the first request of a connection."""
        if connects != self._connects or answer.cancelled() or self._closed or self._session is None:
            return
        refused = answer.exception() or next((r for r in answer.result() if isinstance(r, Exception)), None)
        if refused is not None:
            if not isinstance(refused, _UNREACHABLE):
                self._refused = f"ZooKeeper refuses the path of zookeeper.connect: {refused!r}"
                _log.error(self._refused)
            return
        self._refused = ""
        self._watches.all_may_have_changed()
        self._renew()
        if not self._began.done():
            self._began.set_result(None)

    def _beat(self, connects: int) -> None:
        """Send a heartbeat, and schedule the next one, as long as this connection lasts."""
        session = self._session
        if connects != self._connects or not self._is_connected or session is None or self._closed:
            return
        now = self._clock.uptime()
        timeout = self._lease.timeout
        if self._unanswered and now - self._unanswered[0] > SILENCE_SHARE * timeout:
            _log.warning("the ZooKeeper server does not respond, connecting to another server")
            session.drop_connection()
            return
        self._unanswered.append(now)
        answer = session.send(Exists(self._full("/"), _NOT_WATCHED))
        answer.add_done_callback(partial(self._on_beat_answered, connects, now))
        asyncio.get_running_loop().call_later(HEARTBEAT_SHARE * timeout, self._beat, connects)

    def _on_beat_answered(self, connects: int, sent: float, answer: asyncio.Future[Any]) -> None:
        is_past = connects != self._connects or self._session is None
        if is_past or answer.cancelled() or answer.exception() is not None:
            return
        self._unanswered.remove(sent)
        self._lease.answered(sent)
        if self._began.done():
            self._renew()

    def _renew(self) -> None:
        """Update the session state after the lease may have been extended."""
        if self._key is None or self._closed or self._lease.until <= self._clock.uptime():
            return
        self._tell(SessionState.CONNECTED)
        if self._lease_timer is None:
            self._watch_lease()

    def _watch_lease(self) -> None:
        remaining = self._lease.until - self._clock.uptime()
        if remaining > 0:
            self._lease_timer = asyncio.get_running_loop().call_later(remaining, self._watch_lease)
        else:
            self._lease_timer = None
            _log.warning(
                "ZooKeeper has not confirmed the session in time: this broker leads no partition until it does"
            )
            self._tell(SessionState.IN_DOUBT)

    def _stop_lease_timer(self) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()
            self._lease_timer = None

    def _tell(self, state: SessionState) -> None:
        if state is not self._state:
            if self._state is SessionState.IN_DOUBT and state is SessionState.CONNECTED:
                _log.warning("ZooKeeper has confirmed the session: this broker leads its partitions again")
            self._state = state
            self._session_watches.tell(state)

    # --- private methods that send requests ---------------------------------------------------------------------------

    def _multi(self, operations: Sequence[Operation]) -> Multi:
        is_protected = self._access.protects_nodes
        acls = [zk_acls.packed_for(operation.path, is_protected=is_protected) for operation in operations]
        return Multi([replace(operation, path=self._full(operation.path)) for operation in operations], acls)

    async def _warn_of_open_nodes(self) -> None:
        """If `zookeeper.set.acl` demands protected nodes, log a warning about existing nodes that are not protected and
        below which the broker creates nodes."""
        if not self._access.protects_nodes:
            return
        found = []
        for path in ("/", *paths.FIXED):
            try:
                acl, _ = await self._ask(path, GetACL(self._full(path)))
            except (NoNode, AccessDenied):
                continue
            except StoreUnavailable:
                return  # ignore the error, because the store itself will report it
            if zk_acls.is_open(path, acl):
                found.append(path)
        if found:
            _log.warning(
                "nodes without ACLs although zookeeper.set.acl is set, so anybody may change them: they were "
                "created before, or by another client",
                extra={"paths": " ".join(self._full(path) for path in found)},
            )

    def _full(self, path: str) -> str:
        check_path(path)
        return (self._chroot + path if path != "/" else self._chroot) or "/"

    async def _ask(self, path: str, request: Any) -> Any:
        """Send a request and return the response. `path` is the path of the node that an error message names."""
        if self._closed:
            raise SessionExpired("", "the metadata store is closed")
        session = self._session
        if session is None or not self._is_connected:
            raise ConnectionLost(path, self._refused or "not connected to ZooKeeper")
        try:
            return await session.send(request)
        except kazoo.KazooException as error:
            raise _translated(error, path) from error

    async def _missing_ancestors(self, path: str) -> list[Operation]:
        ancestors = ancestors_of(path)
        found = await self.get_many(ancestors)
        return [Create(ancestor) for ancestor, node in zip(ancestors, found, strict=True) if node is None]


def parse_connect(connect: str) -> tuple[str, str]:
    """Split `host:port,host:port/chroot` into servers and chroot ("" if there is none). Raises ValueError."""
    servers, slash, chroot = connect.strip().partition("/")
    chroot = (slash + chroot).rstrip("/")
    if chroot:
        check_path(chroot)
    if not all(server.strip() for server in servers.split(",")):
        raise ValueError(f"zookeeper.connect is host:port,host:port/chroot, not {connect!r}")
    return servers, chroot


class _Taken:
    """A listener that waits until a session has been taken over, or has ended."""

    def __init__(self) -> None:
        self.is_over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def on_connected(self, session: Session, connected: Connected) -> None:
        self._decide(False)

    def on_disconnected(self, session: Session) -> None:
        pass

    def on_over(self, session: Session) -> None:
        self._decide(True)

    def on_changed(self, path: str) -> None:
        pass

    def _decide(self, is_over: bool) -> None:
        if not self.is_over.done():
            self.is_over.set_result(is_over)


_UNREACHABLE = (kazoo.ConnectionLoss, kazoo.SessionExpiredError, kazoo.ConnectionClosedError)
_ERRORS: dict[type[Exception], Callable[[str], MetadataError]] = {
    kazoo.NoNodeError: NoNode,
    kazoo.NodeExistsError: NodeExists,
    kazoo.NotEmptyError: NotEmpty,
    kazoo.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    kazoo.SessionExpiredError: lambda path: SessionExpired(path, "the ZooKeeper session has expired"),
    kazoo.ConnectionClosedError: lambda path: SessionExpired(path, "the ZooKeeper session is closed"),
    kazoo.ConnectionLoss: lambda path: ConnectionLost(path, "the connection to ZooKeeper was lost"),
    kazoo.NoAuthError: lambda path: AccessDenied(path, "ZooKeeper has this node protected for another identity"),
    kazoo.InvalidACLError: lambda path: AccessDenied(path, "ZooKeeper does not know the identity that we have shown"),
    kazoo.SessionMovedError: lambda path: ConnectionLost(path, "the ZooKeeper session moved to another server"),
}


def _translated(error: Exception, path: str) -> MetadataError:
    made = _ERRORS.get(type(error))
    return StoreUnavailable(path, f"ZooKeeper: {error!r}") if made is None else made(path)


def _refusal(error: Exception, operation: Operation) -> MetadataError:
    if isinstance(error, kazoo.BadVersionError):
        assert not isinstance(operation, Create)
        return BadVersion(operation.path, operation.version)
    if isinstance(error, kazoo.NoNodeError) and isinstance(operation, Create):
        return NoNode(parent_of(operation.path))
    return _translated(error, operation.path)


def _stat(stat: Any) -> Stat:
    return Stat(stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner)


def _written(results: Sequence[Stat | None]) -> Stat:
    stat = results[-1]
    assert stat is not None
    return stat
