"""A worker's side of the metadata store that its supervisor serves: requests over the socket between both processes.

- The session lasts as long as both processes and their connection, and as long as the supervisor receives messages of
  this process (`store_server.SESSION_SECONDS`). If the supervisor ends, nobody serves the store any more: the session
  is lost permanently, `on_gone` is called, and the worker must end.
- The lease: the supervisor ends a session no earlier than a session timeout after the last heartbeat that it received.
  Both processes have the same clock, so the response to a heartbeat proves that the session lasts for one session
  timeout after the heartbeat was sent. When the lease ends without another response, the state is IN_DOUBT.
- A session that ended while this process was paused is followed by another session immediately, as with ZooKeeper.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

from oncelog_broker.metadata.stores.lease import HEARTBEAT_SHARE, LEASE_SHARE
from oncelog_broker.metadata.stores.store import (
    ANY_VERSION,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    SessionCallback,
    SessionExpired,
    SessionKey,
    SessionState,
    Set,
    Stat,
    Unsubscribe,
    WatchCallback,
    ancestors_of,
    check_operation,
    check_path,
    check_size,
    size_of,
)
from oncelog_broker.metadata.stores.supervised.messages import (
    Frames,
    as_bytes,
    as_text,
    encode_operation,
    parse_error,
    parse_stat,
)
from oncelog_broker.metadata.stores.watches import Subscribers, Watches
from oncelog_broker.runtime.clock import Clock

PATHS_PER_READ: Final = 500
"""Maximum number of nodes in one response of the supervisor; this many nodes take some milliseconds of its event loop.
"""

Outcome = list[Stat | None]


class SupervisedStore:
    """A `MetadataStore` that the supervisor of this process serves. Open a store with `SupervisedStore.open`; an
    instance belongs to one event loop.
    """

    def __init__(self, clock: Clock, on_gone: Callable[[], None] = lambda: None) -> None:
        """The constructor is internal: use `open`."""
        self._clock = clock
        self._on_gone = on_gone
        self._frames = Frames(self._on_message, self._on_lost)
        self._watches = Watches()
        self._session_watches: Subscribers[SessionState] = Subscribers()
        self._state = SessionState.LOST
        self._key: SessionKey | None = None
        """The key of the session; None while there is no session."""
        self._timeout = 0.0
        self._zxid = 0
        self.lease_until = -math.inf
        """The end of the lease (`MetadataStore.lease_until`). This is an attribute and not a property, because each
        append reads it."""
        self._last_request = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        """Request id -> the future of the response, for each request of this session that has no response yet."""
        self._writes: set[asyncio.Future[Any]] = set()
        self._timers: list[asyncio.TimerHandle] = []
        self._is_gone = False
        """Whether the connection was closed, by this process or by the end of the supervisor."""
        self._is_closed = False

    @classmethod
    async def open(
        cls, connection: socket.socket, clock: Clock, on_gone: Callable[[], None] = lambda: None
    ) -> SupervisedStore:
        """Begin a session on a connection that the supervisor made (`StoreServer.connect`). `on_gone`: called when the
        supervisor has ended. Raises SessionExpired if the supervisor ends before the session has begun.
        """
        store = cls(clock, on_gone)
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: store._frames, sock=connection)
            await store._begin()
        except BaseException:  # close the connection, even if the start of the worker was cancelled
            await store.close()
            connection.close()
            raise
        return store

    # --- methods for the session and its lease ------------------------------------------------------------------------

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
    def session_timeout(self) -> float:
        return self._timeout

    @property
    def last_zxid(self) -> int:
        return self._zxid

    async def end_session(self, key: SessionKey) -> None:
        await self._ask("end_session", key.session_id, as_text(key.password))

    def watch_session(self, callback: SessionCallback) -> Unsubscribe:
        return self._session_watches.add(callback)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._writes:
            await asyncio.wait(tuple(self._writes))
        ended = None if self._is_gone or not self._frames.is_connected else self._request("end")
        self._lose_session()
        if ended is not None:
            await asyncio.wait([ended])
            _retrieve(ended)
        self._frames.close()

    def _begin(self) -> asyncio.Future[Any]:
        sent, begun = self._clock.uptime(), self._request("begin")

        def on_begun(answer: asyncio.Future[Any]) -> None:
            if answer.cancelled() or answer.exception() is not None or self._is_closed:
                return
            session_id, password, self._timeout = answer.result()
            self._key = SessionKey(session_id, as_bytes(password))
            self._confirm(sent)
            self._watches.all_may_have_changed()
            self._beat(session_id)
            self._watch_lease(session_id)

        begun.add_done_callback(on_begun)
        return begun

    def _confirm(self, sent: float) -> None:
        """Handle the response to a heartbeat that was sent at time `sent`."""
        self.lease_until = max(self.lease_until, sent + LEASE_SHARE * self._timeout)
        if self._clock.uptime() < self.lease_until:
            self._change_state(SessionState.CONNECTED)

    def _beat(self, session_id: int) -> None:
        """Send a heartbeat, and further heartbeats for as long as the session lasts."""
        if session_id != self.session_id:
            return
        sent, beaten = self._clock.uptime(), self._request("beat")

        def on_answer(answer: asyncio.Future[Any]) -> None:
            if session_id != self.session_id or answer.cancelled():
                return
            if answer.exception() is None:
                self._confirm(sent)
            elif isinstance(answer.exception(), SessionExpired):
                self._on_over()  # the end was reported before this process had handled the response to "begin"

        beaten.add_done_callback(on_answer)
        self._later(HEARTBEAT_SHARE * self._timeout, self._beat, session_id)

    def _watch_lease(self, session_id: int) -> None:
        """Change the state to IN_DOUBT when the lease has ended, and check again later."""
        if session_id != self.session_id:
            return
        remaining = self.lease_until - self._clock.uptime()
        if remaining <= 0:
            self._change_state(SessionState.IN_DOUBT)
        self._later(remaining if remaining > 0 else HEARTBEAT_SHARE * self._timeout, self._watch_lease, session_id)

    def _later(self, seconds: float, call: Callable[[int], None], session_id: int) -> None:
        now = asyncio.get_running_loop().time()
        self._timers = [each for each in self._timers if each.when() > now and not each.cancelled()]
        self._timers.append(asyncio.get_running_loop().call_later(seconds, call, session_id))

    def _lose_session(self) -> None:
        """Handle the end of the session: all requests of this session fail."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._key = None
        self.lease_until = -math.inf
        self._change_state(SessionState.LOST)

    def _change_state(self, state: SessionState) -> None:
        if state is not self._state:
            self._state = state
            self._session_watches.tell(state)

    # --- methods that the frame protocol calls

    def _on_message(self, message: list[Any]) -> None:
        number, zxid, name, *rest = message
        self._zxid = max(self._zxid, zxid)
        match name:
            case "changed":
                self._watches.changed(rest)
            case "over":
                self._on_over()
            case _:
                answer = self._answers.pop(number, None)
                if answer is None or answer.done():
                    pass  # no request has this id: it belonged to an earlier session, or its caller was cancelled
                elif name == "done":
                    answer.set_result(rest[0])
                else:
                    answer.set_exception(parse_error(rest))

    def _on_over(self) -> None:
        if self._key is None:
            return
        self._lose_session()
        self._fail_requests("the session is over: the supervisor did not hear of this worker for too long")
        if not self._is_closed:
            self._begin()

    def _on_lost(self) -> None:
        self._is_gone = True
        was_closed = self._is_closed
        self._lose_session()
        self._fail_requests(_GONE)
        if not was_closed:
            self._on_gone()

    def _fail_requests(self, reason: str) -> None:
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            if not answer.done():
                answer.set_exception(SessionExpired("", reason))

    # --- methods that send requests to the supervisor -----------------------------------------------------------------

    def _request(self, name: str, *arguments: object) -> asyncio.Future[Any]:
        """Send a request. Returns the future of the response."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_retrieve)  # if the caller was cancelled, nobody waits for the response
        self._last_request += 1
        if self._is_gone:
            answer.set_exception(SessionExpired("", _GONE))
        else:
            self._answers[self._last_request] = answer
            self._frames.send([self._last_request, name, *arguments])
        return answer

    def _ask(self, name: str, *arguments: object) -> asyncio.Future[Any]:
        if self._is_closed or self._key is None:
            raise SessionExpired("", _GONE if self._is_gone and not self._is_closed else "the session is over")
        return self._request(name, *arguments)

    async def sync(self) -> None:
        await self._ask("beat")

    async def get(self, path: str) -> tuple[bytes, Stat]:
        (node,) = await self.get_many([path])
        if node is None:
            raise NoNode(path)
        return node

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        for path in paths:
            check_path(path)
        pieces = [paths[start : start + PATHS_PER_READ] for start in range(0, len(paths), PATHS_PER_READ)]
        answers = [self._ask("get", list(piece)) for piece in pieces]
        found: list[tuple[bytes, Stat] | None] = []
        for answer in answers:
            found += [None if node is None else (as_bytes(node[0]), Stat(*node[1])) for node in await answer]
        return found

    async def exists(self, path: str) -> Stat | None:
        check_path(path)
        return parse_stat(await self._ask("exists", path))

    async def children(self, path: str) -> list[str]:
        check_path(path)
        names: list[str] | None = await self._ask("children", path)
        if names is None:
            raise NoNode(path)
        return names

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return _last(await self.multi([Set(path, data, version)]))

    async def create(self, path: str, data: bytes = b"", ephemeral: bool = False, make_parents: bool = False) -> Stat:
        wanted = Create(path, data, ephemeral)
        missing: list[Operation] = []
        while True:
            try:
                return _last(await self.multi([*missing, wanted]))
            except NoNode:
                if not make_parents:
                    raise
            except NodeExists as error:
                if error.path == path:
                    raise
                # Search for missing ancestors again, because another session has just created one of them.
            ancestors = ancestors_of(path)
            found = await self.get_many(ancestors)
            missing = [Create(ancestor) for ancestor, node in zip(ancestors, found, strict=True) if node is None]

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> Outcome:
        for operation in operations:
            check_operation(operation)
        check_size(operations, [size_of(operation) for operation in operations])
        write = self._ask("write", [encode_operation(operation) for operation in operations])
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)
        return [parse_stat(fields) for fields in await write]

    def watch(self, path: str, callback: WatchCallback) -> Unsubscribe:
        return self._watches.watch(path, callback)


_GONE: Final = "the supervisor of this worker has ended"


def _retrieve(answer: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a response, so that asyncio does not log it if no caller awaits the response."""
    if not answer.cancelled():
        answer.exception()


def _last(outcome: Outcome) -> Stat:
    stat = outcome[-1]
    assert stat is not None
    return stat
