"""Fetch (1): reads record batches. Consumers and followers use the same API."""

from __future__ import annotations

from enum import IntEnum

from oncelog_protocol.schema import (
    ZERO_UUID,
    Records,
    Request,
    array,
    int8,
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


class IsolationLevel(IntEnum):
    """The isolation level: whether a reader gets the records of open transactions."""

    READ_UNCOMMITTED = 0
    """The reader gets all records below the high watermark."""
    READ_COMMITTED = 1
    """The reader gets all records below the last stable offset, and the list of aborted transactions (S50, S52)."""


@message(api_key=1, versions="4-18", flexible="12+")
class FetchRequest(Request["FetchResponse"]):
    """Fetch records from an offset on; the broker waits up to max_wait_ms for min_bytes.

    v4: isolation_level; batches of format v2.
    v5: log_start_offset, which followers report.
    v7: fetch sessions (KIP-227): session id 0 and epoch -1 mean no session, id 0 and epoch 0 request one.
    v9: current_leader_epoch, by which leader and client fence each other (KIP-320).
    v10: the client reads zstd (KIP-110, T19).
    v11: rack_id, to read from the nearest replica (KIP-392).
    v12: flexible; last_fetched_epoch lets the leader find where the reader diverged (KIP-595).
    v13: topic ids replace names (KIP-516).
    v14: the client understands the error OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405).
    v15: a follower gives its id and broker epoch in replica_state instead of replica_id (KIP-903).
    v16: the client understands current_leader (KIP-951).
    v17: replica_directory_id (KIP-853).
    v18: the high_watermark that the follower already knows (KIP-1166).
    """

    cluster_id: str | None = string("12+", nullable="12+", tag=0, default=None)
    # broker id of a follower, -1 from a consumer; ids from clients must not be trusted
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState | None = nested("15+", tag=1, default=None)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=2**31 - 1)  # maximum bytes of the response; its first batch may exceed it
    isolation_level: int = int8("4+", default=0)  # an IsolationLevel
    session_id: int = int32("7+", default=0)
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array()  # the topics to read, which the broker serves in this order (T11)
    # partitions to remove from the fetch session
    forgotten_topics_data: list[ForgottenTopic] = array("7+", default_factory=list)
    rack_id: str = string("11+", default="")

    @struct
    class ReplicaState:
        replica_id: int = int32("15+", default=-1)
        replica_epoch: int = int64("15+", default=-1)

    @struct
    class FetchTopic:
        topic: str = string("0-12", default="")
        topic_id: bytes = uuid("13+", default=ZERO_UUID)
        partitions: list[FetchPartition] = array()

        @struct
        class FetchPartition:
            partition: int = int32()
            # leader epoch that the reader knows; -1 disables the check
            current_leader_epoch: int = int32("9+", default=-1)
            fetch_offset: int = int64()
            # leader epoch of the reader's last record; -1 disables the check
            last_fetched_epoch: int = int32("12+", default=-1)
            log_start_offset: int = int64("5+", default=-1)  # log start offset of the follower; -1 from consumers
            # maximum bytes of this partition; the first batch of the response may exceed this limit
            partition_max_bytes: int = int32()
            replica_directory_id: bytes = uuid("17+", tag=0, default=ZERO_UUID)
            # the follower's high watermark; a lower value than the leader's makes the leader respond early
            high_watermark: int = int64("18+", tag=1, default=2**63 - 1)

    @struct
    class ForgottenTopic:
        topic: str = string("7-12", default="")
        topic_id: bytes = uuid("13+", default=ZERO_UUID)
        partitions: list[int] = array("7+", of=int32())


@message(api_key=1, versions="4-18", flexible="12+")
class FetchResponse:
    """The response contains entire batches. The first batch contains the requested offset, and may start below that
    offset (T11).

    v4: last_stable_offset and aborted_transactions.
    v5: log_start_offset.
    v6: KAFKA_STORAGE_ERROR is possible.
    v7: fetch sessions (KIP-227); an error of the entire response.
    v8: on a quota violation, the broker responds before it throttles the client.
    v10: records may be compressed with zstd; an older reader gets UNSUPPORTED_COMPRESSION_TYPE (KIP-110).
    v11: preferred_read_replica (KIP-392).
    v12: flexible; diverging_epoch and current_leader (KIP-595).
    v13: topic ids replace names; UNKNOWN_TOPIC_ID and INCONSISTENT_TOPIC_ID are possible (T9).
    v14: OFFSET_MOVED_TO_TIERED_STORAGE is possible (KIP-405).
    v16: node_endpoints (KIP-951).

    Errors of the response: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
    Errors of a partition: OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH,
    UNKNOWN_LEADER_EPOCH, TOPIC_AUTHORIZATION_FAILED, KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
    """

    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16("7+", default=0)
    session_id: int = int32("7+", default=0)  # id of the fetch session; 0 means that no session was created
    responses: list[FetchableTopicResponse] = array()
    # addresses of the brokers named in current_leader
    node_endpoints: list[NodeEndpoint] = array("16+", tag=0, default_factory=list)

    @struct
    class FetchableTopicResponse:
        topic: str = string("0-12", default="")
        topic_id: bytes = uuid("13+", default=ZERO_UUID)
        partitions: list[PartitionData] = array()

        @struct
        class PartitionData:
            partition_index: int = int32()
            error_code: int = int16()
            high_watermark: int = int64()
            # last stable offset: all transactions below this offset have ended (S50)
            last_stable_offset: int = int64("4+", default=-1)
            log_start_offset: int = int64("5+", default=-1)
            # The point where the reader's log diverges from the leader's log; the reader must truncate its log to this
            # point.
            diverging_epoch: EpochEndOffset | None = nested("12+", tag=0, default=None)
            current_leader: LeaderIdAndEpoch | None = nested("12+", tag=1, default=None)
            # the snapshot that the follower must read instead of the log (KRaft)
            snapshot_id: SnapshotId | None = nested("12+", tag=2, default=None)
            # the aborted transactions that overlap the batches; None for read_uncommitted (S52)
            aborted_transactions: list[AbortedTransaction] | None = array("4+", nullable="4+", default=None)
            # node id of the replica to read from; -1 means this replica
            preferred_read_replica: int = int32("11+", default=-1)
            records: Records = records(nullable="0+", default=None)

            @struct
            class EpochEndOffset:
                """The last epoch not above the reader's last fetched epoch, and its end offset."""

                epoch: int = int32("12+", default=-1)
                end_offset: int = int64("12+", default=-1)

            @struct
            class LeaderIdAndEpoch:
                leader_id: int = int32("12+", default=-1)
                leader_epoch: int = int32("12+", default=-1)

            @struct
            class SnapshotId:
                end_offset: int = int64(default=-1)
                epoch: int = int32(default=-1)

            @struct
            class AbortedTransaction:
                producer_id: int = int64("4+")
                first_offset: int = int64("4+")

    @struct
    class NodeEndpoint:
        node_id: int = int32("16+")
        host: str = string("16+")
        port: int = int32("16+")
        rack: str | None = string("16+", nullable="16+", default=None)
