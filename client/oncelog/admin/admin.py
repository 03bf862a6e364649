"""Administration: topics, partitions, configuration, offsets; groups and transactions each in a module of their own.

Calls about several items do what they can for each of them. If one item was asked for and failed, its error is raised;
if several were, PartialFailure, whose `errors` and `results` tell them apart.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from oncelog.admin.groups import GroupAdmin
from oncelog.admin.items import Outcomes, each_item, settled, sorted_out
from oncelog.admin.resources import (
    AlterConfig,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    NewPartitions,
    NewTopic,
    by_node,
    config_entry,
    config_resource,
)
from oncelog.admin.transactions import TransactionAdmin
from oncelog.cluster import NO_NODE, Broker, Cluster, Topic, TopicPartition
from oncelog.config import AdminConfig, load
from oncelog.connection.pool import ConnectionPool
from oncelog.errors import (
    ClientClosed,
    ErrorCode,
    KafkaError,
    error_for,
)
from oncelog.metadata.coordinators import find_coordinator
from oncelog.metadata.leaders import Ask, ask_leaders
from oncelog.metadata.list_offsets import OffsetAndTimestamp, list_offsets
from oncelog.metadata.metadata import Metadata
from oncelog_protocol.messages.fetch import IsolationLevel
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.schema import Request

__all__ = ["Admin", "AlterConfig", "ConfigResource", "NewPartitions", "NewTopic"]

K = TypeVar("K")
R = TypeVar("R")
V = TypeVar("V")


class Admin:
    """Keywords are those of `config.AdminConfig`; `timeout_ms` of a call defaults to default_api_timeout_ms."""

    def __init__(self, bootstrap_servers: str | Iterable[str], **options: Any) -> None:
        """Raises ConfigError."""
        self.config = load(AdminConfig, bootstrap_servers, options)
        self._rng = random.Random()  # noqa: S311 - jitter, not a secret
        self._pool: ConnectionPool | None = None
        self._is_closed = False
        self.groups = GroupAdmin(self)
        """Consumer groups: `await admin.groups.describe(["billing"])`."""
        self.transactions = TransactionAdmin(self)
        """Transactions: `await admin.transactions.explain([TopicPartition("orders", 0)])`."""

    async def start(self) -> None:
        """Connect to the cluster. Raises KafkaError if no broker can be reached."""
        if self._is_closed or self._pool is not None:
            raise ClientClosed("an admin client is started once")
        self._pool = ConnectionPool(self.config, self._rng)
        self._metadata = Metadata(self._pool, self.config, rng=self._rng)
        try:
            await self._metadata.refresh()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connections. The second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._pool is not None:
            await self._metadata.close()
            await self._pool.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # topics

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> dict[str, CreatedTopic]:
        """Create topics, or with `validate_only` find out whether that would work.

        Raises TopicAlreadyExists, InvalidTopic and other KafkaErrors, PartialFailure.
        """
        from oncelog_protocol.messages.create_topics import CreateTopicsRequest

        wanted = {topic.name: topic for topic in topics}

        async def ask(names: list[str]) -> Outcomes[str, CreatedTopic]:
            request = CreateTopicsRequest(
                topics=[_creatable(wanted[name]) for name in names],
                timeout_ms=self._timeout_ms(timeout_ms),
                validate_only=validate_only,
            )
            response = await self._ask_controller(request)
            return sorted_out(
                (
                    answer.name,
                    answer.error_code,
                    answer.error_message,
                    CreatedTopic(
                        answer.name,
                        answer.topic_id,
                        answer.num_partitions,
                        answer.replication_factor,
                        {config.name: config.value for config in answer.configs or ()},
                    ),
                )
                for answer in response.topics
            )

        return await self._each(wanted, ask, timeout_ms)

    async def delete_topics(self, names: Iterable[str], *, timeout_ms: int | None = None) -> None:
        """Raises StaleMetadata for a topic that does not exist, other KafkaErrors, PartialFailure."""
        from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest
        from oncelog_protocol.schema import ZERO_UUID

        async def ask(names: list[str]) -> Outcomes[str, None]:
            request = DeleteTopicsRequest(
                topics=[DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names],
                topic_names=names,
                timeout_ms=self._timeout_ms(timeout_ms),
            )
            response = await self._ask_controller(request)
            return sorted_out(
                (answer.name or "", answer.error_code, answer.error_message, None) for answer in response.responses
            )

        await self._each(names, ask, timeout_ms)

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, sorted. Raises KafkaError."""
        cluster = await self._described(None)
        return sorted(name for name, topic in cluster.topics.items() if include_internal or not topic.is_internal)

    async def describe_topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Partitions, leaders, replicas. Raises StaleMetadata for a topic that does not exist, PartialFailure."""

        async def ask(names: list[str]) -> Outcomes[str, Topic]:
            known = (await self._described(names)).topics
            missing = Topic(name="", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            no_topic = "there is no such topic"  # the code alone says "this broker does not host this partition"
            described = [(name, known.get(name, missing)) for name in names]
            return sorted_out(
                (name, topic.error_code, no_topic if topic.error_code == missing.error_code else None, topic)
                for name, topic in described
            )

        return await self._each(names, ask, None)

    async def create_partitions(
        self,
        totals: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Give topics more partitions: `{"orders": 12}` for twelve altogether. Raises KafkaError, PartialFailure."""
        from oncelog_protocol.messages.create_partitions import CreatePartitionsRequest

        request_topic = CreatePartitionsRequest.CreatePartitionsTopic

        def as_topic(name: str) -> CreatePartitionsRequest.CreatePartitionsTopic:
            total = totals[name]
            wanted = total if isinstance(total, NewPartitions) else NewPartitions(total)
            assignments = None
            if wanted.assignments is not None:
                assignments = [
                    request_topic.CreatePartitionsAssignment(broker_ids=list(nodes)) for nodes in wanted.assignments
                ]
            return request_topic(name=name, count=wanted.total, assignments=assignments)

        async def ask(names: list[str]) -> Outcomes[str, None]:
            request = CreatePartitionsRequest(
                topics=[as_topic(name) for name in names],
                timeout_ms=self._timeout_ms(timeout_ms),
                validate_only=validate_only,
            )
            response = await self._ask_controller(request)
            return sorted_out(
                (answer.name, answer.error_code, answer.error_message, None) for answer in response.results
            )

        await self._each(totals, ask, timeout_ms)

    # configuration

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        keys: Sequence[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """All keys of each resource, or those named. Raises KafkaError, PartialFailure."""
        from oncelog_protocol.messages.describe_configs import DescribeConfigsRequest

        async def ask(resources: list[ConfigResource]) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
            answers = []
            for node_id, part in by_node(resources).items():
                request = DescribeConfigsRequest(
                    resources=[
                        DescribeConfigsRequest.DescribeConfigsResource(
                            resource_type=resource.type,
                            resource_name=resource.name,
                            configuration_keys=None if keys is None else list(keys),
                        )
                        for resource in part
                    ],
                    include_synonyms=include_synonyms,
                    include_documentation=include_documentation,
                )
                answers += (await self._ask(node_id, request)).results
            return sorted_out(
                (
                    config_resource(answer.resource_type, answer.resource_name),
                    answer.error_code,
                    answer.error_message,
                    {config.name: config_entry(config) for config in answer.configs},
                )
                for answer in answers
            )

        return await self._each(resources, ask, None)

    async def incremental_alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[AlterConfig]], *, validate_only: bool = False
    ) -> None:
        """Change the keys named and no others. Raises KafkaError, PartialFailure."""
        from oncelog_protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

        wanted = IncrementalAlterConfigsRequest.AlterConfigsResource
        prepared = {
            resource: [
                wanted.AlterableConfig(name=change.name, config_operation=change.operation, value=change.value)
                for change in changes_of
            ]
            for resource, changes_of in changes.items()
        }

        async def ask(resources: list[ConfigResource]) -> Outcomes[ConfigResource, None]:
            answers = []
            for node_id, part in by_node(resources).items():
                request = IncrementalAlterConfigsRequest(
                    resources=[
                        wanted(resource_type=resource.type, resource_name=resource.name, configs=prepared[resource])
                        for resource in part
                    ],
                    validate_only=validate_only,
                )
                answers += (await self._ask(node_id, request)).responses
            return _altered(answers)

        await self._each(changes, ask, None)

    async def alter_configs(
        self, configs: Mapping[ConfigResource, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> None:
        """Set these keys and *reset all others* of each resource: `incremental_alter_configs` is nearly always meant.

        Raises KafkaError, PartialFailure.
        """
        from oncelog_protocol.messages.alter_configs import AlterConfigsRequest

        wanted = AlterConfigsRequest.AlterConfigsResource

        async def ask(resources: list[ConfigResource]) -> Outcomes[ConfigResource, None]:
            answers = []
            for node_id, part in by_node(resources).items():
                request = AlterConfigsRequest(
                    resources=[
                        wanted(
                            resource_type=resource.type,
                            resource_name=resource.name,
                            configs=[
                                wanted.AlterableConfig(name=name, value=value)
                                for name, value in configs[resource].items()
                            ],
                        )
                        for resource in part
                    ],
                    validate_only=validate_only,
                )
                answers += (await self._ask(node_id, request)).responses
            return _altered(answers)

        await self._each(configs, ask, None)

    # offsets, cluster

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records below an offset (-1: all that there are); the new first offset of each partition.

        Raises OffsetOutOfRange and other KafkaErrors, PartialFailure.
        """
        from oncelog_protocol.messages.delete_records import DeleteRecordsRequest

        wanted = DeleteRecordsRequest.DeleteRecordsTopic
        pool = self._open_pool()

        async def ask(node_id: int, part: dict[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
            topics: dict[str, DeleteRecordsRequest.DeleteRecordsTopic] = {}
            for (name, index), offset in part.items():
                partition = wanted.DeleteRecordsPartition(partition_index=index, offset=offset)
                topics.setdefault(name, wanted(name=name, partitions=[])).partitions.append(partition)
            request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=self._timeout_ms(timeout_ms))
            return {
                TopicPartition(topic.name, answer.partition_index): error_for(answer.error_code)
                if answer.error_code
                else answer.low_watermark
                for topic in (await pool.send(node_id, request)).topics
                for answer in topic.partitions
            }

        return await self.ask_leaders(before, ask, timeout_ms=timeout_ms)

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The first record not older than a timestamp (ms), or `offsets.EARLIEST_TIMESTAMP`, `LATEST_TIMESTAMP`.

        Raises KafkaError, PartialFailure.
        """
        results, errors = await list_offsets(
            timestamps,
            isolation_level=isolation_level,
            pool=self._open_pool(),
            metadata=self._metadata,
            config=self.config,
            timeout_s=self.config.default_api_timeout_ms / 1000,
        )
        return settled(results, errors)

    async def describe_cluster(self) -> ClusterDescription:
        """Brokers and controller. Raises KafkaError."""
        cluster = await self._described([])
        brokers = tuple(sorted(cluster.brokers.values(), key=_node_id))
        return ClusterDescription(cluster.cluster_id, cluster.controller_id, brokers)

    async def send_to(self, node_id: int, request: Request[R]) -> R:
        """Send a request to one broker, as it is. Raises KafkaError."""
        return await self._open_pool().send(node_id, request)

    async def version_at(self, node_id: int, kind: type[Request[Any]]) -> int:
        """The version in which a kind of request goes to one broker. Raises KafkaError."""
        connection = await self._open_pool().connection(node_id)
        assert connection.versions is not None, "a connection that is open has negotiated"
        return connection.versions.choose(kind)

    async def ask_leaders(
        self, wanted: Mapping[TopicPartition, V], ask: Ask[V, R], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, R]:
        """Ask the leader of each partition, again where it has moved (see `leaders`). Raises KafkaError,
        PartialFailure."""
        self._open_pool()
        timeout_s = self._timeout_ms(timeout_ms) / 1000
        return settled(
            *await ask_leaders(wanted, ask, metadata=self._metadata, config=self.config, timeout_s=timeout_s)
        )

    async def coordinator(self, key: str, key_type: CoordinatorType) -> int:
        """The node that looks after a group or a transactional id. Raises KafkaError, retriable while there is none."""
        return (await find_coordinator(self._open_pool(), key, key_type)).node_id

    # inside

    def _timeout_ms(self, timeout_ms: int | None) -> int:
        return self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms

    def _open_pool(self) -> ConnectionPool:
        if self._is_closed or self._pool is None:
            raise ClientClosed("the admin client is closed" if self._is_closed else "the admin client is not started")
        return self._pool

    async def _ask(self, node_id: int, request: Any) -> Any:
        pool = self._open_pool()
        if node_id == NO_NODE:
            return await pool.send_to_any(request)
        return await pool.send(node_id, request)

    async def _ask_controller(self, request: Any) -> Any:
        return await self._ask(self._metadata.cluster.controller_id, request)

    async def _described(self, names: list[str] | None) -> Cluster:
        """What a broker knows of these topics (None: all), asked now."""
        from oncelog_protocol.messages.metadata import MetadataRequest

        topics = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)

        async def ask(_: list[None]) -> Outcomes[None, Cluster]:
            return {None: Cluster().updated(await self._ask(NO_NODE, request), is_complete=True)}, {}

        return (await self._each([None], ask, None))[None]

    async def _each(
        self,
        items: Iterable[K],
        ask: Callable[[list[K]], Awaitable[Outcomes[K, V]]],
        timeout_ms: int | None,
    ) -> dict[K, V]:
        """As `items.each_item`, with the time that this call has."""
        self._open_pool()
        return await each_item(
            items, ask, metadata=self._metadata, config=self.config, timeout_s=self._timeout_ms(timeout_ms) / 1000
        )


def _altered(answers: list[Any]) -> Outcomes[ConfigResource, None]:
    return sorted_out(
        (config_resource(answer.resource_type, answer.resource_name), answer.error_code, answer.error_message, None)
        for answer in answers
    )


def _creatable(topic: NewTopic) -> Any:
    from oncelog_protocol.messages.create_topics import CreateTopicsRequest

    creatable = CreateTopicsRequest.CreatableTopic
    return creatable(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            creatable.CreatableReplicaAssignment(partition_index=index, broker_ids=list(nodes))
            for index, nodes in (topic.replica_assignments or {}).items()
        ],
        configs=[creatable.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _node_id(broker: Broker) -> int:
    return broker.node_id
