"""The metadata store of a single broker, or of the workers of one machine: nodes in memory, durable in one SQLite file.

- Reads never touch the disk and never wait. Writes run in one worker thread, so that the event loop never waits for
fsync.
- Writes that arrive while another write is running are committed together after that write, with one fsync for all of
  them (group commit); each write is still atomic.
- Ephemeral nodes exist only in memory, since no session outlives this process. The store has a session of its own; in a
  supervisor, it also has a session for each worker (`supervised/`). The id of the last write is
  durable even if that write created only ephemeral nodes, so that no czxid is used twice; a broker epoch is such a
  czxid.
- SQLite uses a write-ahead log and synchronous=FULL, and locks the file from open to close, so that a second process
  gets an error. The last writes are therefore synced in the -wal file, and survive `kill -9` and a power cut. If
  somebody deletes or truncates the -wal file, the store returns to an older state, and nothing in the main file shows
  that. A -wal file from another state of the store is refused (`write_ahead_log.py`).

`sqlite3` is imported when a store is opened, because the import is most of the cost of opening a store.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from oncelog_broker.metadata.stores.store import (
    ConnectionLost,
    Delete,
    MetadataError,
    Operation,
    SessionExpired,
    SessionKey,
    SessionState,
    check_operation,
)
from oncelog_broker.metadata.stores.tree import Transaction, Tree, TreeNode
from oncelog_broker.metadata.stores.tree_store import Outcome, TreeStore
from oncelog_broker.metadata.stores.write_ahead_log import LogBase, LogOfAnotherFile, check
from oncelog_broker.runtime.private_files import SECRET_MODE
from oncelog_protocol.light_classes import NamedTuple

if TYPE_CHECKING:
    import sqlite3

_log = logging.getLogger(__name__)

FORMAT_VERSION = 1
"""SQLite's user_version in the file; a file with another version is refused."""

SESSION_ID = 1
"""The session of the process that has the file open: the owner of ephemeral nodes that this process creates itself."""

_SCHEMA = """
CREATE TABLE node(path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL, czxid INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE last_write(zxid INTEGER NOT NULL, base TEXT, previous_base TEXT);
INSERT INTO last_write VALUES (0, NULL, NULL);
"""
_UPSERT = "INSERT OR REPLACE INTO node(path, data, version, czxid) VALUES (?, ?, ?, ?)"
_DELETE = "DELETE FROM node WHERE path = ?"


class _Queued(NamedTuple):
    """A write that waits for its commit."""

    operations: tuple[Operation, ...] | None
    """The operations of the write. None stands for the deletion of all ephemeral nodes that the session has when the
    write runs.
    """
    session_id: int
    """The id of the session that owns the ephemeral nodes created by the write."""
    outcome: asyncio.Future[Outcome]


class StoreFileError(Exception):
    """The file cannot be opened as a metadata store; the message says why and what to do."""


