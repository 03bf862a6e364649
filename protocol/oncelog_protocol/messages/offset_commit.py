"""OffsetCommit (8): stores the committed offsets of a group."""

from __future__ import annotations

from oncelog_protocol.schema import ZERO_UUID, Request, array, int16, int32, int64, message, string, struct, uuid


@message(api_key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest(Request["OffsetCommitResponse"]):
    """Commit offsets. Store offsets of a group. For a sender that is not a member (generation -1, no member id), the
    coordinator does not check the membership.

    v2: retention_time_ms.
    v5: retention_time_ms is removed; the broker's configuration decides (KIP-211).
    v6: committed_leader_epoch (KIP-320).
    v7: group_instance_id: static members, which keep their identity across restarts (KIP-345).
    v8: flexible.
    v9: members of KIP-848 groups send their member epoch.
    v10: topic ids replace names (KIP-848).
    """

    group_id: str = string()
    generation_id_or_member_epoch: int = int32("1+", default=-1)
    member_id: str = string("1+")
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1)  # retention in ms; -1 means the broker's configuration (T15)
    topics: list[OffsetCommitRequestTopic] = array()

    @struct
    class OffsetCommitRequestTopic:
        name: str = string("0-9", default="")
        topic_id: bytes = uuid("10+", default=ZERO_UUID)
        partitions: list[OffsetCommitRequestPartition] = array()

        @struct
        class OffsetCommitRequestPartition:
            partition_index: int = int32()
            committed_offset: int = int64()  # the offset of the next record to read
            committed_leader_epoch: int = int32("6+", default=-1)  # epoch of the last record read; -1: unknown
            # a text that OffsetFetch returns unchanged, of at most offset.metadata.max.bytes (T15)
            committed_metadata: str | None = string(nullable="0+")


@message(api_key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    """The response has one result per partition.

    v3: throttle_time_ms.
    v4: on a quota violation, the broker responds before it throttles the client.
    v7: FENCED_INSTANCE_ID is possible (KIP-345).
    v8: flexible.
    v9: STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND are possible (KIP-848).
    v10: topic ids replace names; UNKNOWN_TOPIC_ID is possible.

    Errors of a partition: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, ILLEGAL_GENERATION,
    UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID, OFFSET_METADATA_TOO_LARGE, INVALID_COMMIT_OFFSET_SIZE,
    UNKNOWN_TOPIC_OR_PARTITION, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32("3+", default=0)
    topics: list[OffsetCommitResponseTopic] = array()

    @struct
    class OffsetCommitResponseTopic:
        name: str = string("0-9", default="")
        topic_id: bytes = uuid("10+", default=ZERO_UUID)
        partitions: list[OffsetCommitResponsePartition] = array()

        @struct
        class OffsetCommitResponsePartition:
            partition_index: int = int32()
            error_code: int = int16()
