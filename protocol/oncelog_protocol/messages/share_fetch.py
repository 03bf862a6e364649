"""ShareFetch (78): acquires records of share partitions, and acknowledges records that were acquired before
(KIP-932)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from oncelog_protocol.schema import (
    Records,
    Request,
    array,
    boolean,
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

OPEN_SESSION: Final = 0
"""The session epoch that opens a share session."""
CLOSE_SESSION: Final = -1
"""The session epoch that closes the session and releases its records."""


class AcknowledgeType(IntEnum):
    """A member's acknowledgement of a record that it acquired."""

    GAP = 0
    """There is no record to deliver at this offset: the record was compacted away, or is a marker."""
    ACCEPT = 1
    RELEASE = 2
    """The record may be delivered again."""
    REJECT = 3
    """The record is not delivered again."""
    RENEW = 4
    """The member still processes the record, and its acquisition lock restarts (v2)."""


class AcquireMode(IntEnum):
    """Says how strictly the broker keeps the limit `max_records` (v2)."""

    BATCH_OPTIMIZED = 0
    """The broker acquires entire batches, so the number of records may exceed the limit."""
    RECORD_LIMIT = 1
    """The broker never exceeds the limit, so it may acquire only a part of a batch."""


@message(api_key=78, versions="1-2", flexible="0+")
class ShareFetchRequest(Request["ShareFetchResponse"]):
    """Acknowledge records, and then acquire records of the partitions of the session.

    Partitions in `topics` are added to the session. An array of acknowledge types has one entry for the entire batch,
    or one for each offset.

    v2: share_acquire_mode (KIP-1206), is_renew_ack (KIP-1222).
    """

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()  # OPEN_SESSION, CLOSE_SESSION, or the epoch of the last request plus one
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2**31 - 1)  # maximum bytes of the response; the first batch may exceed this limit
    max_records: int = int32("1+")
    batch_size: int = int32("1+")  # approximate number of records per entry of acquired_records
    share_acquire_mode: int = int8("2+", default=0)  # an AcquireMode
    # whether the request only renews acquisition locks, and fetches no records
    is_renew_ack: bool = boolean("2+", default=False)
    topics: list[FetchTopic] = array()
    forgotten_topics_data: list[ForgottenTopic] = array()  # partitions to remove from the session

    @struct
    class FetchTopic:
        topic_id: bytes = uuid()
        partitions: list[FetchPartition] = array()

        @struct
        class FetchPartition:
            partition_index: int = int32()
            acknowledgement_batches: list[AcknowledgementBatch] = array()

            @struct
            class AcknowledgementBatch:
                first_offset: int = int64()
                last_offset: int = int64()
                acknowledge_types: list[int] = array(of=int8())

    @struct
    class ForgottenTopic:
        topic_id: bytes = uuid()
        partitions: list[int] = array(of=int32())


@message(api_key=78, versions="1-2", flexible="0+")
class ShareFetchResponse:
    """The response contains entire batches, but the member has acquired only the offsets in `acquired_records`.

    The response has the same fields in v1 and v2.

    Errors of the response: GROUP_AUTHORIZATION_FAILED, SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH,
    SHARE_SESSION_LIMIT_REACHED, INVALID_REQUEST. Errors of a partition: TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE,
    COORDINATOR_NOT_AVAILABLE. Errors of acknowledgements: INVALID_RECORD_STATE, INVALID_REQUEST, and the errors of a
    partition.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("1+", default=0)
    responses: list[ShareFetchableTopicResponse] = array()
    # addresses of the brokers named in current_leader
    node_endpoints: list[NodeEndpoint] = array(default_factory=list)

    @struct
    class ShareFetchableTopicResponse:
        topic_id: bytes = uuid()
        partitions: list[PartitionData] = array()

        @struct
        class PartitionData:
            partition_index: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)
            acknowledge_error_code: int = int16(default=0)
            acknowledge_error_message: str | None = string(nullable="0+", default=None)
            current_leader: LeaderIdAndEpoch = nested()
            records: Records = records(default=None)
            acquired_records: list[AcquiredRecords] = array(default_factory=list)

            @struct
            class LeaderIdAndEpoch:
                leader_id: int = int32(default=0)  # node id of the leader; -1 means unknown
                leader_epoch: int = int32(default=0)

            @struct
            class AcquiredRecords:
                first_offset: int = int64()
                last_offset: int = int64()
                delivery_count: int = int16()

    @struct
    class NodeEndpoint:
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)
