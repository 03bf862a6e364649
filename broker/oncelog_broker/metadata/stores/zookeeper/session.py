"""One ZooKeeper session on kazoo: all modifications of kazoo, and all code that depends on kazoo's threads.

kazoo's thread never calls other objects directly: every response and event is passed to the event loop with
`call_soon_threadsafe`, in the order in which it arrived on the connection. An event is therefore delivered before the
response to the write that caused it. (kazoo's own handler has one thread for responses and one for events, which may
overtake each other.)

Each kazoo client is used for only one session. When the session has expired, the client stops instead of beginning
another session, so that no request of the expired session is sent in the next session.

This module uses some undocumented parts of kazoo; tests check that these parts exist, in
`tests/unit/broker/metadata/stores/zookeeper/test_session.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from kazoo.client import CLOSED_STATES, KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry

from oncelog_broker.metadata.stores.store import SessionKey
from oncelog_broker.metadata.stores.zookeeper import sockets as zk_sockets
from oncelog_broker.metadata.stores.zookeeper import tls as zk_tls
from oncelog_broker.metadata.stores.zookeeper.access import OPEN_ACCESS, MakeContext, ZooKeeperAccess
from oncelog_broker.metadata.stores.zookeeper.wake_ups import WakeUps
from oncelog_broker.runtime.clock import Clock

MAX_IN_FLIGHT: Final = 100
"""The maximum number of requests that are passed to kazoo simultaneously; further requests wait here, and are dropped
when their callers are cancelled.
"""
CLOSE_SECONDS: Final = 2
"""The number of seconds that `close` waits for the outstanding responses, and then again for the response to its own
request. After that, it drops the connection.
"""

_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)  # kazoo's log is off, because the store logs its own messages


class Connected(NamedTuple):
    """A server has accepted the session."""

    asked_at: float
    """The time (`Clock.uptime`) when the session was requested; the ensemble's leader has seen that request."""
    timeout: float
    """The session timeout that the server has granted, in seconds."""
    key: SessionKey


class Session(Protocol):
    """One session with the servers, from `start` until its listener's `on_over` is called: a `ZooKeeperSession`, or a
    simulated session.
    """

    @property
    def trouble(self) -> str: ...

    @property
    def last_zxid(self) -> int: ...

    def start(self) -> None: ...

    def send(self, request: Any) -> asyncio.Future[Any]: ...

    def drop_connection(self) -> None: ...

    async def close(self) -> None: ...


class SessionListener(Protocol):
    """Callbacks for the events of a session, all called in the event loop."""

    def on_connected(self, session: Session, connected: Connected) -> None: ...

    def on_disconnected(self, session: Session) -> None:
        """Called when the connection ended; all unanswered requests have failed with ConnectionLoss."""

    def on_over(self, session: Session) -> None:
        """Called when the session has expired or cannot be resumed, and after `close`; called only once."""

    def on_changed(self, path: str) -> None:
        """Called when a watched node was created, set or deleted."""


