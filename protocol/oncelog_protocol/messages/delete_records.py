"""DeleteRecords (21): raises the log start offset (KIP-107)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, int64, message, string, struct


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest(Request["DeleteRecordsResponse"]):
    """Delete, in each partition, the records below a given offset.

    v2: flexible.
    """

    topics: list[DeleteRecordsTopic] = array()
    timeout_ms: int = int32()

    @struct
    class DeleteRecordsTopic:
        name: str = string()
        partitions: list[DeleteRecordsPartition] = array()

        @struct
        class DeleteRecordsPartition:
            partition_index: int = int32()
            offset: int = int64()  # the new log start offset; -1 means the high watermark


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    """The new low watermark of each partition: the lowest log start offset of its live replicas.

    v1: on a quota violation, the broker responds before it throttles the client.
    v2: flexible.

    Errors of a partition: OFFSET_OUT_OF_RANGE (above the high watermark), UNKNOWN_TOPIC_OR_PARTITION,
    NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION (a topic that is only compacted), REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32(default=0)
    topics: list[DeleteRecordsTopicResult] = array()

    @struct
    class DeleteRecordsTopicResult:
        name: str = string()
        partitions: list[DeleteRecordsPartitionResult] = array()

        @struct
        class DeleteRecordsPartitionResult:
            partition_index: int = int32()
            low_watermark: int = int64()  # the low watermark; -1 if the partition has an error
            error_code: int = int16()