class EmbeddedStore(TreeStore):
    """A `MetadataStore` in one SQLite file. Open a store with `EmbeddedStore.open`; an instance belongs to one event
    loop.
    """

    def __init__(self, connection: sqlite3.Connection, log_base: LogBase, tree: Tree, zxid: int) -> None:
        super().__init__(tree)
        self._connection = connection
        self._log_base = log_base
        self._zxid = zxid
        self._closed = False
        self._failure: SessionExpired | None = None
        """The error of every further write, after a failure that left the content of the file unknown; None before such
        a failure.
        """
        self._queue: list[_Queued] = []
        self._writer: asyncio.Task[None] | None = None
        # the thread of the executor starts with the first job
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")

    @classmethod
    def open(cls, path: Path) -> EmbeddedStore:
        """Open the store in the file `path`; create an empty store if the file does not exist. This call blocks the
        event loop for some milliseconds.

        Raises StoreFileError if another process has the file open, if the file is damaged, or if the file is not a
        metadata store.
        """
        import sqlite3

        connection: sqlite3.Connection | None = None
        try:
            check(path)
            if not path.exists():
                _create_file(path)
            elif path.stat().st_size == 0:
                raise ValueError("the file is empty")  # refuse this file, because SQLite would turn it into a database
            connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN EXCLUSIVE")  # this acquires the file lock, which exclusive mode keeps
            connection.execute("COMMIT")
            # move writes that a crash left in the -wal file to the main file
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            log_base = LogBase(connection, path)
            tree, zxid = _load(connection)
        except LogOfAnotherFile as error:
            raise StoreFileError(str(error)) from None
        except (sqlite3.Error, OSError, ValueError, TypeError, AttributeError) as error:
            if connection is not None:
                connection.close()
            raise _open_failure(path, error) from error
        return cls(connection, log_base, tree, zxid)

    @property
    def session_id(self) -> int:
        return SESSION_ID

    @property
    def session_key(self) -> SessionKey | None:
        return None

    @property
    def last_zxid(self) -> int:
        return self._zxid

    def nodes(self) -> dict[str, bytes]:
        """Return path -> data of all nodes that outlive the session, parents first."""
        found = {path: node.data for path, node in self._tree.nodes() if not node.ephemeral_owner}
        return dict(sorted(found.items()))

    @property
    def session_timeout(self) -> float:
        return 0.0

    async def end_session(self, key: SessionKey) -> None:
        """Do nothing, because the other process has certainly ended: it would otherwise still have the file locked."""

    async def close(self) -> None:
        """Finish the running writes, move the write-ahead log into the file, and release the lock."""
        if self._closed:
            return
        self._closed = True
        if self._session is not SessionState.LOST:
            self._lose_session()
        if self._writer is not None:
            await self._writer
        await asyncio.get_running_loop().run_in_executor(self._executor, self._connection.close)
        self._executor.shutdown(wait=False)

    def _require_session(self) -> None:
        if self._session is SessionState.LOST:
            raise SessionExpired("", "the metadata store is closed")

    def write_for(self, session_id: int, operations: tuple[Operation, ...]) -> asyncio.Future[Outcome]:
        """Begin a write that another process has requested. The session `session_id` of that process owns the ephemeral
        nodes that the write creates. Raises StoreUnavailable, ValueError immediately; the returned future raises
        MetadataError.
        """
        self._require_session()
        for operation in operations:
            check_operation(operation)
        return self._enqueue(operations, session_id)

    def end_session_of(self, session_id: int) -> asyncio.Future[Outcome]:
        """Begin to delete the ephemeral nodes of another process's session, after the earlier writes of that session.
        Raises StoreUnavailable immediately, or sets StoreUnavailable as the exception of the returned future.
        """
        self._require_session()
        return self._enqueue(None, session_id)

    def _submit(self, operations: tuple[Operation, ...]) -> asyncio.Future[Outcome]:
        return self.write_for(SESSION_ID, operations)

    def _enqueue(self, operations: tuple[Operation, ...] | None, session_id: int) -> asyncio.Future[Outcome]:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()
        self._queue.append(_Queued(operations, session_id, outcome))
        if self._writer is None:
            self._writer = loop.create_task(self._write_queued())
        return outcome

    async def _write_queued(self) -> None:
        """Commit all queued writes together, repeatedly until the queue is empty."""
        while self._queue:
            batch, self._queue = self._queue, []
            if self._failure is None:
                try:
                    await self._write(batch)
                except Exception as error:  # fail the writes with an unknown result, because no caller may wait forever
                    _log.critical("metadata store: a write failed, the session ends", exc_info=error)
                    self._failure = SessionExpired("", f"a write to the metadata store failed: {error}")
                    _settle(batch, [self._failure] * len(batch))
                    self._lose_session()
            else:
                _settle(batch, [self._failure] * len(batch))
        self._writer = None

    async def _write(self, batch: list[_Queued]) -> None:
        staged = Transaction(self._tree.node, self._zxid)
        zxid = self._zxid
        outcomes: list[Outcome | MetadataError] = []
        for queued in batch:
            transaction = Transaction(staged.node, zxid + 1, queued.session_id)
            operations = queued.operations
            if operations is None:
                operations = self._deletes_of_session(queued.session_id, staged)
            try:
                outcomes.append([transaction.apply(operation) for operation in operations])
            except MetadataError as error:
                outcomes.append(error.with_traceback(None))
                continue
            if transaction.changes:
                zxid += 1
                staged.changes.update(transaction.changes)
        if staged.changes:
            rows = [(path, node) for path, node in staged.changes.items() if self._must_store(path, node)]
            failure = await self._commit(rows, zxid)
            if failure is None:
                self._zxid = zxid
                self._watches.changed(self._tree.apply(staged.changes))
            else:  # undo the staged changes, because outcomes may depend on changes that were not written
                outcomes = [failure] * len(batch)
        _settle(batch, outcomes)

    def _deletes_of_session(self, session_id: int, staged: Transaction) -> tuple[Operation, ...]:
        """Return the operations that delete all ephemeral nodes of a session, including nodes that `staged` (writes not
        committed yet) has created.
        """
        candidates = {path for path, node in self._tree.nodes() if node.ephemeral_owner == session_id}
        candidates |= staged.changes.keys()
        nodes = ((path, staged.node(path)) for path in sorted(candidates))
        return tuple(Delete(path) for path, node in nodes if node is not None and node.ephemeral_owner == session_id)

    def _must_store(self, path: str, node: TreeNode | None) -> bool:
        return node is None or not node.same_content(self._tree.node(path))

    async def _commit(self, rows: list[tuple[str, TreeNode | None]], zxid: int) -> MetadataError | None:
        """Make rows durable in the worker thread; returns None, or the error.

        If the disk is full, the transaction is rolled back and may be retried. After any other failure the content of
        the file is unknown: an fsync that is repeated after a failure may succeed although data are lost. The session
        then ends, and a restart reads the actual state.
        """
        import sqlite3

        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._executor, self._commit_in_thread, rows, zxid)
        except Exception as error:  # catch every error, because no caller may wait forever for its outcome
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                _log.error("metadata store: the disk is full, nothing was written")
                return ConnectionLost("", "the disk of the metadata store is full")
            _log.critical("metadata store: writing failed, the session ends: %s", error)
            self._failure = SessionExpired("", f"writing to the metadata store failed: {error}")
            self._lose_session()
            return self._failure
        return None

    def _commit_in_thread(self, rows: list[tuple[str, TreeNode | None]], zxid: int) -> None:
        self._log_base.renew_if_due()
        _commit_rows(self._connection, rows, zxid)

    def _lose_session(self) -> None:
        self._change_session(SessionState.LOST)


