"""The metadata store of a simulated world: an ensemble of ZooKeeper servers that exchange objects instead of the
protocol's bytes.

The leader has the tree. The leader executes writes one after another, each with the next zxid. Every server applies the
writes in this order, some time later, so reads from different servers may differ for a while. The start and the end of
a session are writes, too. A session expires when no server has reported to the leader, for the length of the session's
timeout, that the session is active; these reports have a delay. The client of an expired session may not yet know that
it has expired.

`Connection` is the state that one server has of one client. A client's requests get responses in order, and a read sees
the writes that the client has sent before. The methods for faults of an ensemble are at the end of `Ensemble`.
`sessions` has the client's side of a session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from kazoo import exceptions as kazoo
from kazoo.protocol.serialization import Exists, GetACL, GetChildren, GetData, Sync
from kazoo.security import OPEN_ACL_UNSAFE

from oncelog_broker.metadata.stores.store import (
    BadVersion,
    Delete,
    MetadataError,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionKey,
    Stat,
)
from oncelog_broker.metadata.stores.tree import Changes, Transaction, Tree, TreeNode
from oncelog_broker.metadata.stores.zookeeper.requests import AddWatch, Multi, MultiRead
from oncelog_simulation.loop import SimulatedLoop
from oncelog_simulation.network import Fabric
from oncelog_simulation.streams import Pipe, SimulatedHost

COMMIT_SECONDS: Final = (0.0003, 0.004)
"""Minimum and maximum seconds until a write has reached the leader and a majority of the servers."""
APPLY_SECONDS: Final = 0.004
"""Maximum seconds until a server has applied a committed write, unless the server lags."""
TICK_SECONDS: Final = 0.5
"""ZooKeeper's tickTime in seconds: a session may expire this much too late. Servers report active sessions to the
leader twice in this time.
"""

_ERRORS: Final[dict[type[MetadataError], type[Exception]]] = {
    NoNode: kazoo.NoNodeError,
    NodeExists: kazoo.NodeExistsError,
    BadVersion: kazoo.BadVersionError,
    NotEmpty: kazoo.NotEmptyError,
    NoChildrenForEphemerals: kazoo.NoChildrenForEphemeralsError,
}


class ZnodeStat(NamedTuple):
    """A stat in the form in which kazoo returns it."""

    version: int
    czxid: int
    mzxid: int
    ephemeralOwner: int  # noqa: N815 - kazoo's name


class Answer(NamedTuple):
    """The response to the request with this number. If the request has failed, `result` is an exception."""

    number: int
    result: Any
    zxid: int


class Changed(NamedTuple):
    """A notification: a watched node was created, set or deleted."""

    path: str


class ChangedTogether(NamedTuple):
    """The notifications of one write, in one packet."""

    paths: Sequence[str]


class Accepted(NamedTuple):
    """The packet with which a server says that the session is alive, and is served on this connection."""

    key: SessionKey
    timeout: float


class Expired(NamedTuple):
    """The server's packet that says: the session has expired."""


class Hello(NamedTuple):
    """The first packet of a client: starts a session, or resumes the session with this key."""

    key: SessionKey | None
    timeout: float
    seen_zxid: int


class Request(NamedTuple):
    """A client's request, with its number."""

    number: int
    body: Any


class Ping(NamedTuple):
    """The client's keep-alive packet."""


class Close(NamedTuple):
    """The client's packet that ends its session."""

    number: int


class SessionRecord:
    """What the leader knows of a session."""

    __slots__ = ("heard_at", "key", "timeout")

    def __init__(self, key: SessionKey, timeout: float, heard_at: float) -> None:
        self.key = key
        self.timeout = timeout
        self.heard_at = heard_at


class Server:
    """One server, with its tree up to the last write that it has applied."""

    def __init__(self, host: SimulatedHost, tree: Tree) -> None:
        self.host = host
        self.tree = tree
        self.zxid = 0
        """Id of the last write that this server has applied."""
        self.applies_at = 0.0
        self.submits_at = 0.0
        self.lag = 0.0
        """Seconds by which this server is behind, in addition to the usual delay."""
        self.is_up = True
        self.connections: dict[Connection, None] = {}
        self.heard: dict[int, float] = {}
        """Sessions that are not yet reported to the leader: for each session id, the virtual time of its last packet.
        """


