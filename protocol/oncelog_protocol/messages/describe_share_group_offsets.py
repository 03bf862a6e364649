"""DescribeShareGroupOffsets (90): returns the start offsets of share partitions, and the number of remaining records
(KIP-932).
"""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, int64, message, string, struct, uuid


@message(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest(Request["DescribeShareGroupOffsetsResponse"]):
    """Describe the given partitions; None means all topics for which the group has state. The request has the same
    fields in v0 and v1.
    """

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array()

    @struct
    class DescribeShareGroupOffsetsRequestGroup:
        group_id: str = string()
        topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(nullable="0+")

        @struct
        class DescribeShareGroupOffsetsRequestTopic:
            topic_name: str = string()
            partitions: list[int] = array(of=int32())


@message(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    """The start offset of each partition; -1 if the group has no start offset.

    v1: lag, the number of records that wait for delivery or acknowledgement (KIP-1226).

    Errors: GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, GROUP_ID_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST.
    """

    throttle_time_ms: int = int32(default=0)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array()

    @struct
    class DescribeShareGroupOffsetsResponseGroup:
        group_id: str = string()
        topics: list[DescribeShareGroupOffsetsResponseTopic] = array()
        error_code: int = int16(default=0)
        error_message: str | None = string(nullable="0+", default=None)

        @struct
        class DescribeShareGroupOffsetsResponseTopic:
            topic_name: str = string()
            topic_id: bytes = uuid()
            partitions: list[DescribeShareGroupOffsetsResponsePartition] = array()

            @struct
            class DescribeShareGroupOffsetsResponsePartition:
                partition_index: int = int32()
                start_offset: int = int64()
                leader_epoch: int = int32(default=0)
                lag: int = int64("1+", default=-1)  # records neither acknowledged nor archived; -1: unknown
                error_code: int = int16(default=0)
                error_message: str | None = string(nullable="0+", default=None)
