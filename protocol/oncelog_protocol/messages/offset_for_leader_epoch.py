"""OffsetForLeaderEpoch (23): returns the end offset of a leader epoch, with which a reader finds where its log
diverges.
"""

from __future__ import annotations

from oncelog_protocol.schema import OWN_TAGS, Request, array, boolean, int16, int32, int64, message, string, struct


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"]):
    """Request the end offset of an epoch (KIP-101, KIP-320).

    v2: current_leader_epoch, for fencing.
    v3: replica_id; the default -2 marks a debugging consumer, which may read past the high watermark.
    v4: flexible.
    """

    replica_id: int = int32("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = array()
    # oncelog's own field: return this broker's log ends even if it does not lead; `leader_epoch` is ignored
    asks_for_log_ends: bool = boolean("4+", default=False, tag=OWN_TAGS)

    @struct
    class OffsetForLeaderTopic:
        topic: str = string()
        partitions: list[OffsetForLeaderPartition] = array()

        @struct
        class OffsetForLeaderPartition:
            partition: int = int32()
            # leader epoch that the reader knows; -1 disables the check
            current_leader_epoch: int = int32("2+", default=-1)
            leader_epoch: int = int32()  # the epoch whose end offset is requested


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """For each partition, the largest epoch that is not above the requested epoch, and the end offset of that epoch.

    v2: throttle_time_ms.
    v4: flexible.

    Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH,
    UNKNOWN_LEADER_EPOCH, KAFKA_STORAGE_ERROR, TOPIC_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32("2+", default=0)
    topics: list[OffsetForLeaderTopicResult] = array()
    # oncelog's own field: the last leader epoch and the end offset of each of this broker's logs; the error
    # KAFKA_STORAGE_ERROR means that the log is offline
    are_log_ends: bool = boolean("4+", default=False, tag=OWN_TAGS)

    @struct
    class OffsetForLeaderTopicResult:
        topic: str = string()
        partitions: list[EpochEndOffset] = array()

        @struct
        class EpochEndOffset:
            error_code: int = int16()
            partition: int = int32()
            leader_epoch: int = int32("1+", default=-1)  # the found epoch; -1 if there is no such epoch
            # end of the epoch: the start of the next epoch, or the end of the log; -1 means unknown
            end_offset: int = int64(default=-1)
