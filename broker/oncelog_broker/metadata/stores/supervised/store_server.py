"""The supervisor's side of the workers' metadata store: an embedded store, and a session for each connected worker.

- A session is the connection of one process: when the process dies, the kernel closes the connection, and the session's
  ephemeral nodes are deleted immediately. ZooKeeper would wait for the session timeout.
- A worker that hangs or is paused sends no heartbeat, and its session ends `SESSION_SECONDS` after its last message.
  The worker may begin another session on the same connection. A worker that still sends nothing `HUNG_SECONDS` later
  hangs; its process is killed. If the supervisor itself was paused, both timeouts start again.
- The requests of a connection are handled in order. The response to a read comes immediately from memory; the response
  to a write is sent when the write is durable. A message with the changed paths is sent to every session before the
  response to the write.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from oncelog_broker.metadata.stores.embedded import EmbeddedStore
from oncelog_broker.metadata.stores.store import MetadataError, SessionExpired, SessionKey
from oncelog_broker.metadata.stores.supervised.messages import (
    MAX_REQUEST_FRAME,
    NOTICE,
    Frames,
    as_text,
    encode_error,
    parse_operation,
)
from oncelog_broker.metadata.stores.tree_store import Outcome

SESSION_SECONDS: Final = 6.0
"""A worker that sends nothing for this number of seconds loses its session."""
HUNG_SECONDS: Final = 30.0
"""A worker that sends nothing for this number of seconds after the end of its session hangs."""
LATE_SECONDS: Final = 1.0
"""If a periodic check of a session is late by more than this number of seconds, the supervisor was paused, and unread
messages of the worker may be waiting.
"""
READ_SECONDS: Final = 0.05
"""Before a session ends, the supervisor reads the worker's messages for this number of seconds, because the event loop
of a process that was paused may call its timers before it reads.
"""
PASSWORD_BYTES: Final = 16

_log = logging.getLogger(__name__)


class StoreServer:
    """Serves an open embedded store to the workers of one supervisor. An instance belongs to one event loop."""

    def __init__(
        self, store: EmbeddedStore, session_seconds: float = SESSION_SECONDS, hung_seconds: float = HUNG_SECONDS
    ) -> None:
        self.session_seconds = session_seconds
        self.hung_seconds = hung_seconds
        self.store = store
        self._connections: set[WorkerConnection] = set()
        self._changed: list[str] = []
        """Changed paths that have not been sent to the sessions yet."""
        self._unwatch = store.watch("/", self._on_changed)

    async def connect(self, on_hung: Callable[[], None] | None = None) -> socket.socket:
        """Return the worker's socket of a new connection. The caller passes the socket to one worker process, and then
        closes its own copy. `on_hung` is called when the worker hangs after its session has ended, once for each
        session.
        """
        ours, theirs = socket.socketpair()
        try:
            await self.attach(ours, on_hung)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        return theirs

    async def attach(self, connection: socket.socket, on_hung: Callable[[], None] | None = None) -> None:
        """Serve the worker that has the other end of this connection. `connect` describes `on_hung`."""
        made = WorkerConnection(self, on_hung)
        await asyncio.get_running_loop().create_unix_connection(lambda: made.frames, sock=connection)
        self._connections.add(made)

    def close(self) -> None:
        """Close all connections; workers that still run then end."""
        self._unwatch()
        for connection in tuple(self._connections):
            connection.frames.close()

    # --- methods that the connections call

    def session(self, key: SessionKey) -> WorkerConnection | None:
        """Return the connection whose session has this key; None if there is no such session."""
        for connection in self._connections:
            live = connection.key
            if (
                live is not None
                and live.session_id == key.session_id
                and hmac.compare_digest(live.password, key.password)
            ):
                return connection
        return None

    def forget(self, connection: WorkerConnection) -> None:
        """Remove a connection that was closed."""
        self._connections.discard(connection)

    def tell_changes(self) -> None:
        """Send the changed paths to all sessions."""
        if self._changed:
            changed, self._changed = self._changed, []
            for connection in self._connections:
                if connection.key is not None:
                    connection.frames.send([NOTICE, self.store.last_zxid, "changed", *changed])

    def _on_changed(self, path: str) -> None:
        if not self._changed:
            asyncio.get_running_loop().call_soon(self.tell_changes)
        self._changed.append(path)


class WorkerConnection:
    """The connection of one worker, and its session."""

    def __init__(self, server: StoreServer, on_hung: Callable[[], None] | None) -> None:
        self._server = server
        self._store = server.store
        self._on_hung = on_hung
        self.frames = Frames(self._on_message, self._on_lost, MAX_REQUEST_FRAME)
        self.key: SessionKey | None = None
        """The key of the session; None before a session has begun, and after the session is over."""
        self._heard = 0.0
        """The time at which the last message was received, in seconds of the event loop's clock."""
        self._check: asyncio.TimerHandle | None = None
        """The timer of the next check whether the worker still sends messages. The checks continue after a session that
        has ended because the worker sent nothing."""
        self._requests: dict[str, Callable[..., object]] = {
            "begin": self._begin,
            "beat": lambda: None,
            "get": self._get,
            "exists": self._exists,
            "children": self._children,
            "write": self._write,
            "end": self.end,
            "end_session": self._end_session,
        }

    def end(self) -> asyncio.Future[Outcome] | None:
        """End the session. Returns the future of the write that deletes its ephemeral nodes; None without a session."""
        if self._check is not None:
            self._check.cancel()
        if self.key is None:
            return None
        session_id, self.key = self.key.session_id, None
        try:
            return self._store.end_session_of(session_id)
        except SessionExpired:  # the store was closed, so the session's ephemeral nodes are already deleted
            return None

    # --- methods that the frame protocol calls

    def _on_message(self, message: list[Any]) -> None:
        self._heard = asyncio.get_running_loop().time()
        number, name, *arguments = message
        try:
            if self.key is None and name not in ("begin", "end"):
                raise SessionExpired("", "the session is over")
            value = self._requests[name](*arguments)
        except MetadataError as error:
            self._fail(number, error)
            return
        if isinstance(value, asyncio.Future):
            value.add_done_callback(partial(self._on_written, number))
        else:
            self._answer(number, value)

    def _on_lost(self) -> None:
        self._server.forget(self)
        ended = self.end()
        if ended is not None:
            ended.add_done_callback(_log_failure)

    def _on_written(self, number: int, outcome: asyncio.Future[Outcome]) -> None:
        error = outcome.exception()
        if isinstance(error, MetadataError):
            self._fail(number, error)
        elif error is not None:
            raise error
        else:
            self._answer(number, outcome.result())

    def _answer(self, number: int, value: object) -> None:
        self._server.tell_changes()
        self.frames.send([number, self._store.last_zxid, "done", value])

    def _fail(self, number: int, error: MetadataError) -> None:
        self._server.tell_changes()
        self.frames.send([number, self._store.last_zxid, "failed", *encode_error(error)])

    # --- methods that handle the requests of the worker ---------------------------------------------------------------

    def _begin(self) -> list[object]:
        self.end()
        # The session id differs from the id of the store's own session, and from all session ids before a restart of
        # the supervisor.
        self.key = SessionKey(secrets.randbits(62) + 2, os.urandom(PASSWORD_BYTES))
        self._plan_check(self._server.session_seconds)
        return [self.key.session_id, as_text(self.key.password), self._server.session_seconds]

    def _get(self, paths: list[str]) -> list[object]:
        found: list[object] = []
        for path in paths:
            node = self._store.node(path)
            found.append(None if node is None else [as_text(node.data), node.stat])
        return found

    def _exists(self, path: str) -> object:
        node = self._store.node(path)
        return None if node is None else node.stat

    def _children(self, path: str) -> list[str] | None:
        return self._store.names_below(path)

    def _write(self, operations: list[list[Any]]) -> asyncio.Future[Outcome]:
        assert self.key is not None
        return self._store.write_for(self.key.session_id, tuple(map(parse_operation, operations)))

    def _end_session(self, session_id: int, password: str) -> asyncio.Future[Outcome] | None:
        found = self._server.session(SessionKey(session_id, password.encode("latin-1")))
        return None if found is None else found.expire()

    # --- methods that end a session whose process still has the connection --------------------------------------------

    def expire(self) -> asyncio.Future[Outcome] | None:
        """End the session, and notify the worker, which may begin another session. Returns the future of the write that
        deletes the session's ephemeral nodes; None without a session.
        """
        ended = self.end()
        self.frames.send([NOTICE, self._store.last_zxid, "over"])
        return ended

    def _plan_check(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._check = loop.call_later(seconds, self._check_silence, loop.time() + seconds)

    def _check_silence(self, planned: float, *, has_read: bool = False) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now - planned > LATE_SECONDS:
            self._heard = now
        limit = self._server.session_seconds + (self._server.hung_seconds if self.key is None else 0.0)
        remaining = self._heard + limit - now
        if remaining > 0:
            self._plan_check(remaining)
        elif not has_read:
            read = partial(self._check_silence, now + READ_SECONDS, has_read=True)
            self._check = loop.call_later(READ_SECONDS, read)
        elif self.key is not None:
            self._expire_silent()
        elif self._on_hung is not None:
            self._on_hung()

    def _expire_silent(self) -> None:
        _log.warning("a worker has sent nothing for %g s: its session ends", self._server.session_seconds)
        ended = self.expire()
        if ended is not None:
            ended.add_done_callback(_log_failure)
        self._plan_check(self._server.hung_seconds)


def _log_failure(ended: asyncio.Future[Outcome]) -> None:
    if ended.exception() is not None:
        _log.error("the ephemeral nodes of a session could not be deleted: %s", ended.exception())
