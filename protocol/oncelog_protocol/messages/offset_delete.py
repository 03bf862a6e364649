"""OffsetDelete (47): deletes committed offsets of a group (KIP-496). The API never becomes flexible (T13)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, message, string, struct


@message(api_key=47, versions="0", flexible=None)
class OffsetDeleteRequest(Request["OffsetDeleteResponse"]):
    """Delete the offsets of partitions whose topic the group no longer subscribes to."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array()

    @struct
    class OffsetDeleteRequestTopic:
        name: str = string()
        partitions: list[OffsetDeleteRequestPartition] = array()

        @struct
        class OffsetDeleteRequestPartition:
            partition_index: int = int32()


@message(api_key=47, versions="0", flexible=None)
class OffsetDeleteResponse:
    """The response has one result per partition.

    Errors: GROUP_ID_NOT_FOUND, INVALID_GROUP_ID, NON_EMPTY_GROUP (not a consumer group), NOT_COORDINATOR,
    COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, GROUP_AUTHORIZATION_FAILED. Errors of a partition:
    GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED.
    """

    error_code: int = int16()
    throttle_time_ms: int = int32(default=0)
    topics: list[OffsetDeleteResponseTopic] = array()

    @struct
    class OffsetDeleteResponseTopic:
        name: str = string()
        partitions: list[OffsetDeleteResponsePartition] = array()

        @struct
        class OffsetDeleteResponsePartition:
            partition_index: int = int32()
            error_code: int = int16()
