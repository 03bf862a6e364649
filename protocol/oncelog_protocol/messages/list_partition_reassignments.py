"""ListPartitionReassignments (46): lists the partitions that are being reassigned (KIP-455). The controller serves
this request."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, message, string, struct


@message(api_key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest(Request["ListPartitionReassignmentsResponse"]):
    """The partitions to list; None means all."""

    timeout_ms: int = int32(default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(nullable="0+", default=None)  # None: all

    @struct
    class ListPartitionReassignmentsTopics:
        name: str = string()
        partition_indexes: list[int] = array(of=int32())


@message(api_key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """The ongoing reassignments; partitions without a reassignment are omitted.

    Errors: NOT_CONTROLLER, CLUSTER_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    topics: list[OngoingTopicReassignment] = array()

    @struct
    class OngoingTopicReassignment:
        name: str = string()
        partitions: list[OngoingPartitionReassignment] = array()

        @struct
        class OngoingPartitionReassignment:
            partition_index: int = int32()
            replicas: list[int] = array(of=int32())  # all brokers that have a replica now, or will have one
            adding_replicas: list[int] = array(of=int32())
            removing_replicas: list[int] = array(of=int32())
