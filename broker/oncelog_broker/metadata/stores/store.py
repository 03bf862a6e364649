"""The whole dependency on coordination: a small tree of versioned nodes, with ZooKeeper's semantics.

Implementations: `embedded.py` (one broker, one local file), `supervised/` (the workers of one machine, whose supervisor
has that file), `zookeeper/` (a cluster) and `in_memory.py` (a cluster in one process, for tests). The same tests run
against all stores (`tests/unit/broker/metadata/stores/test_store_contract.py`), so a caller may rely on these rules:

- A node has data, a `version` (0 at creation, one more with every set) and a `czxid` (id of the write that created it,
  growing for ever, also across restarts: the broker epoch is the czxid of the broker's registration, KIP-380).
- A write is durable when its await returns, and no reader sees it before. One caller's writes happen in call order.
- `multi` does all operations or none; all nodes that it creates have one czxid.
- A write that ends in `ConnectionLost` or `SessionExpired` may or may not have happened, or may happen yet. A
  caller that must know calls `sync`, reads, and looks for a value that no other writer can have written: the session
  that owns an ephemeral node, or a random id. Without such a value, the write counts as not ours (S1).
- Within a session reads never go back in time, and a session begins with a write of its own: a read in it is never
  older than its beginning.
- While the connection is broken, every operation fails with `ConnectionLost` at once; no such operation is done in a
  later session.
- All callbacks are plain functions, called in the event loop. They must not raise, and must be quick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1
"""As the expected version: any version matches."""
MAX_REQUEST_BYTES = 900_000
"""Limit on one write: paths, data and overhead. A ZooKeeper server closes the connection if a request exceeds 1 MiB
(jute.maxbuffer)."""
OVERHEAD_BYTES = 80
"""Bytes of one operation of a multi, with its ACL, in addition to path and data."""


class MetadataError(Exception):
    """Any failure of a metadata store. `path` is the node in question, "" if there is none."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


class NoNode(MetadataError):
    """The node, or for a create its parent, does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "no such node")


class NodeExists(MetadataError):
    """The node to be created exists already."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "the node exists already")


class BadVersion(MetadataError):
    """The node's version is not the expected one: another session has written it. ZooKeeper does not report the actual
    version."""

    def __init__(self, path: str, expected: int, actual: int | None = None) -> None:
        found = "another one" if actual is None else f"{actual}"
        super().__init__(path, f"expected version {expected}, but it is {found}")
        self.expected = expected
        self.actual = actual


class NotEmpty(MetadataError):
    """The node to be deleted has children."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "the node has children")


class NoChildrenForEphemerals(MetadataError):
    """The parent of the node to be created is ephemeral."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "an ephemeral node has no children")


class RequestTooLarge(MetadataError):
    """More than MAX_REQUEST_BYTES in one write: ZooKeeper would drop the connection, again and again. `path` is the
    node with the most bytes. Nothing was written, and trying again does not help."""


class StoreUnavailable(MetadataError):
    """The store did not answer. For a write: it is unknown whether it happened."""


class ConnectionLost(StoreUnavailable):
    """The connection broke; the session may still live, and a later try may succeed."""


class SessionExpired(StoreUnavailable):
    """The session is over, and its ephemeral nodes are gone. A later attempt succeeds in a new session that the store
    has begun since, never in a closed store."""


class AccessDenied(StoreUnavailable):
    """The store denies access: the node is protected for another identity. A denied write has changed nothing, and a
    retry is denied, too, until an administrator changes the ACL."""


class SessionState(Enum):
    """The certainty of the broker about its session."""

    CONNECTED = "connected"
    """The lease is valid: our ephemeral nodes exist, so no other process has taken our place."""
    IN_DOUBT = "in doubt"
    """The lease has ended (`lease_until`): the session may be over or not. Nothing is led, nothing is torn down."""
    LOST = "lost"
    """The session is over: another broker may be controller or leader by now. ZooKeeper's store begins another session
    by itself, and then reports CONNECTED."""


class SessionKey(NamedTuple):
    """The secret with which a process proves to a store that it owns a session."""

    session_id: int
    password: bytes


class Stat(NamedTuple):
    """The secret with which a process proves to a store that it owns a session."""

    version: int
    czxid: int
    mzxid: int
    """The store's metadata of a node, without its data. For a node older than the process the embedded store gives an
    upper bound: the last write before the process began."""
    ephemeral_owner: int = 0
    """The session that the node ends with; 0 for a persistent one."""


