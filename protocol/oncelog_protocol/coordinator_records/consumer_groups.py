"""The records of `__consumer_offsets` that groups of the consumer protocol write (KIP-848).

The key's version is the type of the record. Records of groups have the types 3 (group epoch), 6 (assignment epoch), 4
(topics; brokers before Kafka 4.1 write this type, and oncelog only reads it) and 16 (topics that match a regular
expression). Records of members have the types 5 (their own metadata), 7 (target assignment) and 8 (current assignment).
All values have version 0. A null value is a tombstone.
"""

from __future__ import annotations

from typing import Final

from oncelog_protocol.schema import array, bytes_, int8, int32, int64, message, nested, string, struct, uuid

GROUP_EPOCH_KEY: Final = 3
PARTITION_METADATA_KEY: Final = 4
MEMBER_KEY: Final = 5
ASSIGNMENT_EPOCH_KEY: Final = 6
TARGET_KEY: Final = 7
CURRENT_KEY: Final = 8
REGEX_KEY: Final = 16
VALUE_VERSION: Final = 0


@message(versions="3", flexible=None)
class ConsumerGroupMetadataKey:
    """The key of a group's epoch."""

    group_id: str = string("3")


@message(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """The epoch of a group, and a hash of the subscribed topics (Kafka 4.1)."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0, default=0)


@message(versions="4", flexible=None)
class ConsumerGroupPartitionMetadataKey:
    """The key of a group's topics, as brokers before Kafka 4.1 stored them."""

    group_id: str = string("4")


@message(versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    """The topics that a group reads. Since Kafka 4.1, the hash in ConsumerGroupMetadataValue replaces this record."""

    topics: list[TopicMetadata] = array()

    @struct
    class TopicMetadata:
        topic_id: bytes = uuid()
        topic_name: str = string()
        num_partitions: int = int32()
        partition_metadata: list[PartitionMetadata] = array()

        @struct
        class PartitionMetadata:
            partition: int = int32()
            racks: list[str] = array(of=string())


@message(versions="5", flexible=None)
class ConsumerGroupMemberMetadataKey:
    """The key of a member's own metadata."""

    group_id: str = string("5")
    member_id: str = string("5")


@message(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """A member's own metadata, as the member sent them; `classic_member_metadata` exists for members of the classic
    protocol.
    """

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(of=string())
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = nested(nullable="0+", tag=0, default=None)

    @struct
    class ClassicMemberMetadata:
        session_timeout_ms: int = int32()
        supported_protocols: list[ClassicProtocol] = array()

        @struct
        class ClassicProtocol:
            name: str = string()
            metadata: bytes = bytes_()


@message(versions="6", flexible=None)
class ConsumerGroupTargetAssignmentMetadataKey:
    """The key of the epoch of a group's target assignment."""

    group_id: str = string("6")


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """The group epoch for which the target assignment was computed, and the time of the computation (wall time in ms, 0
    means unknown; Kafka 4.3).
    """

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, default=0)


@message(versions="7", flexible=None)
class ConsumerGroupTargetAssignmentMemberKey:
    """The key of a member's target assignment."""

    group_id: str = string("7")
    member_id: str = string("7")


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """The target assignment of a member."""

    topic_partitions: list[TopicPartition] = array()

    @struct
    class TopicPartition:
        topic_id: bytes = uuid()
        partitions: list[int] = array(of=int32())


@message(versions="8", flexible=None)
class ConsumerGroupCurrentMemberAssignmentKey:
    """The key of a member's current assignment."""

    group_id: str = string("8")
    member_id: str = string("8")


@message(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """A member's current assignment, and the partitions that it must revoke.

    `assignment_epochs` has the epoch in which each partition was assigned to the member (Kafka 4.3, KIP-1251); None
    means the member's epoch.
    """

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()  # member state 0: stable, 1: has partitions to revoke, 2: waits for partitions of other members
    assigned_partitions: list[TopicPartitions] = array()
    partitions_pending_revocation: list[TopicPartitions] = array()

    @struct
    class TopicPartitions:
        topic_id: bytes = uuid()
        partitions: list[int] = array(of=int32())
        assignment_epochs: list[int] | None = array(of=int32(), nullable="0+", tag=0, default=None)


@message(versions="16", flexible=None)
class ConsumerGroupRegularExpressionKey:
    """The key of a regular expression of a group."""

    group_id: str = string("16")
    regular_expression: str = string("16")


@message(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics that a regular expression matched, the version of the cluster's metadata, and the time of the match
    (ms).
    """

    topics: list[str] = array(of=string())
    version: int = int64()
    timestamp: int = int64()
