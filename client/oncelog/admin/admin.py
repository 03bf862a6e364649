"""The admin client for topics, partitions, configuration and offsets; groups, transactions and ACLs have their own
modules.

A call for several items processes each item independently. If a single item was requested, the call raises the error of
that item. If several items were requested, the call raises PartialFailure, which has `errors` and `results`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from oncelog.admin import configs as of_configs
from oncelog.admin import log_dirs as of_log_dirs
from oncelog.admin import quotas as of_quotas
from oncelog.admin import reassignments as of_reassignments
from oncelog.admin import users as of_users
from oncelog.admin.acls import AclAdmin
from oncelog.admin.calls import Calls, brokers_of
from oncelog.admin.groups import GroupAdmin
from oncelog.admin.items import Outcomes, sorted_out
from oncelog.admin.log_dirs import LogDirectory
from oncelog.admin.log_parts import LogPart, read_log
from oncelog.admin.quotas import EVERY_QUOTA, QuotaAlteration, QuotaFilter
from oncelog.admin.reassignments import Reassignment
from oncelog.admin.resources import (
    AlterConfig,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    NewPartitions,
    NewTopic,
)
from oncelog.admin.shares import ShareAdmin
from oncelog.admin.transactions import TransactionAdmin
from oncelog.cluster import Topic, TopicPartition
from oncelog.config import AdminConfig, load
from oncelog.connection.pool import ConnectionPool
from oncelog.errors import (
    KafkaError,
    error_for,
)
from oncelog.lifecycle import Lifecycle
from oncelog.metadata.list_offsets import OffsetAndTimestamp
from oncelog.typed_options import AdminOptions
from oncelog_protocol.elections import ElectionType
from oncelog_protocol.messages.fetch import IsolationLevel
from oncelog_protocol.quotas import QuotaEntity
from oncelog_protocol.schema import Request

__all__ = ["Admin", "AlterConfig", "ConfigResource", "NewPartitions", "NewTopic"]

K = TypeVar("K")
R = TypeVar("R")
V = TypeVar("V")


class Admin(Lifecycle):
    """Administers a cluster. Keywords are the options of `config.AdminConfig`; a call without `timeout_ms` uses
    default_api_timeout_ms.
    """

    def __init__(self, bootstrap_servers: str | Iterable[str], **options: Unpack[AdminOptions]) -> None:
        """Raises ConfigError for an invalid option."""
        self.config = load(AdminConfig, bootstrap_servers, options)
        self._calls = Calls(self.config)
        self.groups = GroupAdmin(self._calls)
        """Consumer groups: `await admin.groups.describe(["billing"])`."""
        self.shares = ShareAdmin(self._calls)
        """Share groups: `await admin.shares.offsets("work")`."""
        self.transactions = TransactionAdmin(self._calls)
        """Transactions: `await admin.transactions.explain([TopicPartition("orders", 0)])`."""
        self.acls = AclAdmin(self._calls)
        """ACLs: `await admin.acls.describe()`."""

    async def start(self) -> None:
        """Connect to the cluster. Raises KafkaError if no broker can be reached."""
        await self._calls.start()

    async def close(self) -> None:
        """Close the connections. A second call does nothing."""
        await self._calls.close()

    @property
    def connections(self) -> ConnectionPool:
        """The connections of this client, for `Producer(..., connections=admin.connections)`. Raises ClientClosed
        before `start` and after `close`.
        """
        return self._calls.connections

    # topics

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> dict[str, CreatedTopic]:
        """Create topics; with `validate_only`, only check whether the creation would succeed.

        Raises TopicAlreadyExists, InvalidTopic and other KafkaErrors, PartialFailure.
        """
        from oncelog_protocol.messages.create_topics import CreateTopicsRequest

        wanted = {topic.name: topic for topic in topics}

        async def ask(names: list[str]) -> Outcomes[str, CreatedTopic]:
            request = CreateTopicsRequest(
                topics=[_creatable(wanted[name]) for name in names],
                timeout_ms=self._calls.timeout_ms(timeout_ms),
                validate_only=validate_only,
            )
            response = await self._calls.send_to_controller(request)
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

        return await self._calls.each(wanted, ask, timeout_ms)

    async def delete_topics(self, names: Iterable[str], *, timeout_ms: int | None = None) -> None:
        """Delete topics and their records. Raises StaleMetadata for a topic that does not exist, other KafkaErrors,
        PartialFailure.
        """
        from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest
        from oncelog_protocol.schema import ZERO_UUID

        async def ask(names: list[str]) -> Outcomes[str, None]:
            request = DeleteTopicsRequest(
                topics=[DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names],
                topic_names=names,
                timeout_ms=self._calls.timeout_ms(timeout_ms),
            )
            response = await self._calls.send_to_controller(request)
            return sorted_out(
                (answer.name or "", answer.error_code, answer.error_message, None) for answer in response.responses
            )

        await self._calls.each(names, ask, timeout_ms)

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted. Raises KafkaError."""
        cluster = await self._calls.described(None)
        return sorted(name for name, topic in cluster.topics.items() if include_internal or not topic.is_internal)

    async def describe_topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return the partitions, leaders and replicas of these topics. Raises StaleMetadata for a topic that does not
        exist, PartialFailure.
        """
        return await self._calls.describe_topics(names)

    async def create_partitions(
        self,
        totals: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Increase the number of partitions of topics: `{"orders": 12}` means twelve partitions in total. Raises
        KafkaError, PartialFailure.
        """
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
                timeout_ms=self._calls.timeout_ms(timeout_ms),
                validate_only=validate_only,
            )
            response = await self._calls.send_to_controller(request)
            return sorted_out(
                (answer.name, answer.error_code, answer.error_message, None) for answer in response.results
            )

        await self._calls.each(totals, ask, timeout_ms)

    async def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: int | None = None,
    ) -> None:
        """Move partitions to other brokers, listed with the preferred leader first; None cancels the reassignment of a
        partition.

        Returns when the reassignment has started; `list_partition_reassignments` shows when the reassignment is done.
        Raises KafkaError, PartialFailure.
        """
        await of_reassignments.alter_partition_reassignments(
            self._calls,
            targets,
            allow_replication_factor_change=allow_replication_factor_change,
            timeout_ms=timeout_ms,
        )

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the ongoing reassignments of these partitions, by default of all partitions. Raises KafkaError."""
        return await of_reassignments.list_partition_reassignments(self._calls, partitions, timeout_ms=timeout_ms)

    # configuration

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        keys: Sequence[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return the settings of each resource: all keys, or only the named keys. Raises KafkaError, PartialFailure."""
        return await of_configs.describe_configs(
            self._calls,
            resources,
            keys=keys,
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
        )

    async def incremental_alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[AlterConfig]], *, validate_only: bool = False
    ) -> None:
        """Change only the named keys of each resource; all other keys keep their values. Raises KafkaError,
        PartialFailure.
        """
        await of_configs.incremental_alter_configs(self._calls, changes, validate_only=validate_only)

    async def alter_configs(
        self, configs: Mapping[ConfigResource, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> None:
        """Set these keys and *reset all other keys* of each resource. In most cases, use `incremental_alter_configs`
        instead.

        Raises KafkaError, PartialFailure.
        """
        await of_configs.alter_configs(self._calls, configs, validate_only=validate_only)

    # leaders

    async def elect_leaders(
        self,
        kind: ElectionType = ElectionType.PREFERRED,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> list[TopicPartition]:
        """Elect preferred leaders. With UNCLEAN, a partition without a live in-sync replica gets any live replica as
        its leader, and records may be lost.

        By default the election includes all partitions. Returns the partitions whose leader has changed; partitions
        that need no election are omitted. Raises KafkaError (PREFERRED_LEADER_NOT_AVAILABLE,
        ELIGIBLE_LEADERS_NOT_AVAILABLE), PartialFailure.
        """
        from oncelog.admin.elections import elect_leaders

        wanted = None if partitions is None else list(dict.fromkeys(partitions))
        return await elect_leaders(self._calls, kind, wanted, timeout_ms)

    # methods for offsets, the cluster, users, quotas and directories

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records below an offset (-1 means the high watermark, which deletes all present records). Returns
        the new first offset of each partition.

        Raises OffsetOutOfRange and other KafkaErrors, PartialFailure.
        """
        from oncelog_protocol.messages.delete_records import DeleteRecordsRequest

        wanted = DeleteRecordsRequest.DeleteRecordsTopic

        async def ask(node_id: int, part: dict[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
            topics: dict[str, DeleteRecordsRequest.DeleteRecordsTopic] = {}
            for (name, index), offset in part.items():
                partition = wanted.DeleteRecordsPartition(partition_index=index, offset=offset)
                topics.setdefault(name, wanted(name=name, partitions=[])).partitions.append(partition)
            request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=self._calls.timeout_ms(timeout_ms))
            return {
                TopicPartition(topic.name, answer.partition_index): error_for(answer.error_code)
                if answer.error_code
                else answer.low_watermark
                for topic in (await self._calls.send_to(node_id, request)).topics
                for answer in topic.partitions
            }

        return await self._calls.ask_leaders(before, ask, timeout_ms=timeout_ms)

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return, for each partition, the first record at or after a timestamp (ms); `offsets.EARLIEST_TIMESTAMP` and
        `LATEST_TIMESTAMP` select the partition's first offset and its end offset.

        Raises KafkaError, PartialFailure.
        """
        return await self._calls.list_offsets(timestamps, isolation_level=isolation_level)

    async def describe_cluster(self) -> ClusterDescription:
        """Return the brokers and the controller. Raises KafkaError."""
        cluster = await self._calls.described([])
        return ClusterDescription(cluster.cluster_id, cluster.controller_id, tuple(brokers_of(cluster)))

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, list[of_users.ScramCredentialInfo]]:
        """Return the SCRAM credentials of these users, or of all users. Raises KafkaError, PartialFailure."""
        return await of_users.describe_user_scram_credentials(self._calls, users)

    async def alter_user_scram_credentials(
        self, changes: Iterable[of_users.ScramUpsertion | of_users.ScramDeletion]
    ) -> None:
        """Add, change and remove SCRAM credentials; all changes of one user succeed or fail together. Raises
        KafkaError, PartialFailure.
        """
        await of_users.alter_user_scram_credentials(self._calls, changes)

    async def describe_client_quotas(self, which: QuotaFilter = EVERY_QUOTA) -> dict[QuotaEntity, dict[str, float]]:
        """Return the configured quotas of the entities that the filter matches, by the names of QuotaKey. Raises
        KafkaError."""
        return await of_quotas.describe_client_quotas(self._calls, which)

    async def alter_client_quotas(self, alterations: Iterable[QuotaAlteration], *, validate_only: bool = False) -> None:
        """Set and remove quotas; all changes of one entity succeed or fail together. Raises KafkaError, PartialFailure;
        ConfigError for an entity named twice."""
        await of_quotas.alter_client_quotas(self._calls, alterations, validate_only)

    async def describe_log_dirs(
        self, broker_ids: Iterable[int] | None = None
    ) -> dict[int, dict[str, LogDirectory | KafkaError]]:
        """Return the data directories of these brokers (by default of all brokers) by path, with their replicas and
        free space. The error in a directory's result concerns only that directory. Raises KafkaError, PartialFailure.
        """
        return await of_log_dirs.describe_log_dirs(self._calls, broker_ids)

    async def alter_replica_log_dirs(self, broker_id: int, directories: Mapping[TopicPartition, str]) -> None:
        """Begin to move replicas of one broker to other data directories of that broker, given by absolute path.

        A replica stays in use while it is moved; `describe_log_dirs` shows the copy as a future replica until the copy
        replaces the replica. To end the move of a replica, give the path of the directory that holds the replica now.
        Raises KafkaError, among
        them LOG_DIR_NOT_FOUND and REPLICA_NOT_AVAILABLE; PartialFailure.
        """
        await of_log_dirs.alter_replica_log_dirs(self._calls, broker_id, directories)

    async def read_log(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        max_bytes: int,
        partition_max_bytes: int | None = None,
        max_wait_ms: int = 0,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, LogPart]:
        """Return raw batches of each partition from its offset on, read from the leader's log, including markers and
        aborted batches. This call is for programs that inspect a log; a `Consumer` reads records.

        `max_bytes` limits the size of a response, and by default also the bytes of each partition in the response; a
        first batch above the limit is still returned. A leader without data waits up to `max_wait_ms` before it
        responds. Raises OffsetOutOfRange, CorruptRecords and other KafkaErrors, PartialFailure.
        """
        return await read_log(
            self._calls,
            offsets,
            max_bytes=max_bytes,
            partition_max_bytes=partition_max_bytes,
            max_wait_ms=max_wait_ms,
            isolation_level=isolation_level,
            timeout_ms=timeout_ms,
        )

    async def send_to(self, node_id: int, request: Request[R]) -> R:
        """Send a request to one broker without changing its fields. Raises KafkaError."""
        return await self._calls.send_to(node_id, request)


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