class Connection:
    """The state that one server has of one connected client."""

    def __init__(self, ensemble: Ensemble, server: Server) -> None:
        self._ensemble = ensemble
        self.server = server
        self.host = server.host
        self.pipe: Pipe
        """The pipe to the client."""
        self.session_id = 0
        self.is_gone = False
        self.watches: dict[str, None] = {}
        self._pending: deque[list[Any]] = deque()
        """Requests without a response yet, in order. Each is a list of four: the number of the request; its body; the
        zxid that the server must have applied before it responds (None until the leader has handled the request); the
        result of a write.
        """

    def arrived(self, packet: Any) -> None:
        """Handle a packet from the client. The connection's pipe calls this."""
        if self.is_gone or not self.server.is_up:
            return
        ensemble = self._ensemble
        if ensemble.on_packet is not None:
            ensemble.on_packet(packet)
        if self.session_id:
            self.server.heard[self.session_id] = ensemble.loop.now
        if isinstance(packet, Request):
            pending = [packet.number, packet.body, None, None]
            self._pending.append(pending)
            if isinstance(packet.body, Multi):
                ensemble.submit(self.server, self._commit, pending)
            elif isinstance(packet.body, Sync):
                ensemble.submit(self.server, self._learn_zxid, pending)
            else:
                pending[2] = 0
                self.pump()
        elif isinstance(packet, Hello):
            ensemble.accept(self, packet)
        elif isinstance(packet, Close):
            ensemble.submit(self.server, self._close, packet.number)

    def _commit(self, pending: list[Any]) -> None:
        if self.session_id not in self._ensemble.sessions:
            self.drop()
            return
        pending[3] = self._ensemble.write(pending[1].operations, self.session_id)
        pending[2] = self._ensemble.zxid
        self.pump()

    def _learn_zxid(self, pending: list[Any]) -> None:
        pending[2] = self._ensemble.zxid
        self.pump()

    def _close(self, number: int) -> None:
        self._ensemble.end_session(self.session_id, "closed")
        self.tell(Answer(number, None, self._ensemble.zxid))
        self.drop()

    def pump(self) -> None:
        """Respond to all requests whose responses are ready, in order."""
        pending, server = self._pending, self.server
        while pending and pending[0][2] is not None and pending[0][2] <= server.zxid:
            number, body, _, written = pending.popleft()
            result = written if isinstance(body, Multi) else self._read(body)
            self.tell(Answer(number, result, server.zxid))

    def _read(self, body: Any) -> Any:
        tree = self.server.tree
        match body:
            case GetData():
                node = tree.node(body.path)
                return kazoo.NoNodeError() if node is None else (node.data, _znode_stat(node))
            case MultiRead():
                found = [tree.node(path) for path in body.paths]
                return [kazoo.NoNodeError() if node is None else (node.data, node.stat) for node in found]
            case Exists():
                node = tree.node(body.path)
                return None if node is None else _znode_stat(node)
            case GetChildren():
                return kazoo.NoNodeError() if tree.node(body.path) is None else tree.children(body.path)
            case GetACL():
                return OPEN_ACL_UNSAFE, None
            case AddWatch():
                self.watches[body.path] = None
                return None
            case Sync():
                return body.path
        raise NotImplementedError(f"the simulated ensemble does not know {body!r}")

    def tell(self, packet: Any) -> None:
        if not self.is_gone:
            if self._ensemble.on_packet is not None:
                self._ensemble.on_packet(packet)
            self.pipe.send(packet)

    def tell_changes(self, paths: Sequence[str]) -> None:
        for path in paths:
            if _is_watched(path, self.watches):
                self.tell(Changed(path))

    def tell_changes_together(self, paths: Sequence[str], watched: dict[tuple[str, ...], list[str]]) -> None:
        """Like `tell_changes`, in one packet. `watched` keeps, for one write, the changed paths by watched paths."""
        roots = tuple(self.watches)
        found = watched.get(roots)
        if found is None:
            found = watched[roots] = [path for path in paths if _is_watched(path, roots)]
        if found:
            self.tell(ChangedTogether(found))

    def drop(self) -> None:
        """Cut the connection; the client is notified."""
        if not self.is_gone:
            self.pipe.send(None)
            self.is_gone = True
            self.server.connections.pop(self, None)


