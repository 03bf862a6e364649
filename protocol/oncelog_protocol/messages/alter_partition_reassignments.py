"""AlterPartitionReassignments (45): moves replicas to other brokers (KIP-455). The controller serves this request."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, boolean, int16, int32, message, string, struct


@message(api_key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest(Request["AlterPartitionReassignmentsResponse"]):
    """Start, replace or cancel the reassignment of partitions.

    v1: allow_replication_factor_change (KIP-860).
    """

    timeout_ms: int = int32(default=60_000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array()

    @struct
    class ReassignableTopic:
        name: str = string()
        partitions: list[ReassignablePartition] = array()

        @struct
        class ReassignablePartition:
            partition_index: int = int32()
            # the new replicas, the preferred leader first; None cancels the ongoing reassignment
            replicas: list[int] | None = array(of=int32(), nullable="0+", default=None)


@message(api_key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    """The response has one result per partition; success means that the reassignment has started, not that it has
    ended.

    Errors of the entire request: NOT_CONTROLLER, CLUSTER_AUTHORIZATION_FAILED, REQUEST_TIMED_OUT. Errors of a
    partition: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR (v1, if the factor
    must not change), NO_REASSIGNMENT_IN_PROGRESS (nothing to cancel), INVALID_REQUEST (a partition is named twice).
    """

    throttle_time_ms: int = int32(default=0)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[ReassignableTopicResponse] = array()

    @struct
    class ReassignableTopicResponse:
        name: str = string()
        partitions: list[ReassignablePartitionResponse] = array()

        @struct
        class ReassignablePartitionResponse:
            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)
