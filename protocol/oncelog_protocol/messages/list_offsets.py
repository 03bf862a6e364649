"""ListOffsets (2): finds the offset of a timestamp, or of one end of the log."""

from __future__ import annotations

from typing import Final

from oncelog_protocol.schema import Request, array, int8, int16, int32, int64, message, string, struct

LATEST_TIMESTAMP: Final = -1
"""The timestamp that requests the high watermark, or the last stable offset for read_committed."""
EARLIEST_TIMESTAMP: Final = -2
"""The timestamp that requests the log start offset."""
MAX_TIMESTAMP: Final = -3
"""The timestamp that requests the offset of the record with the largest timestamp (v7 and later)."""
EARLIEST_LOCAL_TIMESTAMP: Final = -4
"""The timestamp that requests the first offset that is on local disk (v8 and later)."""
LATEST_TIERED_TIMESTAMP: Final = -5
"""The timestamp that requests the last offset in remote storage (v9 and later)."""
EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6
"""The timestamp that requests the first offset that is not in remote storage yet (v11 and later)."""


@message(api_key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest(Request["ListOffsetsResponse"]):
    """Find an offset per partition, for a timestamp in ms or for one of the negative values above (T12).

    v1: one offset per partition, with its timestamp.
    v2: isolation_level.
    v4: current_leader_epoch (KIP-320).
    v6: flexible.
    v7: the value MAX_TIMESTAMP (KIP-734).
    v8: the value EARLIEST_LOCAL_TIMESTAMP (KIP-405).
    v9: the value LATEST_TIERED_TIMESTAMP (KIP-1005).
    v10: timeout_ms, for the lookups in remote storage (KIP-1075).
    v11: the value EARLIEST_PENDING_UPLOAD_TIMESTAMP (KIP-1023).
    """

    replica_id: int = int32()  # broker id of a follower; -1 means a consumer
    isolation_level: int = int8("2+", default=0)  # 0 read_uncommitted, 1 read_committed
    topics: list[ListOffsetsTopic] = array()
    timeout_ms: int = int32("10+", default=0)

    @struct
    class ListOffsetsTopic:
        name: str = string()
        partitions: list[ListOffsetsPartition] = array()

        @struct
        class ListOffsetsPartition:
            partition_index: int = int32()
            # leader epoch that the client knows; -1 disables the check
            current_leader_epoch: int = int32("4+", default=-1)
            timestamp: int = int64()


@message(api_key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    """The offset and timestamp of the first record at or after the requested timestamp; both are -1 if there is no such
    record.

    v2: throttle_time_ms.
    v3: on a quota violation, the broker responds before it throttles the client.
    v4: leader_epoch of the found record (KIP-320).
    v5: OFFSET_NOT_AVAILABLE is possible, while the high watermark of a new leader lags behind.
    v6: flexible.

    Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH,
    UNKNOWN_LEADER_EPOCH, OFFSET_NOT_AVAILABLE, LEADER_NOT_AVAILABLE (before v5), UNSUPPORTED_FOR_MESSAGE_FORMAT,
    UNSUPPORTED_VERSION (a negative timestamp that the version does not have), TOPIC_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32("2+", default=0)
    topics: list[ListOffsetsTopicResponse] = array()

    @struct
    class ListOffsetsTopicResponse:
        name: str = string()
        partitions: list[ListOffsetsPartitionResponse] = array()

        @struct
        class ListOffsetsPartitionResponse:
            partition_index: int = int32()
            error_code: int = int16()
            timestamp: int = int64("1+", default=-1)
            offset: int = int64("1+", default=-1)
            leader_epoch: int = int32("4+", default=-1)  # leader epoch of the found record; -1 means unknown
