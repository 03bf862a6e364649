"""The interface of the coordination service that a cluster depends on: a small tree of versioned nodes, with
ZooKeeper's semantics.

Implementations: `embedded.py` (one broker, one local file), `supervised/` (the workers of one machine, whose supervisor
has the file), `zookeeper/` (a cluster) and `in_memory.py` (a cluster in one process, for tests). The same tests run
against all stores (`tests/unit/broker/metadata/stores/test_store_contract.py`), so a caller may rely on these rules:

- A node has data, a `version` (0 at creation, increased by one with every set) and a `czxid`. The czxid is the id of
  the write that created the node. Every write has a higher id than all earlier writes, also across restarts of the
  store. A broker epoch is the czxid of the broker's registration (KIP-380).
- A write is durable when its `await` returns. Before the write is durable, no read returns it. The writes of one caller
  happen in the order of the calls.
- `multi` does all operations or none; all nodes that one `multi` creates have the same czxid.
- A write that fails with `ConnectionLost` or `SessionExpired` may have happened, or may still happen later. A caller
  that must know whether the write happened calls `sync`, then reads, and looks for a value that only this write can
  have written: a random id, or its own session as owner of an ephemeral node. Without such a value, the caller must
  treat the write as the write of another writer (S1).
- Within a session, reads never go back in time. A session begins with a write of its own, so that a read in the session
  is never older than its beginning.
- While the connection is broken, every operation fails immediately with `ConnectionLost`; an operation that failed is
  never executed in a later session.
- All callbacks are plain functions, called in the event loop. Callbacks must not raise, and must be fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, Protocol

from oncelog_protocol.light_classes import NamedTuple, dataclass

ANY_VERSION = -1
"""Value of an expected version with which the operation succeeds whatever version the node has."""
MAX_REQUEST_BYTES = 900_000
"""Maximum bytes of one write: paths, data and overhead. A ZooKeeper server closes the connection if a request exceeds 1
MiB (jute.maxbuffer)."""
OVERHEAD_BYTES = 80
"""The maximum number of bytes that an operation of a multi needs, with its ACL, in addition to its path and data."""


class MetadataError(Exception):
    """Any failure of a metadata store. `path` is the path of the node that the failed operation names, or ""."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


class NoNode(MetadataError):
    """The node does not exist; in a create, the parent of the node does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "no such node")


class NodeExists(MetadataError):
    """The node to be created exists already."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "the node exists already")


class BadVersion(MetadataError):
    """The node's version is not the expected version, because another session has written the node. ZooKeeper does not
    report the actual version."""

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
    """A write exceeds MAX_REQUEST_BYTES; ZooKeeper would drop the connection at each attempt. `path` is the path of the
    node with the most bytes in this write. After this error nothing was written, and a retry does not help.
    """


class StoreUnavailable(MetadataError):
    """The store did not respond. If the operation was a write, it is unknown whether the write happened."""


class ConnectionLost(StoreUnavailable):
    """The connection broke; the session may still be alive, and a later attempt may succeed."""


class SessionExpired(StoreUnavailable):
    """The session is over, and its ephemeral nodes are gone. A later attempt may succeed, because the store begins a
    new session, unless the store was closed.
    """


class AccessDenied(StoreUnavailable):
    """The store denies access: the node is protected for another identity. A denied write has changed nothing, and a
    retry is denied, too, until an administrator changes the ACL."""


class SessionState(Enum):
    """The state of a session, as far as the broker knows."""

    CONNECTED = "connected"
    """CONNECTED: the lease is valid: this broker's ephemeral nodes exist, so no other process has taken over its id."""
    IN_DOUBT = "in doubt"
    """IN_DOUBT: the lease has ended (`lease_until`): the session may or may not be over. In this state the broker leads
    no partition, but keeps all state.
    """
    LOST = "lost"
    """LOST: the session is over: another broker may be controller or leader by now. The ZooKeeper store then begins
    another session, and reports CONNECTED.
    """


class SessionKey(NamedTuple):
    """The secret with which a process proves to a store that it owns a session."""

    session_id: int
    password: bytes


class Stat(NamedTuple):
    """The store's metadata of a node, without its data."""

    version: int
    czxid: int
    mzxid: int
    """The zxid of the last write of the node. For a node that was last written before the process started, the embedded
    store returns an upper bound: the zxid of the last write before the start.
    """
    ephemeral_owner: int = 0
    """The id of the session that owns an ephemeral node; 0 for a persistent node."""


@dataclass(frozen=True, slots=True)
class Check:
    """Makes the `multi` that contains it fail unless the node exists with this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """Creates the node; its parent must exist, or be created by an earlier operation of the same multi."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replaces the node's data if the node's version is the expected version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes the node, which must have no children, if the node's version is the expected version."""

    path: str
    version: int = ANY_VERSION


Operation = Check | Create | Set | Delete
WatchCallback = Callable[[str], None]
SessionCallback = Callable[[SessionState], None]
Unsubscribe = Callable[[], None]