@dataclass(frozen=True, slots=True)
class Check:
    """Fails the multi unless the node exists with this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """Creates the node; its parent must exist, possibly by an earlier operation of the same multi."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replaces the node's data if its version is the expected one."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes the childless node if its version is the expected one."""

    path: str
    version: int = ANY_VERSION


Operation = Check | Create | Set | Delete
WatchCallback = Callable[[str], None]
SessionCallback = Callable[[SessionState], None]
Unsubscribe = Callable[[], None]


class MetadataStore(Protocol):
    """A tree of versioned nodes with one session (see the module). Every async method may raise StoreUnavailable."""

    @property
    def session(self) -> SessionState:
        """The state of the session now."""

    @property
    def session_id(self) -> int:
        """The id of this session: the `ephemeral_owner` of every ephemeral node that it created."""

    @property
    def session_key(self) -> SessionKey | None:
        """The key with which a later process can end this session; None if sessions end with their process."""

    @property
    def last_zxid(self) -> int:
        """Id of the latest write that the store has shown us. Once a session has begun, this id is not lower than the
        id of any earlier write: the beginning of a session is itself a write."""

    @property
    def session_timeout(self) -> float:
        """How long a session may outlive its process, in seconds."""

    async def end_session(self, key: SessionKey) -> None:
        """End a session that another process began, with its ephemeral nodes; does nothing if it is already over.

        StoreUnavailable where that takes longer than the session lasts.
        """

    @property
    def lease_until(self) -> float:
        """The end of this session's lease, on `Clock.uptime`: before it, no other process can have taken over this
        broker's id. Compare it at each use, as the timer that reports IN_DOUBT may be late: a process may have been
        stopped in between.
        """

    async def sync(self) -> None:
        """Return when reads show at least all writes, of any client, that were done when this was called. An ensemble
        that is just changing its leader may answer too early: only a write of our own proves that nothing is hidden."""

    async def get(self, path: str) -> tuple[bytes, Stat]:
        """Data and stat of a node. NoNode."""

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """`get` for many nodes in one go, one after the other in the order asked; None for a node that does not exist.
        Not a snapshot: later paths of the list may be read in a later state."""

    async def exists(self, path: str) -> Stat | None:
        """The stat of a node, None if the node does not exist."""

    async def children(self, path: str) -> list[str]:
        """The names (not paths) of a node's children, sorted. NoNode."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace a node's data. NoNode, BadVersion."""

    async def create(self, path: str, data: bytes = b"", ephemeral: bool = False, make_parents: bool = False) -> Stat:
        """Create a node, and with `make_parents` its missing ancestors (empty, persistent).

        NodeExists, NoNode (the parent), NoChildrenForEphemerals.
        """

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a childless node. NoNode, BadVersion, NotEmpty."""

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        """Do all operations, in order, or none; returns the stat of each node that was created or set, None for the
        others.

        Raises the error of the first that cannot be done, with its path; RequestTooLarge.
        """

    def watch(self, path: str, callback: WatchCallback) -> Unsubscribe:
        """Call `callback` with the path of each node at or beneath `path` that is created, set or deleted from now on.

        The callback means only that the caller should read that path again: several changes may cause one call. Called
        with `path` itself, it means that any node below may have changed (after a reconnect). The path need not exist.
        The callback for a change is called before the await of the write that made it returns.
        """

    def watch_session(self, callback: SessionCallback) -> Unsubscribe:
        """Call `callback` with each new state of the session."""

    async def close(self) -> None:
        """End the session: our ephemeral nodes go. Writes that were started are finished first. May be repeated."""


def check_path(path: str) -> None:
    """Refuse a path that ZooKeeper would refuse: ValueError, since only a bug can produce one."""
    if path == "/":
        return
    if not path.startswith("/"):
        raise ValueError(f"a node's path starts with '/': {path!r}")
    if "\0" in path or any(name in ("", ".", "..") for name in path[1:].split("/")):
        raise ValueError(f"not a legal node path: {path!r}")


def check_operation(operation: Operation) -> None:
    """Like `check_path`; also refuses to write the root."""
    check_path(operation.path)
    if operation.path == "/" and not isinstance(operation, Check):
        raise ValueError("the root is not to be written")


def size_of(operation: Operation) -> int:
    """Bytes that an operation contributes to a write, at most: path, data, and overhead."""
    data = operation.data if isinstance(operation, Create | Set) else b""
    return len(operation.path.encode()) + len(data) + OVERHEAD_BYTES


def check_size(operations: Sequence[Operation], sizes: Sequence[int]) -> None:
    """Raise RequestTooLarge if a write has more than MAX_REQUEST_BYTES. `sizes`: the size of each operation."""
    if sum(sizes) > MAX_REQUEST_BYTES:
        largest = operations[sizes.index(max(sizes))]
        raise RequestTooLarge(largest.path, f"a write of {sum(sizes)} bytes, of at most {MAX_REQUEST_BYTES}")


def parent_of(path: str) -> str:
    """The path of the node above; "/" is its own parent."""
    return path.rpartition("/")[0] or "/"


def ancestors_of(path: str) -> list[str]:
    """The paths of all nodes above, the root first."""
    ancestors = [parent_of(path)]
    while ancestors[-1] != "/":
        ancestors.append(parent_of(ancestors[-1]))
    return ancestors[::-1]
