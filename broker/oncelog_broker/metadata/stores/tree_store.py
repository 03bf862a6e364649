"""The base class of the metadata stores that keep their `Tree` in memory: reads, watches, and writes as operations.

`embedded.py` makes each write durable in a file before it is visible; `in_memory.py` lets several brokers share one
tree. A subclass implements two methods: `_require_session` raises StoreUnavailable while the store cannot be used, and
`_submit` starts an all-or-nothing write and returns the future of its outcome.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

from oncelog_broker.metadata.stores.store import (
    ANY_VERSION,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    SessionCallback,
    SessionState,
    Set,
    Stat,
    Unsubscribe,
    WatchCallback,
    check_path,
    parent_of,
)
from oncelog_broker.metadata.stores.tree import Tree, TreeNode
from oncelog_broker.metadata.stores.watches import Subscribers, Watches

Outcome = list[Stat | None]
"""The outcome of a write: the stat of each node that was created or set, None for the other operations."""


class TreeStore(ABC):
    """A `MetadataStore` with a tree in memory; subclasses add the session and the execution of writes."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._session = SessionState.CONNECTED
        self.lease_until = math.inf
        """The end of the lease (`MetadataStore.lease_until`); infinite while the session lasts, because the session of
        this store cannot expire. `lease_until` is an attribute and not a property, because each append reads it.
        """
        self._watches = Watches()
        self._session_watches: Subscribers[SessionState] = Subscribers()

    @abstractmethod
    def _require_session(self) -> None:
        """Raises StoreUnavailable unless the store can be read and written now."""

    @abstractmethod
    def _submit(self, operations: tuple[Operation, ...]) -> asyncio.Future[Outcome]:
        """Start a write that applies all operations or none. Raises StoreUnavailable immediately; the future raises
        MetadataError.
        """

    @property
    def session(self) -> SessionState:
        return self._session

    async def sync(self) -> None:
        self._require_session()

    async def get(self, path: str) -> tuple[bytes, Stat]:
        node = self.node(path)
        if node is None:
            raise NoNode(path)
        return node.data, node.stat

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        return [None if (node := self.node(path)) is None else (node.data, node.stat) for path in paths]

    async def exists(self, path: str) -> Stat | None:
        node = self.node(path)
        return None if node is None else node.stat

    async def children(self, path: str) -> list[str]:
        names = self.names_below(path)
        if names is None:
            raise NoNode(path)
        return names

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return _last(await self._submit((Set(path, data, version),)))

    async def create(self, path: str, data: bytes = b"", ephemeral: bool = False, make_parents: bool = False) -> Stat:
        wanted = Create(path, data, ephemeral)
        while make_parents:
            missing = self._missing_ancestors(path)
            try:
                return _last(await self._submit((*missing, wanted)))
            except NodeExists as error:
                if error.path == path:
                    raise
                # Search for missing ancestors again, because another session has just created one of them.
        return _last(await self._submit((wanted,)))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._submit((Delete(path, version),))

    async def multi(self, operations: Sequence[Operation]) -> Outcome:
        return await self._submit(tuple(operations))

    def watch(self, path: str, callback: WatchCallback) -> Unsubscribe:
        return self._watches.watch(path, callback)

    def watch_session(self, callback: SessionCallback) -> Unsubscribe:
        return self._session_watches.add(callback)

    def node(self, path: str) -> TreeNode | None:
        """Return the node at this path; None if the node does not exist. Raises StoreUnavailable; ValueError for an
        illegal path.
        """
        check_path(path)
        self._require_session()
        return self._tree.node(path)

    def names_below(self, path: str) -> list[str] | None:
        """Return the sorted names of a node's children; None if the node does not exist. Raises StoreUnavailable;
        ValueError for an illegal path.
        """
        return None if self.node(path) is None else self._tree.children(path)

    def _missing_ancestors(self, path: str) -> list[Operation]:
        missing: list[Operation] = []
        path = parent_of(path)
        while self._tree.node(path) is None:
            missing.append(Create(path))
            path = parent_of(path)
        return missing[::-1]

    def _change_session(self, state: SessionState) -> None:
        """Store the session's new state, and notify the subscribers."""
        self._session = state
        self.lease_until = -math.inf if state is SessionState.LOST else math.inf
        self._session_watches.tell(state)


def _last(outcome: Outcome) -> Stat:
    stat = outcome[-1]
    assert stat is not None
    return stat
