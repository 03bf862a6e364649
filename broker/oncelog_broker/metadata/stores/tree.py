"""The nodes of an embedded store in memory, and transactions on them; these are plain values without I/O.

A `Transaction` reads the underlying tree and collects its own changes separately, so that a failed transaction does not
change the tree. Reads of the `Tree` return a change only after `Tree.apply`, which is called when the change is
durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from oncelog_broker.metadata.stores.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Stat,
    parent_of,
)
from oncelog_protocol.light_classes import dataclass


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One node of the tree. `child_count` is the number of the node's children, as seen in the same transaction."""

    data: bytes
    version: int
    czxid: int
    mzxid: int
    ephemeral_owner: int = 0
    child_count: int = 0

    @property
    def stat(self) -> Stat:
        return Stat(self.version, self.czxid, self.mzxid, self.ephemeral_owner)

    def same_content(self, other: TreeNode | None) -> bool:
        """Whether both values describe the same node with the same data; only the number of children may differ."""
        return other is not None and (self.version, self.czxid) == (other.version, other.czxid)


Changes = dict[str, TreeNode | None]
"""Changes of a transaction: path -> the changed node, or None if the node was deleted."""


class Transaction:
    """The changes of one write to the nodes that the function `below` returns. `apply` raises at the first operation
    that fails.

    The caller must discard a transaction that has raised, because its changes are incomplete.
    """

    __slots__ = ("_below", "_session_id", "_zxid", "changes")

    def __init__(self, below: Callable[[str], TreeNode | None], zxid: int, session_id: int = 1) -> None:
        """`session_id` is the owner of ephemeral nodes that are created."""
        self._below = below
        self._zxid = zxid
        self._session_id = session_id
        self.changes: Changes = {}

    def node(self, path: str) -> TreeNode | None:
        return self.changes[path] if path in self.changes else self._below(path)

    def apply(self, operation: Operation) -> Stat | None:
        """Do one operation; returns the stat of the node that it created or set. Raises MetadataError if the operation
        fails.
        """
        match operation:
            case Create():
                return self._create(operation)
            case Set():
                node = self._expect(operation.path, operation.version)
                changed = replace(node, data=operation.data, version=node.version + 1, mzxid=self._zxid)
                self.changes[operation.path] = changed
                return changed.stat
            case Delete():
                node = self._expect(operation.path, operation.version)
                if node.child_count:
                    raise NotEmpty(operation.path)
                self.changes[operation.path] = None
                self._count_child(operation.path, -1)
            case Check():
                self._expect(operation.path, operation.version)
        return None

    def _create(self, operation: Create) -> Stat:
        if self.node(operation.path) is not None:
            raise NodeExists(operation.path)
        parent = self.node(parent_of(operation.path))
        if parent is None:
            raise NoNode(parent_of(operation.path))
        if parent.ephemeral_owner:
            raise NoChildrenForEphemerals(operation.path)
        created = TreeNode(operation.data, 0, self._zxid, self._zxid, self._session_id if operation.ephemeral else 0)
        self.changes[operation.path] = created
        self._count_child(operation.path, 1)
        return created.stat

    def _expect(self, path: str, version: int) -> TreeNode:
        node = self.node(path)
        if node is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path, version, node.version)
        return node

    def _count_child(self, path: str, by: int) -> None:
        parent = self.node(parent_of(path))
        assert parent is not None, f"{path} has no parent"
        self.changes[parent_of(path)] = replace(parent, child_count=parent.child_count + by)


class Tree:
    """The committed nodes, which all reads of the store return. The root always exists."""

    __slots__ = ("_children", "_nodes")

    def __init__(self, nodes: Iterable[tuple[str, bytes, int, int]] = (), zxid: int = 0) -> None:
        """Build the tree from rows of (path, data, version, czxid), in any order. Raises ValueError if the parent of a
        node is missing.

        `zxid` is the id of the last write in the rows; it becomes the `mzxid` of all nodes, since the rows have no
        `mzxid`.
        """
        self._nodes: dict[str, TreeNode] = {"/": TreeNode(b"", 0, 0, 0)}
        self._children: dict[str, set[str]] = {}
        rows = list(nodes)
        for path, _, _, _ in rows:
            parent, _, name = path.rpartition("/")
            self._children.setdefault(parent or "/", set()).add(name)
        for path, data, version, czxid in rows:
            self._nodes[path] = TreeNode(data, version, czxid, zxid, 0, len(self._children.get(path, ())))
        for parent in self._children:
            if parent not in self._nodes:
                raise ValueError(f"{parent} has children but does not exist")
        self._nodes["/"] = TreeNode(b"", 0, 0, 0, 0, len(self._children.get("/", ())))

    def node(self, path: str) -> TreeNode | None:
        return self._nodes.get(path)

    def nodes(self) -> Iterable[tuple[str, TreeNode]]:
        """Return all nodes except the root, in any order."""
        return ((path, node) for path, node in self._nodes.items() if path != "/")

    def children(self, path: str) -> list[str]:
        """Return the sorted names of the children; empty also for a node that does not exist."""
        return sorted(self._children.get(path, ()))

    def apply(self, changes: Mapping[str, TreeNode | None]) -> list[str]:
        """Apply a transaction's changes; returns the paths whose node was created, set or deleted."""
        touched = []
        for path, node in changes.items():
            before = self._nodes.get(path)
            if node is None:
                if before is None:  # skip nodes that were created and deleted in the same transaction
                    continue
                del self._nodes[path]
                self._forget_child(path)
            else:
                self._nodes[path] = node
                if before is None:
                    self._children.setdefault(parent_of(path), set()).add(path.rpartition("/")[2])
            if node is None or not node.same_content(before):
                touched.append(path)
        return touched

    def _forget_child(self, path: str) -> None:
        names = self._children[parent_of(path)]
        names.discard(path.rpartition("/")[2])
        if not names:
            del self._children[parent_of(path)]
