"""The common checks of OffsetCommit and TxnOffsetCommit: which partitions may be committed, and by which members.
Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.offsets import NO_EXPIRY
from oncelog_broker.coordinator.group.records import offset_record
from oncelog_protocol.coordinator_records.consumer_offsets import OffsetCommitValue
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

Partition = (
    OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition
    | TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition
)
CommitTopic = OffsetCommitResponse.OffsetCommitResponseTopic
Exists = Callable[[str, int], bool]
"""Function of a topic name and a partition index that returns whether the partition exists in the cluster."""
MAX_INT64: Final = 2**63 - 1
BY_CONFIGURATION: Final = -1
"""Value of retention_time_ms in OffsetCommit that selects the broker's configured retention (T15)."""


class Commit(NamedTuple):
    """The group, time and limits of one commit request. `expire_timestamp` is wall time in ms."""

    group_id: str
    now_ms: int
    exists: Exists
    metadata_max_bytes: int
    expire_timestamp: int = NO_EXPIRY

    def add(self, effects: Effects, topic: str, partition: Partition) -> ErrorCode:
        """Add the record with the committed offset of one partition to `effects` (the records to log), or return an
        error code. An error code concerns only this partition; other partitions of the request are still committed.
        """
        metadata = partition.committed_metadata or ""
        if not self.exists(topic, partition.partition_index):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_too_large(metadata, self.metadata_max_bytes):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        value = OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp=self.now_ms,
            expire_timestamp=self.expire_timestamp,
        )
        effects.append(offset_record(self.group_id, topic, partition.partition_index, value))
        return ErrorCode.NONE

    def add_topic(self, effects: Effects, topic: OffsetCommitRequest.OffsetCommitRequestTopic) -> CommitTopic:
        """Log the committed offsets of a topic's partitions. Returns the part of the response for this topic."""
        return CommitTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                CommitTopic.OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=self.add(effects, topic.name, partition)
                )
                for partition in topic.partitions
            ],
        )


def is_too_large(metadata: str, max_bytes: int) -> bool:
    """Whether the metadata of a committed offset exceeds offset.metadata.max.bytes."""
    return len(metadata.encode()) > max_bytes


def expire_timestamp(now_ms: int, retention_ms: int) -> int:
    """Return the wall time in ms at which an offset with the retention time `retention_ms` expires; NO_EXPIRY if the
    broker's own retention applies.
    """
    return NO_EXPIRY if retention_ms == BY_CONFIGURATION else min(now_ms + retention_ms, MAX_INT64)


def check_no_members(generation: int, *, has_offsets: bool) -> None:
    """Check a commit to a group that has never had members: the request must have no generation. Raises KafkaError
    UNKNOWN_MEMBER_ID if the group has offsets, otherwise ILLEGAL_GENERATION, as Kafka does.
    """
    if generation >= 0:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID if has_offsets else ErrorCode.ILLEGAL_GENERATION)