def _settle(batch: Sequence[_Queued], outcomes: Sequence[Outcome | MetadataError]) -> None:
    for queued, outcome in zip(batch, outcomes, strict=True):
        if queued.outcome.done():  # skip the outcome, because the caller of this write was cancelled
            continue
        if isinstance(outcome, MetadataError):
            queued.outcome.set_exception(outcome)
        else:
            queued.outcome.set_result(outcome)


def _create_file(path: Path) -> None:
    """Write an empty store to a file with another name and rename the file, so that an incomplete file never has the
    final name.
    """
    import sqlite3

    unfinished = path.with_name(path.name + ".new")
    unfinished.unlink(missing_ok=True)
    # SQLite would create the file readable for all users. The file contains the keys that verify SCRAM logins. The -wal
    # and -shm files get the same mode as the file.
    os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, SECRET_MODE))
    connection = sqlite3.connect(unfinished, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = OFF")  # the complete file is synced below
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.executescript(_SCHEMA)
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()
    for name in (unfinished, path.parent):
        if name == path.parent:
            unfinished.rename(path)
        descriptor = os.open(name, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _load(connection: sqlite3.Connection) -> tuple[Tree, int]:
    """Return all nodes and the id of the last write. Raises ValueError for a file of another format."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != FORMAT_VERSION:
        raise ValueError(f"its format version is {version}, this release supports {FORMAT_VERSION}")
    (zxid,) = connection.execute("SELECT zxid FROM last_write").fetchone()
    return Tree(connection.execute("SELECT path, data, version, czxid FROM node"), zxid), zxid


def _commit_rows(connection: sqlite3.Connection, rows: list[tuple[str, TreeNode | None]], zxid: int) -> None:
    """Write the rows in one SQLite transaction, which is committed to the disk when this function returns, or rolled
    back when this function raises.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        kept = [(path, n.data, n.version, n.czxid) for path, n in rows if n is not None and not n.ephemeral_owner]
        connection.executemany(_DELETE, [(path,) for path, node in rows if node is None or node.ephemeral_owner])
        connection.executemany(_UPSERT, kept)
        connection.execute("UPDATE last_write SET zxid = ?, previous_base = NULL", (zxid,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _open_failure(path: Path, error: Exception) -> StoreFileError:
    reason = str(error)
    if "locked" in reason:
        return StoreFileError(
            f"{path} is in use by another process: stop the other broker, or give this one a data directory of its own"
        )
    barred = [each for each in (path.parent, path) if each.exists() and not os.access(each, os.R_OK | os.W_OK)]
    if barred:  # without these permissions, SQLite may report only "disk I/O error"
        return StoreFileError(f"{barred[0]} may not be read and written by this user: {reason}. Change its permissions")
    if isinstance(error, OSError) or "unable to open" in reason or "readonly" in reason:
        return StoreFileError(f"{path} cannot be opened: {reason}. Check that its directory exists and may be written")
    return StoreFileError(
        f"{path} is not a readable metadata store: {reason}. Put it back from a backup, with the -wal file that was "
        f"beside it then, or with none. Without a backup, move it and its -wal file away and start again: the "
        "broker's copy of the metadata is used. Without that copy, topics are restored from the "
        "log directories and keep their records for ever, since their settings, users, ACLs and quotas are lost"
    )
