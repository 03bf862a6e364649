"""TxnOffsetCommit (28): stores offsets of a group that take effect when the transaction commits (S37)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, int64, message, string, struct


@message(api_key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"]):
    """Send the offsets to the group coordinator, after AddOffsetsToTxn.

    v2: committed_leader_epoch (KIP-320).
    v3: flexible; generation and member, by which outdated members are fenced (KIP-447, S46).
    v4: the client understands TRANSACTION_ABORTABLE (KIP-890).
    v5: transactions V2, in which the producer sends no AddOffsetsToTxn before this request (KIP-890, T7).
    """

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)  # generation of the member; -1 disables the check
    member_id: str = string("3+", default="")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array()

    @struct
    class TxnOffsetCommitRequestTopic:
        name: str = string()
        partitions: list[TxnOffsetCommitRequestPartition] = array()

        @struct
        class TxnOffsetCommitRequestPartition:
            partition_index: int = int32()
            committed_offset: int = int64()  # the offset of the next record to read
            committed_leader_epoch: int = int32("2+", default=-1)  # epoch of the last record read; -1: unknown
            committed_metadata: str | None = string(nullable="0+")


@message(api_key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitResponse:
    """The response has one result per partition.

    v1: on a quota violation, the broker responds before it throttles the client.
    v3: flexible; ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID and FENCED_INSTANCE_ID are possible (KIP-447).
    v4: TRANSACTION_ABORTABLE is possible (KIP-890).

    Errors of a partition: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_PRODUCER_EPOCH, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, OFFSET_METADATA_TOO_LARGE,
    UNKNOWN_TOPIC_OR_PARTITION, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED,
    TOPIC_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32(default=0)
    topics: list[TxnOffsetCommitResponseTopic] = array()

    @struct
    class TxnOffsetCommitResponseTopic:
        name: str = string()
        partitions: list[TxnOffsetCommitResponsePartition] = array()

        @struct
        class TxnOffsetCommitResponsePartition:
            partition_index: int = int32()
            error_code: int = int16()
