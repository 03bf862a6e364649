"""The records of `__consumer_offsets` that share groups write (KIP-932).

The key's version is the type of the record. Records of groups have the types 11 (group epoch), 12 (assignment epoch)
and 15 (the share partitions whose state was initialised). Records of members have the types 10 (their own metadata), 13
(target assignment) and 14 (current assignment). All values have version 0. A null value is a tombstone.
"""

from __future__ import annotations

from typing import Final

from oncelog_protocol.schema import array, int8, int32, int64, message, string, struct, uuid

MEMBER_KEY: Final = 10
GROUP_EPOCH_KEY: Final = 11
ASSIGNMENT_EPOCH_KEY: Final = 12
TARGET_KEY: Final = 13
CURRENT_KEY: Final = 14
STATE_PARTITIONS_KEY: Final = 15
VALUE_VERSION: Final = 0


@message(versions="10", flexible=None)
class ShareGroupMemberMetadataKey:
    """The key of a member's own metadata."""

    group_id: str = string("10")
    member_id: str = string("10")


@message(versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    """A member's own metadata, as the member sent them."""

    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(of=string())


@message(versions="11", flexible=None)
class ShareGroupMetadataKey:
    """The key of a group's epoch."""

    group_id: str = string("11")


@message(versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """The epoch of a group, and a hash of the subscribed topics."""

    epoch: int = int32()
    metadata_hash: int = int64()


@message(versions="12", flexible=None)
class ShareGroupTargetAssignmentMetadataKey:
    """The key of the epoch of a group's target assignment."""

    group_id: str = string("12")


@message(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """The group epoch for which the target assignment was computed, and the time of the computation (wall time in ms, 0
    means unknown; Kafka 4.3).
    """

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, default=0)


@message(versions="13", flexible=None)
class ShareGroupTargetAssignmentMemberKey:
    """The key of a member's target assignment."""

    group_id: str = string("13")
    member_id: str = string("13")


@message(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """The target assignment of a member."""

    topic_partitions: list[TopicPartition] = array()

    @struct
    class TopicPartition:
        topic_id: bytes = uuid()
        partitions: list[int] = array(of=int32())


@message(versions="14", flexible=None)
class ShareGroupCurrentMemberAssignmentKey:
    """The key of a member's current assignment."""

    group_id: str = string("14")
    member_id: str = string("14")


@message(versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """A member's current assignment."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()  # member state, always 0 (stable) in a share group
    assigned_partitions: list[TopicPartitions] = array()

    @struct
    class TopicPartitions:
        topic_id: bytes = uuid()
        partitions: list[int] = array(of=int32())


@message(versions="15", flexible=None)
class ShareGroupStatePartitionMetadataKey:
    """The key of the share partitions for which a group has state."""

    group_id: str = string("15")


@message(versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """The share partitions whose state is being initialised, is initialised, or is being deleted."""

    initializing_topics: list[TopicPartitionsInfo] = array()
    initialized_topics: list[TopicPartitionsInfo] = array()
    deleting_topics: list[TopicInfo] = array()

    @struct
    class TopicPartitionsInfo:
        topic_id: bytes = uuid()
        topic_name: str = string()
        partitions: list[int] = array(of=int32())

    @struct
    class TopicInfo:
        topic_id: bytes = uuid()
        topic_name: str = string()