class Ensemble:
    """The simulated ZooKeeper ensemble: its servers, their leader, and the sessions."""

    def __init__(self, loop: SimulatedLoop, fabric: Fabric, random: Random, servers: int = 3) -> None:
        self.loop = loop
        self.fabric = fabric
        self.random = random
        self.tree = Tree()
        """The tree of the leader, with all committed writes."""
        self.zxid = 0
        self.sessions: dict[int, SessionRecord] = {}
        self.has_quorum = True
        self._last_session = 0
        self.servers = [
            Server(fabric.add_host(f"store-{number}", f"10.0.9.{number}"), Tree()) for number in range(1, servers + 1)
        ]
        self.on_ended: Callable[[int, str], None] | None = None
        """A function that is called with the id of a session that has expired or was closed, and with the reason."""
        self.on_written: Callable[[Changes], None] | None = None
        """A function that is called with the change that each write has made."""
        self.tick_seconds = TICK_SECONDS
        """Virtual seconds between two checks for sessions that have expired."""
        self.joins_notifications = False
        """Whether the notifications of a write reach a client in one packet, which costs less processor time."""
        self.on_packet: Callable[[Any], None] | None = None
        """A function that is called with each packet between a client and a server, in either direction."""
        self.on_restored: Callable[[], None] | None = None
        """A function that is called when the tree was replaced by a backup."""
        for server in self.servers:
            loop.happen(loop.now + random.random() * TICK_SECONDS / 2, self._tell_leader, server)
        loop.happen(loop.now + TICK_SECONDS, self._end_silent_sessions)

    @property
    def connect_string(self) -> str:
        return ",".join(f"{server.host.name}:2181" for server in self.servers)

    # --- methods of the leader

    def submit(self, server: Server, work: Callable[..., None], *args: Any) -> None:
        """Let the leader execute a request that a server has received. Without a quorum the request has no effect."""
        least, most = COMMIT_SECONDS
        when = max(server.submits_at, self.loop.now + self.random.uniform(least, most))
        server.submits_at = when
        self.loop.happen(when, self._do, server, work, args)

    def _do(self, server: Server, work: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.has_quorum and server.is_up:
            work(*args)

    def write(self, operations: Sequence[Operation], session_id: int) -> list[Stat | Exception | None]:
        """Execute all operations or none. Returns a result for each operation, as ZooKeeper does for a multi."""
        transaction = Transaction(self.tree.node, self.zxid + 1, session_id)
        results: list[Stat | Exception | None] = []
        for operation in operations:
            try:
                results.append(transaction.apply(operation))
            except MetadataError as error:
                failed = _ERRORS[type(error)]()
                undone: list[Stat | Exception | None] = [kazoo.RolledBackError() for _ in results]
                return [*undone, failed, *(kazoo.RuntimeInconsistency() for _ in operations[len(results) + 1 :])]
        self._commit(transaction.changes)
        return results

    def _commit(self, changes: Changes) -> None:
        self.zxid += 1
        self.tree.apply(changes)
        if self.on_written is not None:
            self.on_written(changes)
        for server in self.servers:
            if server.is_up:
                self._apply_later(server, self.zxid, changes)

    def _apply_later(self, server: Server, zxid: int, changes: Changes) -> None:
        when = max(server.applies_at, self.loop.now + self.random.random() * APPLY_SECONDS + server.lag)
        server.applies_at = when
        self.loop.happen(when, self._apply, server, zxid, changes)

    def _apply(self, server: Server, zxid: int, changes: Changes) -> None:
        if not server.is_up or zxid != server.zxid + 1:
            return  # the server was stopped meanwhile, and `start_server` has applied this write
        server.zxid = zxid
        touched = server.tree.apply(changes)
        watched: dict[tuple[str, ...], list[str]] = {}
        for connection in list(server.connections):
            if self.joins_notifications:
                connection.tell_changes_together(touched, watched)
            else:
                connection.tell_changes(touched)
            connection.pump()

    # --- sessions

    def accept(self, connection: Connection, hello: Hello) -> None:
        """Accept a client's connection, which starts a session or resumes one."""
        server = connection.server
        if not self.has_quorum or hello.seen_zxid > server.zxid:  # the client has seen a newer state than this server
            connection.drop()
            return
        self.submit(server, self._accept, connection, hello.key, hello.timeout)

    def _accept(self, connection: Connection, key: SessionKey | None, timeout: float) -> None:
        now = self.loop.now
        if key is None:
            self._last_session += 1
            key = SessionKey(self._last_session, b"%016d" % self._last_session)
            self.sessions[key.session_id] = SessionRecord(key, timeout, now)
        record = self.sessions.get(key.session_id)
        if record is None or record.key != key:
            connection.tell(Expired())
            connection.drop()
            return
        record.heard_at = now
        self._commit({})  # ZooKeeper writes when a session starts or changes its server
        for server in self.servers:  # close the session's earlier connections
            for other in list(server.connections):
                if other.session_id == key.session_id:
                    other.drop()
        connection.session_id = key.session_id
        connection.server.connections[connection] = None
        self._tell_when_applied(connection, self.zxid, Accepted(key, record.timeout))

    def _tell_when_applied(self, connection: Connection, zxid: int, accepted: Accepted) -> None:
        connection._pending.appendleft([-1, Multi((), ()), zxid, accepted])
        connection.pump()

    def end_session(self, session_id: int, why: str) -> None:
        """End a session that has expired or was closed: its ephemeral nodes are deleted, and its client can do nothing
        more. The session's broker may not know yet that the session has ended.
        """
        if self.sessions.pop(session_id, None) is None:
            return
        nodes = sorted(path for path, node in self.tree.nodes() if node.ephemeral_owner == session_id)
        transaction = Transaction(self.tree.node, self.zxid + 1, session_id)
        for path in nodes:
            transaction.apply(Delete(path))
        self._commit(transaction.changes)
        if self.on_ended is not None:
            self.on_ended(session_id, why)
        # Each server closes the session's connection when it learns that the session has expired.
        for server in self.servers:
            for connection in list(server.connections):
                if connection.session_id == session_id:
                    self.loop.happen(self.loop.now + server.lag, connection.drop)

    def _tell_leader(self, server: Server) -> None:
        if server.is_up and self.has_quorum:
            heard, server.heard = server.heard, {}
            for session_id, at in heard.items():
                record = self.sessions.get(session_id)
                if record is not None:
                    record.heard_at = max(record.heard_at, at)
        self.loop.happen(self.loop.now + self.tick_seconds / 2, self._tell_leader, server)

    def _end_silent_sessions(self) -> None:
        if self.has_quorum:
            now = self.loop.now
            for session_id, record in list(self.sessions.items()):
                if now - record.heard_at > record.timeout:
                    self.end_session(session_id, "expired")
                    for server in self.servers:
                        for connection in list(server.connections):
                            if connection.session_id == session_id:
                                connection.drop()
        self.loop.happen(self.loop.now + self.tick_seconds, self._end_silent_sessions)

    # --- faults

    def stop_server(self, server: Server) -> None:
        """Stop the server: its clients are disconnected, and it applies no writes until `start_server`."""
        for connection in list(server.connections):
            connection.drop()
        server.is_up = False
        server.heard.clear()

    def start_server(self, server: Server) -> None:
        """Start the server with all committed writes applied."""
        if not server.is_up:
            server.is_up = True
            self._copy_to(server)

    def _copy_to(self, server: Server) -> None:
        server.tree = _copy(self.tree)
        server.zxid = self.zxid
        server.applies_at = self.loop.now

    def lose_quorum(self) -> None:
        """Remove the leader: no writes and no reads are possible, and no session expires."""
        self.has_quorum = False
        for server in self.servers:
            for connection in list(server.connections):
                connection.drop()

    def regain_quorum(self) -> None:
        """Elect a new leader: every session has its entire timeout again."""
        if not self.has_quorum:
            self.has_quorum = True
            for record in self.sessions.values():
                record.heard_at = self.loop.now

    def drop_connections(self, share: float) -> None:
        """Cut some connections while requests are in flight: their writes may be executed, but get no response."""
        for server in self.servers:
            for connection in list(server.connections):
                if self.random.random() < share:
                    connection.drop()

    def forget(self) -> None:
        """Release all clients, because the world ends."""
        for server in self.servers:
            server.connections.clear()

    def copied(self) -> tuple[Tree, int, dict[int, SessionRecord], int]:
        """Return a backup of the current state."""
        return _copy(self.tree), self.zxid, dict(self.sessions), self._last_session

    def restore(self, backup: tuple[Tree, int, dict[int, SessionRecord], int], *, is_new_epoch: bool = False) -> None:
        """Restart all servers from a backup. In a new epoch of the servers, the ids of writes are higher than all
        earlier ones; otherwise the servers refuse every client that has seen a later write.
        """
        self.lose_quorum()
        newest = self.zxid
        tree, self.zxid, sessions, _ = backup  # as in ZooKeeper, no later session gets the id of an earlier one
        if is_new_epoch:
            self.zxid = newest + 1
        self.tree, self.sessions = _copy(tree), dict(sessions)
        for server in self.servers:
            self._copy_to(server)
        if self.on_restored is not None:
            self.on_restored()
        self.regain_quorum()


def _is_watched(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _copy(tree: Tree) -> Tree:
    copy = Tree()
    copy.apply({path: node for path, node in [("/", tree.node("/")), *tree.nodes()] if node is not None})
    return copy


def _znode_stat(node: TreeNode) -> ZnodeStat:
    return ZnodeStat(node.version, node.czxid, node.mzxid, node.ephemeral_owner)
