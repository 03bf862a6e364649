"""The data directories of brokers, and moves of replicas between them (KIP-113, KIP-827)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oncelog.admin.calls import Calls
from oncelog.admin.items import Outcomes, sorted_out
from oncelog.cluster import TopicPartition
from oncelog.errors import KafkaError, error_for

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class StoredReplica:
    """A replica in a data directory."""

    size: int
    """Total bytes of the replica's segments."""
    offset_lag: int
    """Number of records by which the replica is behind the high watermark; for a future replica, number of records by
    which it is behind the present replica.
    """
    is_future: bool
    """Whether the replica is being copied from another directory of the same broker, and will replace the replica
    there."""


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A data directory. Sizes are in bytes and describe the file system of the directory; None means unknown."""

    replicas: Mapping[TopicPartition, StoredReplica]
    total_bytes: int | None
    usable_bytes: int | None

    @property
    def size(self) -> int:
        """Total bytes of all replicas."""
        return sum(replica.size for replica in self.replicas.values())


async def describe_log_dirs(
    calls: Calls, broker_ids: Iterable[int] | None
) -> dict[int, dict[str, LogDirectory | KafkaError]]:
    """See `Admin.describe_log_dirs`."""
    from oncelog_protocol.messages.describe_log_dirs import DescribeLogDirsRequest

    if broker_ids is None:
        broker_ids = [broker.node_id for broker in await calls.brokers()]

    async def ask(node_ids: list[int]) -> Outcomes[int, dict[str, LogDirectory | KafkaError]]:
        answers = []
        for node_id in node_ids:
            response = await calls.send_to(node_id, DescribeLogDirsRequest())
            answers.append(
                (node_id, response.error_code, None, {each.log_dir: _read(each) for each in response.results})
            )
        return sorted_out(answers)

    return await calls.each(broker_ids, ask)


async def alter_replica_log_dirs(calls: Calls, broker_id: int, directories: Mapping[TopicPartition, str]) -> None:
    """See `Admin.alter_replica_log_dirs`."""
    from oncelog_protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest

    directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    wanted = dict(directories)

    async def ask(partitions: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
        named: dict[str, dict[str, list[int]]] = {}
        for partition in partitions:
            named.setdefault(wanted[partition], {}).setdefault(partition.topic, []).append(partition.partition)
        request = AlterReplicaLogDirsRequest(
            dirs=[
                directory(
                    path=path,
                    topics=[
                        directory.AlterReplicaLogDirTopic(name=topic, partitions=indexes)
                        for topic, indexes in topics.items()
                    ],
                )
                for path, topics in named.items()
            ]
        )
        response = await calls.send_to(broker_id, request)
        return sorted_out(
            (TopicPartition(topic.topic_name, each.partition_index), each.error_code, None, None)
            for topic in response.results
            for each in topic.partitions
        )

    await calls.each(wanted, ask)


def _read(result: Any) -> LogDirectory | KafkaError:
    if result.error_code:
        return error_for(result.error_code)
    replicas = {
        TopicPartition(topic.name, each.partition_index): StoredReplica(
            each.partition_size, each.offset_lag, each.is_future_key
        )
        for topic in result.topics
        for each in topic.partitions
    }
    return LogDirectory(replicas, _known(result.total_bytes), _known(result.usable_bytes))


def _known(count: int) -> int | None:
    return None if count < 0 else count
