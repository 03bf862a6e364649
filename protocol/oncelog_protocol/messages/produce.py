"""Produce (0): appends record batches to partitions."""

from __future__ import annotations

from oncelog_protocol.schema import (
    ZERO_UUID,
    Records,
    Request,
    array,
    int16,
    int32,
    int64,
    message,
    nested,
    records,
    string,
    struct,
    uuid,
)


@message(api_key=0, versions="3-13", flexible="9+")
class ProduceRequest(Request["ProduceResponse"]):
    """Append batches, one per partition (T18), to the logs that this broker leads.

    v3: transactional_id; batches of format v2 only.
    v4: the client understands KAFKA_STORAGE_ERROR.
    v7: zstd may be used; before v7 it is refused with UNSUPPORTED_COMPRESSION_TYPE (KIP-110, T19).
    v8: the client understands errors of single records (KIP-467).
    v9: flexible.
    v10: the client understands current_leader (KIP-951).
    v11: the client understands TRANSACTION_ABORTABLE (KIP-890).
    v12: a transactional write also adds its partition to the transaction (transactions V2, T7).
    v13: topic ids replace names (KIP-516).

    A broker advertises v0-2, but refuses requests in these versions (T4).
    """

    # None means that the batches belong to no transaction
    transactional_id: str | None = string("3+", nullable="3+", default=None)
    # replicas that must have the records: 1 the leader, -1 all in-sync replicas, 0 none and no response (T17)
    acks: int = int16()
    timeout_ms: int = int32()  # milliseconds to wait for the in-sync replicas
    topic_data: list[TopicProduceData] = array()

    @struct
    class TopicProduceData:
        name: str = string("0-12", default="")
        topic_id: bytes = uuid("13+", default=ZERO_UUID)
        partition_data: list[PartitionProduceData] = array()

        @struct
        class PartitionProduceData:
            index: int = int32()
            records: Records = records(nullable="0+")


@message(api_key=0, versions="3-13", flexible="9+")
class ProduceResponse:
    """The base offset of each batch. A request with acks=0 has no response.

    v2: log_append_time_ms.
    v4: KAFKA_STORAGE_ERROR is possible.
    v5: log_start_offset, from which an idempotent client learns whether retention or a loss has removed its earlier
    records (S28).
    v8: record_errors and error_message (KIP-467).
    v9: flexible.
    v10: current_leader and node_endpoints, with which the client needs no Metadata request after a leader change
    (KIP-951).
    v11: TRANSACTION_ABORTABLE replaces INVALID_TXN_STATE (T8).
    v13: topic ids replace names; UNKNOWN_TOPIC_ID is possible.

    Errors of a partition: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP,
    UNSUPPORTED_COMPRESSION_TYPE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, INVALID_REQUIRED_ACKS,
    NOT_ENOUGH_REPLICAS (nothing written), NOT_ENOUGH_REPLICAS_AFTER_APPEND (written), REQUEST_TIMED_OUT,
    OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID, INVALID_PRODUCER_EPOCH (S8-S13),
    INVALID_TXN_STATE, TOPIC_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED.
    """

    responses: list[TopicProduceResponse] = array()
    throttle_time_ms: int = int32("1+", default=0)
    # addresses of the brokers named in current_leader
    node_endpoints: list[NodeEndpoint] = array("10+", tag=0, default_factory=list)

    @struct
    class TopicProduceResponse:
        name: str = string("0-12", default="")
        topic_id: bytes = uuid("13+", default=ZERO_UUID)
        partition_responses: list[PartitionProduceResponse] = array()

        @struct
        class PartitionProduceResponse:
            index: int = int32()
            error_code: int = int16()
            # base offset of the batch (of the original batch if this is a duplicate, S8); -1 after an error
            base_offset: int = int64()
            log_append_time_ms: int = int64("2+", default=-1)  # -1 unless the topic uses LogAppendTime
            log_start_offset: int = int64("5+", default=-1)
            # the invalid records that caused the refusal of the entire batch
            record_errors: list[BatchIndexAndErrorMessage] = array("8+", default_factory=list)
            error_message: str | None = string("8+", nullable="8+", default=None)
            # with NOT_LEADER_OR_FOLLOWER
            current_leader: LeaderIdAndEpoch | None = nested("10+", tag=0, default=None)

            @struct
            class BatchIndexAndErrorMessage:
                batch_index: int = int32("8+")  # index of the record in its batch
                batch_index_error_message: str | None = string("8+", nullable="8+", default=None)

            @struct
            class LeaderIdAndEpoch:
                leader_id: int = int32("10+", default=-1)
                leader_epoch: int = int32("10+", default=-1)

    @struct
    class NodeEndpoint:
        node_id: int = int32("10+")
        host: str = string("10+")
        port: int = int32("10+")
        rack: str | None = string("10+", nullable="10+", default=None)
