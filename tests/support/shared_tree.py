"""A metadata store for several brokers in one process: many sessions over one tree, each a `MetadataStore`.

Nothing is kept on disk and nothing waits for a clock. A test may lose the replies or requests of a session's writes,
hold its writes back, cut it off, or let it expire while its broker believes otherwise.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress

from oncelog_broker.metadata.store import (
    ANY_VERSION,
    ConnectionLost,
    Create,
    Delete,
    MetadataError,
    NodeExists,
    NoNode,
    Operation,
    SessionCallback,
    SessionExpired,
    SessionState,
    Set,
    Stat,
    Unsubscribe,
    WatchCallback,
    check_operation,
    check_path,
    parent_of,
)
from oncelog_broker.metadata.tree import Transaction, Tree, TreeNode
from oncelog_broker.metadata.watches import Subscribers, Watches

Outcome = list[Stat | None]


class SharedTree:
    """The tree, and the sessions that live."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.writes = 0
        """How many writes have changed something."""
        self.judges: list[Callable[[str], None]] = []
        """Called with each path that was changed, as soon as it is; what they raise ends the write and the test."""
        self._zxid = 0
        self._sessions: dict[int, TreeSession] = {}
        self._next_session = 1

    def connect(self) -> TreeSession:
        """A new session."""
        session = TreeSession(self, self._next_session)
        self._sessions[session.session_id] = session
        self._next_session += 1
        return session

    def write(self, operations: Sequence[Operation], session_id: int) -> Outcome:
        """Do all, or none. MetadataError."""
        transaction = Transaction(self.tree.node, self._zxid + 1, session_id)
        stats = [transaction.apply(operation) for operation in operations]
        if transaction.changes:
            self._zxid += 1
            self.writes += 1
            changed = self.tree.apply(transaction.changes)
            for judge in self.judges:
                for path in changed:
                    judge(path)
            for session in tuple(self._sessions.values()):
                session.tell(changed, is_own=session.session_id == session_id)
        return stats

    def end(self, session_id: int) -> None:
        """The session is over: its ephemeral nodes go. Its broker learns of it when it comes to ask."""
        if self._sessions.pop(session_id, None) is None:
            return
        owned = [path for path, node in self.tree._nodes.items() if node.ephemeral_owner == session_id]
        for path in owned:
            self.write([Delete(path)], 0)

    def lives(self, session_id: int) -> bool:
        return session_id in self._sessions