class _InLoop:
    """Replaces kazoo's queue of completions, and passes each callback to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def put(self, callback: Callable[..., object], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no callback is left to call
            self._loop.call_soon_threadsafe(callback, *arguments)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """A kazoo handler without threads of its own. The handler never stops, so that results that arrive after the end of
    the client also reach the event loop.
    """

    running = True

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connect_seconds: float, tls: MakeContext | None, clock: Clock
    ) -> None:
        super().__init__()
        self.completion_queue = _InLoop(loop)
        self._connect_seconds = connect_seconds
        self._tls = tls
        self._clock = clock
        self.trouble = "no server was tried yet"
        """The error of the last attempt to connect, for the log."""

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def dispatch_callback(self, callback: Any) -> None:
        self.completion_queue.put(callback.func, *callback.args)

    def create_connection(self, *arguments: Any, timeout: float, **named: Any) -> Any:
        """Connect with a shorter timeout, because kazoo would spend the entire session timeout on one dead server. This
        method is called in kazoo's thread.
        """
        host, address = named["hostname"], named["address"]
        port, seconds = address[1], min(timeout, self._connect_seconds)
        made: Any
        try:
            if self._tls is None:
                made = zk_sockets.ReadAhead(super().create_connection(*arguments, timeout=seconds, **named))
            else:
                made = zk_tls.connected(address, host, seconds, self._tls())
        except Exception as error:
            self.trouble = f"{host}:{port}: {error}"
            raise
        self.trouble = (
            f"{host}:{port}: connected, but it begins no session (is it one of an ensemble without a quorum?)"
        )
        return made

    def create_socket_pair(self) -> tuple[WakeUps, WakeUps]:
        both = WakeUps()
        return both, both

    def select(self, reading: list[Any], writing: list[Any], _: list[Any], seconds: float | None = None) -> Any:
        return *zk_sockets.select(self._clock.uptime, reading, writing, seconds), []


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """Extends kazoo's connection code: records the time of the session request, the granted timeout, and connection
    errors (kazoo itself would only log these errors).
    """

    def _expand_client_hosts(self) -> Any:
        found = super()._expand_client_hosts()
        if not found:
            hosts = ", ".join(str(host) for host, _ in self.client.hosts)
            self.handler.trouble = f"no address found for {hosts}"
        return found

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, Connect):
            return super()._invoke(timeout, request, xid)
        asked_at = self.client.clock.uptime()
        answer, zxid = super()._invoke(timeout, request, xid)
        key = SessionKey(answer.session_id, answer.passwd)
        self.client.granted = Connected(asked_at, answer.time_out / 1000, key)
        return answer, zxid


class _EveryPath(dict[str, Any]):
    """Replaces kazoo's table of one-shot watches, because the events of recursive watches name paths that such a table
    does not have.
    """

    def __init__(self, callback: Callable[[Any], None]) -> None:
        super().__init__()
        self._callback = callback

    def pop(self, path: str, default: Any = None) -> list[Callable[[Any], None]]:
        return [self._callback]


class _Client(KazooClient):  # type: ignore[misc]
    granted: Connected

    def __init__(
        self, on_event: Callable[[Any], None], on_closed: Callable[[], None], clock: Clock, **named: Any
    ) -> None:
        self._on_event = on_event
        self.on_closed = on_closed
        self.clock = clock
        super().__init__(**named)
        self._connection = _Connection(self, self._conn_retry.copy(), logger=self.logger)

    def _reset_watchers(self) -> None:
        self._data_watchers = _EveryPath(self._on_event)

    def _session_callback(self, state: str) -> None:
        if state == KeeperState.EXPIRED_SESSION:
            self._stopped.set()  # stop kazoo's client, which otherwise would begin another session
        super()._session_callback(state)
        if state in CLOSED_STATES:  # kazoo reports no end of a session that never connected
            self.on_closed()


MakeSession = Callable[[str, float, SessionListener, Clock, SessionKey | None, ZooKeeperAccess], Session]
"""Type of a function that creates a session from the arguments of `ZooKeeperSession`: servers, timeout in seconds,
listener, clock, key, access.
"""


class ZooKeeperSession:
    """One session, from `start` until its listener's `on_over` is called, over several connections if needed. The
    session must not be used after that call.
    """

    def __init__(
        self,
        servers: str,
        timeout: float,
        listener: SessionListener,
        clock: Clock,
        key: SessionKey | None = None,
        access: ZooKeeperAccess = OPEN_ACCESS,
    ) -> None:
        """`servers` is a list of host:port, separated by commas. `timeout` is in seconds; the server may change it.
        `key` is the key of a session to take over; None means to begin a new session.
        """
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        share = timeout / (2 * len(servers.split(",")))
        handler = _Handler(self._loop, max(share, 0.2), access.tls, clock)
        who = access.identity
        self._client = _Client(
            lambda event: listener.on_changed(event.path),
            lambda: handler.completion_queue.put(self._on_over),
            clock,
            hosts=servers,
            timeout=timeout,
            client_id=key,
            handler=handler,
            auth_data=[] if who is None else [("digest", f"{who.user}:{who.password.reveal()}")],
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=1.5, max_delay=1),
            logger=_kazoo_log,
        )
        self._handler = handler
        self._client.add_listener(self._on_state)
        self._in_flight: set[asyncio.Future[Any]] = set()
        self._held: deque[tuple[Any, asyncio.Future[Any]]] = deque()
        self._with_kazoo = 0
        self._is_over = False

    def start(self) -> None:
        self._client.start_async()

    @property
    def trouble(self) -> str:
        """A description of the last failed attempt to connect (server and error), for the log."""
        return self._handler.trouble

    @property
    def last_zxid(self) -> int:
        """The highest zxid in any response."""
        return int(self._client.last_zxid or 0)

    def send(self, request: Any) -> asyncio.Future[Any]:
        """Send a request; the future has the response, or one of kazoo's exceptions. Requests are executed in the order
        of these calls.
        """
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._in_flight.add(answer)
        answer.add_done_callback(self._in_flight.discard)
        if self._with_kazoo >= MAX_IN_FLIGHT:
            self._held.append((request, answer))
        else:
            self._hand_over(request, answer)
        return answer

    def drop_connection(self) -> None:
        """End the connection, but not the session; kazoo then tries another server."""
        connection = self._client._connection._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        """End the session, if connected, after all requests were answered. This method may be called repeatedly."""
        if self._in_flight:
            await asyncio.wait(tuple(self._in_flight), timeout=CLOSE_SECONDS)
        stopping = asyncio.ensure_future(asyncio.to_thread(self._stop))
        await asyncio.wait([stopping], timeout=CLOSE_SECONDS)
        if not stopping.done():
            self.drop_connection()
        await stopping

    def _stop(self) -> None:
        client = self._client
        client.stop()
        connection = client._connection
        if connection.stop(client._session_timeout / 1000 + 10):
            client.close()

    def _hand_over(self, request: Any, answer: asyncio.Future[Any]) -> None:
        self._with_kazoo += 1
        result = self._client.handler.async_result()
        result.rawlink(partial(self._on_answer, answer, [True]))
        self._client._call(request, result)

    def _on_answer(self, answer: asyncio.Future[Any], is_new: list[bool], result: Any) -> None:
        if not is_new[0]:  # skip a second failure, because kazoo may fail a request twice
            return
        is_new[0] = False
        self._with_kazoo -= 1
        if not answer.done():
            if result.exception is not None:
                answer.set_exception(result.exception)
                answer.exception()  # mark the exception as retrieved, because perhaps no caller awaits this future
            else:
                answer.set_result(result.value)
        while self._held and self._with_kazoo < MAX_IN_FLIGHT:
            request, waiting = self._held.popleft()
            if not waiting.done():  # if the future is done, its caller was cancelled
                self._hand_over(request, waiting)

    def _on_state(self, state: str) -> None:
        """Pass a change of kazoo's state to the event loop; called in kazoo's thread."""
        post = self._client.handler.completion_queue.put
        if state == KazooState.CONNECTED:
            post(self._on_connected, self._client.granted)
        elif state == KazooState.SUSPENDED:
            post(self._on_disconnected)

    def _on_connected(self, connected: Connected) -> None:
        self._listener.on_connected(self, connected)

    def _on_disconnected(self) -> None:
        self._fail_all()
        self._listener.on_disconnected(self)

    def _on_over(self) -> None:
        self._fail_all()
        if not self._is_over:
            self._is_over = True
            self._listener.on_over(self)

    def _fail_all(self) -> None:
        """Fail all outstanding requests immediately, because kazoo would fail them only after it has tried to connect
        again.
        """
        self._held.clear()
        for answer in tuple(self._in_flight):
            if not answer.done():
                answer.set_exception(ConnectionLoss())
                answer.exception()
