"""Changes settings of topics, brokers, groups, users and client metrics, and quotas. Any broker may change settings,
not only the controller, as in Kafka with ZooKeeper.

A change is written only if the settings have not changed since they were read (`read_nodes.py`). A write of topic
settings also checks two other nodes:

- the topic's node, so that a concurrent deletion of the topic leaves no settings behind;
- the parent node of all topics, whose version counts created topics, so that a new topic does not get the settings of a
  deleted topic with the same name.

The controller need not make these changes, because only partition states have the controller as their single writer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from oncelog_broker.controller.read_nodes import ReadNode, read_node
from oncelog_broker.controller.store_errors import too_contended, translated, unknown_topic
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.address_nodes import OtherNodes, other_nodes
from oncelog_broker.metadata.model.payloads import MalformedPayload, encode_config, parse_config
from oncelog_broker.metadata.stores.store import (
    BadVersion,
    Check,
    ConnectionLost,
    MetadataStore,
    NodeExists,
    NoNode,
    Operation,
    parent_of,
)
from oncelog_broker.runtime.slices import Pause
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.quotas import QuotaEntity

MAX_ATTEMPTS: Final = 20
"""Maximum number of attempts at a change, if other brokers change the same settings between the read and the write."""

NO_OTHERS: Final[OtherNodes] = {}

ConfigChange = Callable[[dict[str, str]], Mapping[str, str]]
"""A function that gets the old overrides of an entity and returns the new overrides. The function must be pure, because
a change that is retried calls the function again. The function may raise KafkaError to refuse the change.
"""


class ConfigController:
    """Changes settings in the store. All errors are KafkaErrors, as in `topics.py`."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def alter_topic_config(
        self, name: str, change: ConfigChange, validate_only: bool = False
    ) -> Mapping[str, str]:
        """Change the overrides of a topic's settings; returns the new overrides. Raises UNKNOWN_TOPIC_OR_PARTITION, and
        the errors of `change`."""
        with translated(name):
            return await self._alter(paths.topic_config(name), change, validate_only, topic=name)

    async def alter_broker_config(
        self, broker: int | None, change: ConfigChange, validate_only: bool = False
    ) -> Mapping[str, str]:
        """Change the overrides of one broker; None means the overrides for every broker. Returns the new overrides."""
        path = paths.broker_config(broker)
        with translated(path):
            return await self._alter(path, change, validate_only)

    async def alter_group_config(
        self, group_id: str, change: ConfigChange, validate_only: bool = False
    ) -> Mapping[str, str]:
        """Change the overrides of a group, whether or not the group exists; returns the new overrides."""
        path = paths.group_config(group_id)
        with translated(path):
            return await self._alter(path, change, validate_only, keeps_empty=False, makes_parents=True)

    async def alter_client_metrics_config(
        self, name: str, change: ConfigChange, validate_only: bool = False
    ) -> Mapping[str, str]:
        """Change the settings of a subscription of client metrics; returns the new settings. A subscription without
        settings does not exist."""
        path = paths.client_metrics_config(name)
        with translated(path):
            return await self._alter(path, change, validate_only, keeps_empty=False, makes_parents=True)

    async def alter_user_config(self, user: str, change: ConfigChange) -> Mapping[str, str]:
        """Change the settings of a user, including SCRAM credentials; returns the new settings."""
        path = paths.user_config(user)
        with translated(path):
            return await self._alter(path, change, validate_only=False)

    async def nodes_of_addresses(self, pause: Pause) -> OtherNodes:
        """Read the nodes in the store that have the settings of IP addresses, for `alter_quotas`."""
        with translated(paths.IP_CONFIGS):
            return await other_nodes(self._store, pause)

    async def alter_quotas(
        self, entity: QuotaEntity, change: ConfigChange, validate_only: bool = False, others: OtherNodes = NO_OTHERS
    ) -> None:
        """Change the settings of an entity, including its quotas. Deleting the last setting deletes the node, except
        for a user: the empty node of a user tells a starting broker that it must not create this user again. If the
        nodes of one IP address exist under several spellings, all these nodes get the same change. Otherwise a quota
        that was removed under one spelling of the address would still apply under another spelling.
        """
        is_user = entity == QuotaEntity(entity.user)
        for path in (*others.get(entity, ()), paths.quotas(entity)):
            with translated(path):
                await self._alter(path, change, validate_only, keeps_empty=is_user, makes_parents=True)

    async def _alter(
        self,
        path: str,
        change: ConfigChange,
        validate_only: bool,
        topic: str | None = None,
        *,
        keeps_empty: bool = True,
        makes_parents: bool = False,
    ) -> Mapping[str, str]:
        for _ in range(MAX_ATTEMPTS):
            node = await (read_node(self._store, path) if topic is None else self._of_topic(topic))
            before = _parsed(node)
            after = change(dict(before))
            if validate_only or after == before:
                return after
            data = encode_config(after) if after or keeps_empty else None
            try:
                await commit(self._store, node.written(data), partial(self._holds, path, data))
            except NoNode:
                if makes_parents:
                    with contextlib.suppress(NodeExists):
                        await self._store.create(parent_of(path), make_parents=True)
            except (BadVersion, NodeExists):
                continue
            else:
                return after
        raise too_contended(path, MAX_ATTEMPTS)

    async def _of_topic(self, name: str) -> ReadNode:
        """Read the node of a topic's settings, with checks that let a write succeed only while this topic exists.
        Raises UNKNOWN_TOPIC_OR_PARTITION."""
        path = paths.topic_config(name)
        try:
            made, topic, found = await self._store.get_many([paths.TOPICS, paths.topic(name), path])
        except ValueError as error:  # no topic can have this name, since the path would be illegal
            raise unknown_topic(name) from error
        if made is None or topic is None:
            raise unknown_topic(name)
        is_there = [Check(paths.TOPICS, made[1].version), Check(paths.topic(name), topic[1].version)]
        return ReadNode(path, found, as_made=is_there, as_changed=is_there)

    async def _holds(self, path: str, data: bytes | None) -> bool:
        found = (await self._store.get_many([path]))[0]
        return (None if found is None else found[0]) == data


def _parsed(node: ReadNode) -> dict[str, str]:
    """Parse the settings in a node. Raises KafkaError if the settings cannot be parsed, so that they are not
    overwritten.
    """
    try:
        return {} if node.found is None else parse_config(node.found[0], node.path)
    except MalformedPayload as error:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The settings in the store cannot be read: {error}"
        ) from error


async def commit(store: MetadataStore, operations: list[Operation], took_place: Callable[[], Awaitable[bool]]) -> None:
    """Write `operations` with one `multi`. If the store's reply is lost, `took_place` reads whether the write was done;
    if it was not done, ConnectionLost is raised.
    """
    try:
        await store.multi(operations)
    except ConnectionLost:
        await store.sync()
        if not await took_place():
            raise
