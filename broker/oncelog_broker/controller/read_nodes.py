"""Reads a node of the metadata store, and writes the node only if this node has not changed since it was read.

Comparing the version of the node is not enough, because versions restart at 0 when a node is deleted and created again.
So every write that creates such a node also writes its parent node, and the parent's version counts the created nodes.
A write checks that no such node was created since the node was read.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog_broker.metadata.stores.store import Check, Create, Delete, MetadataStore, Operation, Set, Stat, parent_of
from oncelog_protocol.light_classes import NamedTuple


class ReadNode(NamedTuple):
    """The contents of a node when it was read, if the node existed, and the checks that a write of the node needs."""

    path: str
    found: tuple[bytes, Stat] | None
    as_made: Sequence[Operation]
    as_changed: Sequence[Operation]

    def written(self, data: bytes | None) -> list[Operation]:
        """Return the operations that write `data` to the node, or delete the node if `data` is None."""
        if self.found is None:
            assert data is not None, "the node does not exist, and the change would not create it"
            return [*self.as_made, Create(self.path, data)]
        version = self.found[1].version
        return [*self.as_changed, Delete(self.path, version) if data is None else Set(self.path, data, version)]


async def read_node(store: MetadataStore, path: str) -> ReadNode:
    """Read a node that brokers change only by the rule of this module."""
    above = parent_of(path)
    counting, found = await store.get_many([above, path])
    content, made = (b"", 0) if counting is None else (counting[0], counting[1].version)
    return ReadNode(path, found, as_made=[Set(above, content, made)], as_changed=[Check(above, made)])
