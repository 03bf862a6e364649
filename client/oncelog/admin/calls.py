"""Sends the requests of the admin client to one broker, the controller, partition leaders or a coordinator.

`Calls` owns the connections. The calls for groups and transactions use `Calls` instead of the entire `Admin`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from oncelog.admin.items import Outcomes, each_item, settled, sorted_out
from oncelog.cluster import NO_NODE, Broker, Cluster, Topic, TopicPartition
from oncelog.config import AdminConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.errors import ClientClosed, ErrorCode
from oncelog.metadata.coordinators import find_coordinator
from oncelog.metadata.leaders import Ask, ask_leaders
from oncelog.metadata.list_offsets import OffsetAndTimestamp, list_offsets
from oncelog.metadata.metadata import Metadata
from oncelog_protocol.messages.fetch import IsolationLevel
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.schema import Request

K = TypeVar("K")
R = TypeVar("R")
V = TypeVar("V")

COORDINATORS_KEPT: Final = 10_000
"""Maximum number of cached coordinators, by group or transactional id; a full cache is cleared."""


class Calls:
    """A `Calls` object is open from `start` to `close`; before `start` and after `close`, each call raises
    ClientClosed.

    A call without `timeout_ms` uses default_api_timeout_ms.
    """

    def __init__(self, config: AdminConfig) -> None:
        self.config = config
        self._rng = random.Random()  # noqa: S311 - jitter, not a secret
        self._pool: ConnectionPool | None = None
        self._coordinators: dict[tuple[str, CoordinatorType], int] = {}
        self._is_closed = False

    async def start(self) -> None:
        """Connect to the cluster. Raises KafkaError if no broker can be reached."""
        if self._is_closed or self._pool is not None:
            raise ClientClosed("an admin client can be started only once")
        self._pool = ConnectionPool(self.config, self._rng)
        self._metadata = Metadata(self._pool, self.config, rng=self._rng)
        try:
            await self._metadata.refresh()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connections. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._pool is not None:
            await self._metadata.close()
            await self._pool.close()

    @property
    def connections(self) -> ConnectionPool:
        """The connections of this client, which other clients may borrow (`ConnectionPool.lend`). Raises
        ClientClosed.
        """
        return self._open_pool()

    def timeout_ms(self, timeout_ms: int | None) -> int:
        return self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms

    async def send_to(self, node_id: int, request: Request[R], *, at_most: int | None = None) -> R:
        """Send a request to one broker without changing its fields; NO_NODE selects an arbitrary broker. `at_most` is
        the highest API
        version to use.

        Raises KafkaError.
        """
        pool = self._open_pool()
        if at_most is not None:
            connection = await pool.connection(node_id)
            assert connection.versions is not None, "a connection that is open has negotiated"
            return await connection.start(request, connection.versions.choose_at_most(type(request), at_most))
        if node_id == NO_NODE:
            return await pool.send_to_any(request)
        return await pool.send(node_id, request)

    async def send_to_controller(self, request: Request[R]) -> R:
        """Send a request to the controller, or to an arbitrary broker if the controller is unknown. Raises
        KafkaError."""
        self._open_pool()
        return await self.send_to(self._metadata.cluster.controller_id, request)

    async def version_at(self, node_id: int, kind: type[Request[Any]]) -> int:
        """Return the version in which requests of this API are sent to this broker. Raises KafkaError."""
        connection = await self._open_pool().connection(node_id)
        assert connection.versions is not None, "a connection that is open has negotiated"
        return connection.versions.choose(kind)

    async def ask_leaders(
        self, wanted: Mapping[TopicPartition, V], ask: Ask[V, R], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, R]:
        """Send a request to the leader of each partition; refresh the metadata and retry if the leader has moved.
        Raises KafkaError, PartialFailure."""
        self._open_pool()
        timeout_s = self.timeout_ms(timeout_ms) / 1000
        return settled(
            *await ask_leaders(wanted, ask, metadata=self._metadata, config=self.config, timeout_s=timeout_s)
        )

    async def coordinator(self, key: str, key_type: CoordinatorType, *, elsewhere: bool = False) -> int:
        """Return the node id of the coordinator of a group or transactional id, from the cache if possible.

        Set `elsewhere` if the cached node did not respond or is no longer the coordinator; FindCoordinator is then sent
        to a different broker than before. Raises KafkaError, retriable while no coordinator is available.
        """
        pool = self._open_pool()
        known = self._coordinators.get((key, key_type))
        if elsewhere and known is not None:  # the node may be down: forget all its groups and ids
            self._coordinators = {each: node for each, node in self._coordinators.items() if node != known}
        elif known is not None and known in pool.cluster.brokers:
            return known
        if len(self._coordinators) >= COORDINATORS_KEPT:
            self._coordinators.clear()
        found = (await find_coordinator(pool, key, key_type, elsewhere=elsewhere)).node_id
        self._coordinators[key, key_type] = found
        return found

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """See `Admin.list_offsets`. Raises KafkaError, PartialFailure."""
        results, errors = await list_offsets(
            timestamps,
            isolation_level=isolation_level,
            pool=self._open_pool(),
            metadata=self._metadata,
            config=self.config,
            timeout_s=self.config.default_api_timeout_ms / 1000,
        )
        return settled(results, errors)

    async def described(self, names: list[str] | None) -> Cluster:
        """Fetch the metadata of these topics (None means all topics) from a broker. Raises KafkaError."""
        from oncelog_protocol.messages.metadata import MetadataRequest

        topics = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)

        async def ask(_: list[None]) -> Outcomes[None, Cluster]:
            return {None: Cluster().updated(await self.send_to(NO_NODE, request), is_complete=True)}, {}

        return (await self.each([None], ask))[None]

    async def describe_topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """See `Admin.describe_topics`. Raises KafkaError, PartialFailure."""

        async def ask(names: list[str]) -> Outcomes[str, Topic]:
            known = (await self.described(names)).topics
            missing = Topic(name="", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            no_topic = "unknown topic"  # Kafka's own message would speak of a partition
            described = [(name, known.get(name, missing)) for name in names]
            return sorted_out(
                (
                    name,
                    topic.error_code,
                    no_topic if topic.error_code == missing.error_code else topic.error_message,
                    topic,
                )
                for name, topic in described
            )

        return await self.each(names, ask)

    async def brokers(self) -> list[Broker]:
        """Request the brokers of the cluster, and return them sorted by id. Raises KafkaError."""
        return brokers_of(await self.described([]))

    async def each(
        self,
        items: Iterable[K],
        ask: Callable[[list[K]], Awaitable[Outcomes[K, V]]],
        timeout_ms: int | None = None,
    ) -> dict[K, V]:
        """Call `items.each_item` with the timeout of this call. Raises KafkaError, PartialFailure."""
        self._open_pool()
        return await each_item(
            items, ask, metadata=self._metadata, config=self.config, timeout_s=self.timeout_ms(timeout_ms) / 1000
        )

    def _open_pool(self) -> ConnectionPool:
        if self._is_closed or self._pool is None:
            raise ClientClosed("the admin client is closed" if self._is_closed else "the admin client is not started")
        return self._pool


def brokers_of(cluster: Cluster) -> list[Broker]:
    """Return the brokers, sorted by id."""
    return sorted(cluster.brokers.values(), key=_node_id)


def _node_id(broker: Broker) -> int:
    return broker.node_id
