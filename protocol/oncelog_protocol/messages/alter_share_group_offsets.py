"""AlterShareGroupOffsets (91): sets the start offsets of a share group's share partitions; the group must have no
members (KIP-932).
"""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, int64, message, string, struct, uuid


@message(api_key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest(Request["AlterShareGroupOffsetsResponse"]):
    """Discard the state of share partitions, and start again at these offsets."""

    group_id: str = string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = array()

    @struct
    class AlterShareGroupOffsetsRequestTopic:
        topic_name: str = string()
        partitions: list[AlterShareGroupOffsetsRequestPartition] = array()

        @struct
        class AlterShareGroupOffsetsRequestPartition:
            partition_index: int = int32()
            start_offset: int = int64()


@message(api_key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    """The error or success for the entire group, and for each partition.

    Errors: GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array()

    @struct
    class AlterShareGroupOffsetsResponseTopic:
        topic_name: str = string()
        topic_id: bytes = uuid()
        partitions: list[AlterShareGroupOffsetsResponsePartition] = array()

        @struct
        class AlterShareGroupOffsetsResponsePartition:
            partition_index: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)
