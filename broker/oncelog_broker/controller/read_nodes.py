"""A node that was read, and may be written only as long as it is still that one, whoever else writes.

Its version is not enough: the versions of a node begin anew when it is deleted and made again. So whoever makes a node
sets the one above it in the same write, whose version counts those that were made; and whoever changes a node checks
that count as it was before the node was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oncelog_broker.metadata.stores.store import Check, Create, Delete, MetadataStore, Operation, Set, Stat, parent_of


class ReadNode(NamedTuple):
    """What a node was, if it was there, and what must be written with it."""

    path: str
    found: tuple[bytes, Stat] | None
    as_made: Sequence[Operation]
    as_changed: Sequence[Operation]

    def written(self, data: bytes | None) -> list[Operation]:
        """The write that has it hold `data`, or be gone."""
        if self.found is None:
            assert data is not None, "nothing was there, and nothing is to be"
            return [*self.as_made, Create(self.path, data)]
        version = self.found[1].version
        return [*self.as_changed, Delete(self.path, version) if data is None else Set(self.path, data, version)]


async def read_node(store: MetadataStore, path: str) -> ReadNode:
    """A node that is changed by nobody who does not keep the rule."""
    above = parent_of(path)
    counting, found = await store.get_many([above, path])
    content, made = (b"", 0) if counting is None else (counting[0], counting[1].version)
    return ReadNode(path, found, as_made=[Set(above, content, made)], as_changed=[Check(above, made)])
