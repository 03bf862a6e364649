"""ListOffsets: requests the offset of a timestamp, or of one end of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from oncelog.cluster import NO_LEADER_EPOCH, TopicPartition
from oncelog.config import ClientConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.errors import KafkaError, error_for
from oncelog.metadata.leaders import ask_leaders
from oncelog.metadata.metadata import Metadata
from oncelog_protocol.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ListOffsetsRequest

__all__ = ["EARLIEST_TIMESTAMP", "LATEST_TIMESTAMP", "OffsetAndTimestamp", "list_offsets"]

Topic = ListOffsetsRequest.ListOffsetsTopic
MAX_TIMESTAMP: Final = 2**63 - 1
"""The largest timestamp in milliseconds, the largest int64."""
CONSUMER: Final = -1
"""The replica id of a consumer."""


class OffsetAndTimestamp(NamedTuple):
    """The offset of the first record at or after a timestamp, or of an end of the log. `offset` is -1 if all records
    are older than the timestamp; `timestamp_ms` is -1 for an end of the log.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int = NO_LEADER_EPOCH


async def list_offsets(
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation_level: int,
    pool: ConnectionPool,
    metadata: Metadata,
    config: ClientConfig,
    timeout_s: float,
) -> tuple[dict[TopicPartition, OffsetAndTimestamp], dict[TopicPartition, KafkaError]]:
    """Return the offsets for the timestamps (ms, or EARLIEST_TIMESTAMP, LATEST_TIMESTAMP) by partition, and the
    errors."""

    async def ask(
        node_id: int, part: dict[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
        return await list_offsets_of(node_id, part, isolation_level=isolation_level, pool=pool, metadata=metadata)

    return await ask_leaders(timestamps, ask, metadata=metadata, config=config, timeout_s=timeout_s)


async def list_offsets_of(
    node_id: int,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation_level: int,
    pool: ConnectionPool,
    metadata: Metadata,
) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
    """Send one ListOffsets request to one leader about its partitions. Raises KafkaError if there is no response."""
    request = ListOffsetsRequest(
        replica_id=CONSUMER, isolation_level=isolation_level, topics=_topics(timestamps, metadata)
    )
    outcomes: dict[TopicPartition, OffsetAndTimestamp | KafkaError] = {}
    for topic in (await pool.send(node_id, request)).topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                outcomes[partition] = error_for(answer.error_code)
            else:
                outcomes[partition] = OffsetAndTimestamp(answer.offset, answer.timestamp, answer.leader_epoch)
    return outcomes


def _topics(part: Mapping[TopicPartition, int], metadata: Metadata) -> list[Topic]:
    topics: dict[str, Topic] = {}
    for (name, index), timestamp in part.items():
        known = metadata.cluster.partition(name, index)
        topics.setdefault(name, Topic(name=name, partitions=[])).partitions.append(
            Topic.ListOffsetsPartition(
                partition_index=index,
                current_leader_epoch=NO_LEADER_EPOCH if known is None else known.leader_epoch,
                timestamp=timestamp,
            )
        )
    return list(topics.values())
