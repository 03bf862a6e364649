"""A metadata store for several brokers in one process: `MemoryTree` is the server, and `MemorySession` is the session
of one broker.

The store does not use the disk or timers, so a cluster in one process starts within milliseconds. The store
is for tests and simulation, because all metadata is lost with the process. As in ZooKeeper, ending a session removes
its ephemeral nodes and notifies its broker; another session begins in the next iteration of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from oncelog_broker.identity.note import StoreKind
from oncelog_broker.metadata.stores.store import (
    Delete,
    MetadataError,
    Operation,
    SessionExpired,
    SessionKey,
    SessionState,
    check_operation,
)
from oncelog_broker.metadata.stores.tree import Transaction, Tree
from oncelog_broker.metadata.stores.tree_store import Outcome, TreeStore
from oncelog_broker.runtime.clock import Clock

SESSION_SECONDS: Final = 6.0
"""The session timeout that the store reports to brokers, in seconds. A broker retries for this time when the store does
not respond.
"""


class MemoryTree:
    """The tree that several brokers share, with its live sessions. All brokers that use the tree run in one event loop.

    A `MemoryTree` can be passed to a broker as its store (`opening.StoreOpening`): `Broker(config, store=tree)`.
    """

    kind = StoreKind.MEMORY

    def __init__(self) -> None:
        self.tree = Tree()
        self.last_zxid = 0
        self._sessions: dict[int, MemorySession] = {}
        self._last_session = 0

    def place(self, home: str) -> str:
        """Return the location of the store, for messages."""
        return "this process"

    async def open(self, home: str, clock: Clock) -> MemorySession:
        """Begin a session; the directory and the clock are not used."""
        return self.connect()

    def connect(self) -> MemorySession:
        """Begin a session of one broker in the tree."""
        return MemorySession(self)

    def begin(self, session: MemorySession) -> int:
        """Register `session` as live; returns its new id."""
        self._last_session += 1
        self._sessions[self._last_session] = session
        return self._last_session

    def lives(self, session_id: int) -> bool:
        """Whether the session exists and has not ended."""
        return session_id in self._sessions

    def end(self, session_id: int) -> None:
        """End a session and remove its ephemeral nodes, as a ZooKeeper server does when it has received nothing from
        the session for the session timeout.
        """
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        session.on_ended()
        for path in [path for path, node in self.tree.nodes() if node.ephemeral_owner == session_id]:
            self.write([Delete(path)], 0)

    def write(self, operations: Sequence[Operation], session_id: int) -> Outcome:
        """Apply all operations, or none of them if one fails, and notify all sessions of the changes. Raises
        MetadataError.
        """
        transaction = Transaction(self.tree.node, self.last_zxid + 1, session_id)
        stats = [transaction.apply(operation) for operation in operations]
        if transaction.changes:
            self.last_zxid += 1
            self._tell(self.tree.apply(transaction.changes), session_id)
        return stats

    def _tell(self, changed: Sequence[str], writer: int) -> None:
        for session_id, session in tuple(self._sessions.items()):
            session.on_changed(changed, is_own=session_id == writer)


class MemorySession(TreeStore):
    """The `MetadataStore` of one broker in a `MemoryTree`."""

    def __init__(self, shared: MemoryTree) -> None:
        super().__init__(shared.tree)
        self._shared = shared
        self._is_closed = False
        self._under_way: set[asyncio.Future[Outcome]] = set()
        self._session_id = shared.begin(self)

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_key(self) -> SessionKey | None:
        return SessionKey(self._session_id, b"")  # there is no password: any user of the tree may end a session

    @property
    def session_timeout(self) -> float:
        return SESSION_SECONDS

    @property
    def last_zxid(self) -> int:
        return self._shared.last_zxid

    async def end_session(self, key: SessionKey) -> None:
        self._shared.end(key.session_id)

    async def close(self) -> None:
        self._is_closed = True
        if self._under_way:
            await asyncio.gather(*self._under_way, return_exceptions=True)
        self._shared.end(self._session_id)

    # --- methods that the tree calls when nodes have changed or the session has ended ---------------------------------

    def on_changed(self, changed: Sequence[str], *, is_own: bool) -> None:
        """Notify the watches: immediately of this session's own changes, and of other sessions' changes in the next
        iteration of the event loop.
        """
        if is_own:
            self._watches.changed(changed)
        else:
            asyncio.get_running_loop().call_soon(self._watches.changed, list(changed))

    def on_ended(self) -> None:
        """Report the session as lost, and begin another session unless the store was closed."""
        self._change_session(SessionState.LOST)
        if not self._is_closed:
            asyncio.get_running_loop().call_soon(self._begin_again)

    def _begin_again(self) -> None:
        if not self._is_closed:
            self._session_id = self._shared.begin(self)
            self._change_session(SessionState.CONNECTED)
            self._watches.all_may_have_changed()

    # --- methods that execute writes ----------------------------------------------------------------------------------

    def _require_session(self) -> None:
        if not self._shared.lives(self._session_id):
            raise SessionExpired("", "the session has expired")

    def _submit(self, operations: tuple[Operation, ...]) -> asyncio.Future[Outcome]:
        for operation in operations:
            check_operation(operation)
        self._require_session()
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._under_way.add(outcome)
        outcome.add_done_callback(self._under_way.discard)
        self._send(operations, outcome)
        return outcome

    def _send(self, operations: tuple[Operation, ...], outcome: asyncio.Future[Outcome]) -> None:
        """Schedule the write for the next iteration of the event loop; it fails if the present session has ended by
        then.
        """
        asyncio.get_running_loop().call_soon(self._commit, operations, outcome, self._session_id)

    def _commit(self, operations: tuple[Operation, ...], outcome: asyncio.Future[Outcome], session_id: int) -> None:
        if not self._shared.lives(session_id):
            fail(outcome, SessionExpired("", "the session has expired"))
            return
        try:
            stats = self._shared.write(operations, session_id)
        except MetadataError as error:
            fail(outcome, error)
            return
        if not outcome.done():  # if the caller was cancelled, nobody waits for the outcome
            outcome.set_result(stats)


def fail(outcome: asyncio.Future[Outcome], error: Exception) -> None:
    """Set the error of a write, unless its caller was cancelled."""
    if not outcome.done():
        outcome.set_exception(error)
