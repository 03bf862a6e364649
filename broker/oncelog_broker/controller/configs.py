"""Changes settings of topics, brokers and users: by any broker, as in Kafka with ZooKeeper.

A change is made to the settings as they are, behind their version; those of a topic also behind the topic's, or they
would outlive a topic that is deleted at this moment. They are no partition states, so nobody needs to be controller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from oncelog_broker.controller.store_errors import too_contended, translated, unknown_topic
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.payloads import encode_config, parse_config
from oncelog_broker.metadata.store import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    MetadataStore,
    NodeExists,
    NoNode,
    Operation,
    Set,
)

MAX_ATTEMPTS: Final = 20
"""How often a change is tried anew after somebody else changed the same settings between our reading and writing."""

ConfigChange = Callable[[dict[str, str]], Mapping[str, str]]
"""Old overrides -> new overrides. Pure, since it may be called again; may raise KafkaError to refuse."""


class ConfigController:
    """Settings in the store. All errors are KafkaErrors, as of `topics.py`."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def alter_topic_config(
        self, name: str, change: ConfigChange, validate_only: bool = False
    ) -> Mapping[str, str]:
        """Change a topic's overrides; the new ones. UNKNOWN_TOPIC_OR_PARTITION, and what `change` raises."""
        with translated(name):
            return await self._alter(paths.topic_config(name), change, validate_only, topic=name)

    async def alter_broker_config(
        self, broker: int | None, change: ConfigChange, validate_only: bool = False
    ) -> Mapping[str, str]:
        """Change the overrides of a broker, or with None those for every broker; the new ones."""
        path = paths.broker_config(broker)
        with translated(path):
            return await self._alter(path, change, validate_only)

    async def alter_user_config(self, user: str, change: ConfigChange) -> Mapping[str, str]:
        """Change the settings of a user, SCRAM credentials among them; the new ones."""
        path = paths.user_config(user)
        with translated(path):
            return await self._alter(path, change, validate_only=False)

    async def _alter(
        self, path: str, change: ConfigChange, validate_only: bool, topic: str | None = None
    ) -> Mapping[str, str]:
        for _ in range(MAX_ATTEMPTS):
            guard: list[Operation] = [] if topic is None else [await self._topic_as_it_is(topic)]
            found = (await self._store.get_many([path]))[0]
            before = {} if found is None else parse_config(found[0], path)
            after = change(dict(before))
            if validate_only or after == before:
                return after
            data = encode_config(after)
            write = Create(path, data) if found is None else Set(path, data, found[1].version)
            try:
                await commit(self._store, [*guard, write], partial(self._holds, path, data))
            except (BadVersion, NodeExists, NoNode):
                continue
            return after
        raise too_contended(path, MAX_ATTEMPTS)

    async def _topic_as_it_is(self, name: str) -> Check:
        try:
            stat = await self._store.exists(paths.topic(name))
        except ValueError:  # a name that is no legal path, so no topic has it
            stat = None
        if stat is None:
            raise unknown_topic(name)
        return Check(paths.topic(name), stat.version)

    async def _holds(self, path: str, data: bytes) -> bool:
        found = (await self._store.get_many([path]))[0]
        return found is not None and found[0] == data


async def commit(store: MetadataStore, operations: list[Operation], took_place: Callable[[], Awaitable[bool]]) -> None:
    """Write. Where the reply is lost, `took_place` reads whether it was done; ConnectionLost if it was not."""
    try:
        await store.multi(operations)
    except ConnectionLost:
        await store.sync()
        if not await took_place():
            raise
