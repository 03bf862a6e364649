"""The metadata store in memory with faults: a test may lose the requests or replies of a session's writes, delay its
writes, cut the session off, or let the session expire while its broker believes that the session is still open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from oncelog_broker.metadata.stores.in_memory import MemorySession, MemoryTree, fail
from oncelog_broker.metadata.stores.store import (
    ConnectionLost,
    MetadataError,
    Operation,
    SessionExpired,
    SessionState,
)
from oncelog_broker.metadata.stores.tree_store import Outcome
from oncelog_broker.runtime.clock import Clock


class SharedTree(MemoryTree):
    """The metadata tree and its live sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        """The number of writes that have changed the tree."""
        self.judges: list[Callable[[str], None]] = []
        """Functions that are called immediately with each changed path; if such a function raises an exception, the
        write ends and the test fails.
        """

    def connect(self) -> TreeSession:
        """Open a new session."""
        return TreeSession(self)

    async def open(self, home: str, clock: Clock) -> TreeSession:
        return self.connect()

    def _tell(self, changed: Sequence[str], writer: int) -> None:
        self.writes += 1
        for judge in self.judges:
            for path in changed:
                judge(path)
        super()._tell(changed, writer)


class TreeSession(MemorySession):
    """The session of one broker. `lose_replies`, `lose_requests` and `delay_requests` are counters; each affected write
    reduces its counter by one. A delayed request seems lost to the broker, and reaches the tree when the test calls
    `land_delayed`. After the session has ended, its broker learns of the end with its next request; the broker opens no
    new session.
    """

    session_timeout = 1.0  # type: ignore[assignment]
    session_key = None  # type: ignore[assignment]

    def __init__(self, shared: SharedTree) -> None:
        super().__init__(shared)
        self.lose_replies = 0
        self.lose_requests = 0
        self.delay_requests = 0
        self._delayed: list[tuple[Operation, ...]] = []
        self.is_cut = False
        self.on_write: Callable[[Sequence[Operation]], None] | None = None
        """Called before each write of this session, so that a test can interfere with the write."""
        self.has_held_writes = asyncio.Event()
        self._holding = False
        self._held: list[tuple[tuple[Operation, ...], asyncio.Future[Outcome]]] = []

    # --- faults that a test causes

    def hold_writes(self) -> None:
        """Delay all writes from now on until `release_writes` is called."""
        self._holding = True

    def release_writes(self) -> None:
        self._holding = False
        held, self._held = self._held, []
        for operations, outcome in held:
            self._commit(operations, outcome, self.session_id)

    def land_delayed(self) -> None:
        """Apply the delayed writes to the tree in order; the session does not learn their outcome."""
        delayed, self._delayed = self._delayed, []
        for operations in delayed:
            if self._shared.lives(self.session_id):
                with suppress(MetadataError):
                    self._shared.write(operations, self.session_id)

    def expire(self) -> None:
        """End the session on the server; the broker learns of the end when the test calls `notice`, or with its next
        request.
        """
        self._shared.end(self.session_id)

    def notice(self) -> None:
        """Notify the broker that its session has ended."""
        if self._session is not SessionState.LOST:
            self._change_session(SessionState.LOST)

    def reconnect(self) -> None:
        """Reconnect a session that was cut off: the session continues, and its broker learns that it may have missed
        changes.
        """
        self.is_cut = False
        self._session_watches.tell(SessionState.CONNECTED)
        self._watches.all_may_have_changed()

    # --- differences from the real session

    def on_changed(self, changed: Sequence[str], *, is_own: bool) -> None:
        if is_own or not self.is_cut:
            super().on_changed(changed, is_own=is_own)

    def on_ended(self) -> None:
        pass

    async def close(self) -> None:
        await super().close()
        self.notice()

    def _require_session(self) -> None:
        if self.is_cut:
            raise ConnectionLost("", "cut off")
        if self._session is SessionState.LOST or not self._shared.lives(self.session_id):
            self.notice()
            raise SessionExpired("", "the session is over")

    def _send(self, operations: tuple[Operation, ...], outcome: asyncio.Future[Outcome]) -> None:
        loop = asyncio.get_running_loop()
        if self.lose_requests:
            self.lose_requests -= 1
            loop.call_soon(fail, outcome, ConnectionLost("", "the request was lost"))
        elif self.delay_requests:
            self.delay_requests -= 1
            self._delayed.append(operations)
            loop.call_soon(fail, outcome, ConnectionLost("", "the request is late"))
        elif self._holding:
            self._held.append((operations, outcome))
            self.has_held_writes.set()
        else:
            super()._send(operations, outcome)

    def _commit(self, operations: tuple[Operation, ...], outcome: asyncio.Future[Outcome], session_id: int) -> None:
        try:
            if self.on_write is not None:
                self.on_write(operations)
            if not self.lose_replies or not self._shared.lives(session_id):
                super()._commit(operations, outcome, session_id)
                return
            self._shared.write(operations, session_id)
        except (MetadataError, AssertionError) as error:  # a test's check of the changed tree raises AssertionError
            fail(outcome, error)
        else:
            self.lose_replies -= 1
            fail(outcome, ConnectionLost("", "the reply was lost"))
