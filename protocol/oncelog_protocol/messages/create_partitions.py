"""CreatePartitions (37): increases the number of partitions of topics. The controller serves this request."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, boolean, int16, int32, message, string, struct


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Request["CreatePartitionsResponse"]):
    """Increase the number of partitions; a decrease is not possible.

    v2: flexible.
    v3: the client understands THROTTLING_QUOTA_EXCEEDED (KIP-599).
    """

    topics: list[CreatePartitionsTopic] = array()
    timeout_ms: int = int32()
    validate_only: bool = boolean()  # True means that the request is only validated

    @struct
    class CreatePartitionsTopic:
        name: str = string()
        count: int = int32()  # the new total number of partitions, not the increase
        # replicas of the new partitions only; None means that the broker assigns the replicas
        assignments: list[CreatePartitionsAssignment] | None = array(nullable="0+", default=None)

        @struct
        class CreatePartitionsAssignment:
            broker_ids: list[int] = array(of=int32())


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """The response has one result per topic.

    v1: on a quota violation, the broker responds before it throttles the client.
    v2: flexible.
    v3: THROTTLING_QUOTA_EXCEEDED is possible (KIP-599).

    Errors of a topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS (not above the present number),
    INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST, REASSIGNMENT_IN_PROGRESS, NOT_CONTROLLER, TOPIC_AUTHORIZATION_FAILED,
    THROTTLING_QUOTA_EXCEEDED.
    """

    throttle_time_ms: int = int32(default=0)
    results: list[CreatePartitionsTopicResult] = array()

    @struct
    class CreatePartitionsTopicResult:
        name: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