class TreeSession:
    """One broker's session. `lose_replies`, `lose_requests` and `delay_requests` count down with each write that they
    hit; a request that is delayed seems lost, and reaches the tree when `land_delayed` lets it."""

    def __init__(self, shared: SharedTree, session_id: int) -> None:
        self.session_id = session_id
        self.session_timeout = 1.0
        self.lose_replies = 0
        self.lose_requests = 0
        self.delay_requests = 0
        self._delayed: list[tuple[Operation, ...]] = []
        self.is_cut = False
        self.on_write: Callable[[Sequence[Operation]], None] | None = None
        """Called before each write of this session is done: a place for others to interfere."""
        self._shared = shared
        self._state = SessionState.CONNECTED
        self.has_held_writes = asyncio.Event()
        self._holding = False
        self._held: list[tuple[tuple[Operation, ...], asyncio.Future[Outcome]]] = []
        self._under_way: set[asyncio.Future[Outcome]] = set()
        self._watches = Watches()
        self._session_watches: Subscribers[SessionState] = Subscribers()

    @property
    def last_zxid(self) -> int:
        return self._shared._zxid

    # --- what a test does to it

    def hold_writes(self) -> None:
        """What is written from now on reaches the tree when `release_writes` lets it."""
        self._holding = True

    def release_writes(self) -> None:
        self._holding = False
        held, self._held = self._held, []
        for operations, outcome in held:
            self._commit(operations, outcome)

    def land_delayed(self) -> None:
        """What was delayed reaches the tree now, in order; nobody hears what becomes of it."""
        delayed, self._delayed = self._delayed, []
        for operations in delayed:
            if self._shared.lives(self.session_id):
                with suppress(MetadataError):
                    self._shared.write(operations, self.session_id)

    def expire(self) -> None:
        """The session ends on the server; the broker is told when `notice` says so, or when it asks for something."""
        self._shared.end(self.session_id)

    def notice(self) -> None:
        """The broker hears that its session is over."""
        if self._state is not SessionState.LOST:
            self._state = SessionState.LOST
            self._session_watches.tell(SessionState.LOST)

    def reconnect(self) -> None:
        """After `is_cut`: the same session again, which may have missed changes."""
        self.is_cut = False
        self._session_watches.tell(SessionState.CONNECTED)
        self._watches.all_may_have_changed()

    def tell(self, changed: Sequence[str], is_own: bool) -> None:
        """Own changes at once, those of others in their own turn of the loop."""
        if is_own:
            self._watches.changed(changed)
        elif not self.is_cut:
            asyncio.get_running_loop().call_soon(self._watches.changed, list(changed))

    # --- MetadataStore

    @property
    def session(self) -> SessionState:
        return self._state

    @property
    def lease_until(self) -> float:
        return math.inf if self._state is SessionState.CONNECTED else -math.inf

    async def sync(self) -> None:
        self._require_session()

    async def get(self, path: str) -> tuple[bytes, Stat]:
        node = self._node(path)
        if node is None:
            raise NoNode(path)
        return node.data, node.stat

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        return [None if (node := self._node(path)) is None else (node.data, node.stat) for path in paths]

    async def exists(self, path: str) -> Stat | None:
        node = self._node(path)
        return None if node is None else node.stat

    async def children(self, path: str) -> list[str]:
        if self._node(path) is None:
            raise NoNode(path)
        return self._shared.tree.children(path)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return _last(await self._submit((Set(path, data, version),)))

    async def create(self, path: str, data: bytes = b"", ephemeral: bool = False, make_parents: bool = False) -> Stat:
        while True:
            missing: list[Operation] = []
            parent = parent_of(path)
            while make_parents and self._node(parent) is None:
                missing.insert(0, Create(parent))
                parent = parent_of(parent)
            try:
                return _last(await self._submit((*missing, Create(path, data, ephemeral))))
            except NodeExists as error:
                if error.path == path or not make_parents:
                    raise

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._submit((Delete(path, version),))

    async def multi(self, operations: Sequence[Operation]) -> Outcome:
        return await self._submit(tuple(operations))

    def watch(self, path: str, callback: WatchCallback) -> Unsubscribe:
        return self._watches.watch(path, callback)

    def watch_session(self, callback: SessionCallback) -> Unsubscribe:
        return self._session_watches.add(callback)

    async def close(self) -> None:
        if self._under_way:
            await asyncio.gather(*self._under_way, return_exceptions=True)
        self.expire()
        self.notice()

    # --- how it works

    def _node(self, path: str) -> TreeNode | None:
        check_path(path)
        self._require_session()
        return self._shared.tree.node(path)

    def _require_session(self) -> None:
        if self.is_cut:
            raise ConnectionLost("", "cut off")
        if self._state is SessionState.LOST or not self._shared.lives(self.session_id):
            self.notice()
            raise SessionExpired("", "the session is over")

    def _submit(self, operations: tuple[Operation, ...]) -> asyncio.Future[Outcome]:
        for operation in operations:
            check_operation(operation)
        self._require_session()
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()
        self._under_way.add(outcome)
        outcome.add_done_callback(self._under_way.discard)
        if self.lose_requests:
            self.lose_requests -= 1
            loop.call_soon(_fail, outcome, ConnectionLost("", "the request was lost"))
        elif self.delay_requests:
            self.delay_requests -= 1
            self._delayed.append(operations)
            loop.call_soon(_fail, outcome, ConnectionLost("", "the request is late"))
        elif self._holding:
            self._held.append((operations, outcome))
            self.has_held_writes.set()
        else:
            loop.call_soon(self._commit, operations, outcome)
        return outcome

    def _commit(self, operations: tuple[Operation, ...], outcome: asyncio.Future[Outcome]) -> None:
        try:
            if self.on_write is not None:
                self.on_write(operations)
        except MetadataError as error:
            return _fail(outcome, error)
        if not self._shared.lives(self.session_id):
            return _fail(outcome, SessionExpired("", "the session is over"))
        try:
            stats = self._shared.write(operations, self.session_id)
        except (MetadataError, AssertionError) as error:  # or what a judge has found
            return _fail(outcome, error)
        if self.lose_replies:
            self.lose_replies -= 1
            _fail(outcome, ConnectionLost("", "the reply was lost"))
        elif not outcome.done():
            outcome.set_result(stats)
        return None


def _fail(outcome: asyncio.Future[Outcome], error: Exception) -> None:
    if not outcome.done():  # its caller may have been cancelled
        outcome.set_exception(error)


def _last(outcome: Outcome) -> Stat:
    stat = outcome[-1]
    assert stat is not None
    return stat