class MetadataStore(Protocol):
    """A client of a tree of versioned nodes, with one session. The tree is in ZooKeeper, or has ZooKeeper's semantics.
    Every async method may raise StoreUnavailable.
    """

    @property
    def session(self) -> SessionState:
        """The present state of the session."""

    @property
    def session_id(self) -> int:
        """The id of this session, which is the `ephemeral_owner` of every ephemeral node that the session created."""

    @property
    def session_key(self) -> SessionKey | None:
        """The key with which a later process can end this session; None if sessions end with their process."""

    @property
    def last_zxid(self) -> int:
        """The id of the latest write that the store has reported to this process. Once a session has begun, this id is
        at least the id of every earlier write, because the beginning of a session is itself a write.
        """

    @property
    def session_timeout(self) -> float:
        """The session timeout: the number of seconds for which a session may continue after its process has ended."""

    async def end_session(self, key: SessionKey) -> None:
        """End a session of another process and remove its ephemeral nodes; does nothing if that session has already
        ended.

        Raises StoreUnavailable if that takes longer than the session lasts.
        """

    @property
    def lease_until(self) -> float:
        """The end of this session's lease, as a time of `Clock.uptime`; before this time, no other process can have
        taken over this broker's id. Compare this value with the clock at each use, because the timer that reports
        IN_DOUBT is late if the process was paused.
        """

    async def sync(self) -> None:
        """Wait until later reads in this session return at least all writes that any client has completed before this
        call. A ZooKeeper ensemble that is just changing its leader may respond too early. Only a write of this session
        proves that this session sees all earlier writes.
        """

    async def get(self, path: str) -> tuple[bytes, Stat]:
        """Return the data and the stat of a node. Raises NoNode."""

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Read many nodes in one request, in the given order; None for a node that does not exist. The result is not a
        snapshot, because the store may change between the reads of two paths.
        """

    async def exists(self, path: str) -> Stat | None:
        """Return the stat of a node; None if the node does not exist."""

    async def children(self, path: str) -> list[str]:
        """Return the names (not the paths) of a node's children, sorted. Raises NoNode."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace a node's data. Raises NoNode, BadVersion."""

    async def create(self, path: str, data: bytes = b"", ephemeral: bool = False, make_parents: bool = False) -> Stat:
        """Create a node, and with `make_parents` its missing ancestors (empty, persistent).

        Raises NodeExists, NoNode (for the parent), NoChildrenForEphemerals.
        """

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node that has no children. Raises NoNode, BadVersion, NotEmpty."""

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        """Do all operations in order, or none; returns the stat of each node that was created or set, None for other
        operations.

        Raises RequestTooLarge, or the error of the first operation that fails, with the path of that operation.
        """

    def watch(self, path: str, callback: WatchCallback) -> Unsubscribe:
        """Call `callback` with the path of each node at or below `path` that is created, set or deleted from now on.

        A call of `callback` means only that the path should be read again: several changes may cause a single call. A
        call with `path` itself also means that any node below may have changed, for example after a reconnect. The path
        need not exist. The callback for a change is called before the await of the write that made the change returns.
        """

    def watch_session(self, callback: SessionCallback) -> Unsubscribe:
        """Call `callback` with each new state of the session."""

    async def close(self) -> None:
        """End the session, which removes its ephemeral nodes. Writes that this process has already started are finished
        first. This method may be called repeatedly.
        """


_ILLEGAL_NAMES: Final = frozenset(("", ".", ".."))


def check_path(path: str) -> None:
    """Raise ValueError for a path that ZooKeeper would refuse. Only a bug can produce such a path."""
    if path == "/":
        return
    if not path.startswith("/"):
        raise ValueError(f"a node's path starts with '/': {path!r}")
    if "\0" in path or not _ILLEGAL_NAMES.isdisjoint(path[1:].split("/")):
        raise ValueError(f"not a legal node path: {path!r}")


def check_operation(operation: Operation) -> None:
    """Raise ValueError if the path of the operation is the root, or a path that ZooKeeper would refuse."""
    check_path(operation.path)
    if operation.path == "/" and not isinstance(operation, Check):
        raise ValueError("the root is not to be written")


def size_of(operation: Operation) -> int:
    """Return the bytes that an operation contributes to a write, at most: path, data, and overhead."""
    data = operation.data if isinstance(operation, Create | Set) else b""
    return len(operation.path.encode()) + len(data) + OVERHEAD_BYTES


def check_size(operations: Sequence[Operation], sizes: Sequence[int]) -> None:
    """Raise RequestTooLarge if a write has more than MAX_REQUEST_BYTES. `sizes`: the size of each operation."""
    if sum(sizes) > MAX_REQUEST_BYTES:
        largest = operations[sizes.index(max(sizes))]
        raise RequestTooLarge(largest.path, f"a write of {sum(sizes)} bytes, of at most {MAX_REQUEST_BYTES}")


def parent_of(path: str) -> str:
    """Return the path of the parent node; "/" is its own parent."""
    return path.rpartition("/")[0] or "/"


def ancestors_of(path: str) -> list[str]:
    """Return the paths of all ancestors of a node, the root first."""
    ancestors = [parent_of(path)]
    while ancestors[-1] != "/":
        ancestors.append(parent_of(ancestors[-1]))
    return ancestors[::-1]
