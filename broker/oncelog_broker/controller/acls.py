"""Changes ACLs in the store. Any broker may change ACLs, not only the controller, as in Kafka with ZooKeeper.

One node of the store has all ACLs of a resource pattern; deleting the last ACL deletes the node. A change is written
only if the entries have not changed since they were read (`read_nodes.py`), so two concurrent changes cannot overwrite
each other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final

from oncelog_broker.controller.configs import MAX_ATTEMPTS, commit
from oncelog_broker.controller.read_nodes import ReadNode, read_node
from oncelog_broker.controller.store_errors import too_contended, translated
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.acl_payload import encode_acls, parse_acls
from oncelog_broker.metadata.model.payloads import MalformedPayload
from oncelog_broker.metadata.stores.store import BadVersion, MetadataStore, NodeExists, NoNode
from oncelog_protocol.acls import AclEntry, ResourcePattern
from oncelog_protocol.errors import ErrorCode, KafkaError

Entries = frozenset[AclEntry]
Change = Callable[[Entries], Entries]
"""A function that gets the old ACL entries of a pattern and returns the new entries. The function must be pure, because
a change that is retried calls the function again."""
MAX_BYTES_OF_A_PATTERN: Final = 128 * 1024
"""Maximum bytes of a node of ACLs; some thousand entries fit. When one entry of a pattern changes, every broker reads
all entries of that pattern."""


class AclController:
    """Changes the ACLs in the store. All errors are KafkaErrors."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def change(self, pattern: ResourcePattern, change: Change) -> Entries:
        """Change the entries of a pattern; returns the entries before the change. Raises KafkaError: REQUEST_TIMED_OUT,
        POLICY_VIOLATION (too many entries), UNKNOWN_SERVER_ERROR (the node cannot be parsed, and is not
        overwritten)."""
        path = paths.acls(pattern)
        with translated(path):
            for _ in range(MAX_ATTEMPTS):
                node = await read_node(self._store, path)
                before = _parsed(node)
                after = change(before)
                if after == before:
                    return before
                data = encode_acls(after) if after else None
                if data is not None and len(data) > MAX_BYTES_OF_A_PATTERN:
                    raise KafkaError(
                        ErrorCode.POLICY_VIOLATION, f"Too many ACLs of {pattern.type.shown} {pattern.name}."
                    )
                try:
                    await commit(self._store, node.written(data), partial(self._holds, path, data))
                except NoNode:
                    await self._make_parent(pattern)
                except (BadVersion, NodeExists):
                    continue
                else:
                    return before
            raise too_contended(path, MAX_ATTEMPTS)

    async def _make_parent(self, pattern: ResourcePattern) -> None:
        with contextlib.suppress(NodeExists):
            await self._store.create(paths.acls_of_type(pattern), make_parents=True)

    async def _holds(self, path: str, data: bytes | None) -> bool:
        found = (await self._store.get_many([path]))[0]
        return (None if found is None else found[0]) == data


def _parsed(node: ReadNode) -> Entries:
    try:
        return frozenset() if node.found is None else parse_acls(node.found[0], node.path)
    except MalformedPayload as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The ACLs in the store cannot be read: {error}") from error
