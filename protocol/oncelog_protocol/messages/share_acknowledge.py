"""ShareAcknowledge (79): acknowledges records that were acquired with ShareFetch (KIP-932)."""

from __future__ import annotations

from oncelog_protocol.schema import (
    Request,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    nested,
    string,
    struct,
    uuid,
)


@message(api_key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest(Request["ShareAcknowledgeResponse"]):
    """Acknowledge batches of records. An array of acknowledge types has one entry for the entire batch, or one for each
    offset.

    v2: is_renew_ack (KIP-1222).
    """

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()  # epoch of the last request plus one, or -1 to close the session
    is_renew_ack: bool = boolean("2+", default=False)
    topics: list[AcknowledgeTopic] = array()

    @struct
    class AcknowledgeTopic:
        topic_id: bytes = uuid()
        partitions: list[AcknowledgePartition] = array()

        @struct
        class AcknowledgePartition:
            partition_index: int = int32()
            acknowledgement_batches: list[AcknowledgementBatch] = array()

            @struct
            class AcknowledgementBatch:
                first_offset: int = int64()
                last_offset: int = int64()
                acknowledge_types: list[int] = array(of=int8())


@message(api_key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    """The error or success of the acknowledgements of each partition.

    v2: acquisition_lock_timeout_ms.

    Errors: GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION,
    SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_ID,
    INVALID_RECORD_STATE, KAFKA_STORAGE_ERROR, INVALID_REQUEST, COORDINATOR_NOT_AVAILABLE.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+", default=0)
    responses: list[ShareAcknowledgeTopicResponse] = array()
    # addresses of the brokers named in current_leader
    node_endpoints: list[NodeEndpoint] = array(default_factory=list)

    @struct
    class ShareAcknowledgeTopicResponse:
        topic_id: bytes = uuid()
        partitions: list[PartitionData] = array()

        @struct
        class PartitionData:
            partition_index: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)
            current_leader: LeaderIdAndEpoch = nested()

            @struct
            class LeaderIdAndEpoch:
                leader_id: int = int32(default=0)  # node id of the leader; -1 means unknown
                leader_epoch: int = int32(default=0)

    @struct
    class NodeEndpoint:
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)
