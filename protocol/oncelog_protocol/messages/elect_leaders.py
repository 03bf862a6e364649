"""ElectLeaders (43): elects preferred replicas as leaders or, in an unclean election, out-of-sync replicas. The
controller serves this request.
"""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int8, int16, int32, message, string, struct


@message(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest(Request["ElectLeadersResponse"]):
    """Elect leaders for these partitions.

    v1: the kind of election (KIP-460).
    v2: flexible.
    """

    election_type: int = int8("1+", default=0)  # an ElectionType; the default is preferred
    topic_partitions: list[TopicPartitions] | None = array(nullable="0+")  # None: all
    timeout_ms: int = int32(default=60000)

    @struct
    class TopicPartitions:
        topic: str = string()
        partitions: list[int] = array(of=int32())


@message(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    """The response has one result per partition; if all partitions were requested, only partitions that needed an
    election are included.

    v1: an error of the entire request.
    v2: flexible.

    Errors of the entire request: NOT_CONTROLLER, CLUSTER_AUTHORIZATION_FAILED. Errors of a partition:
    ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION,
    REQUEST_TIMED_OUT, NOT_CONTROLLER.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = array()

    @struct
    class ReplicaElectionResult:
        topic: str = string()
        partition_result: list[PartitionResult] = array()

        @struct
        class PartitionResult:
            partition_id: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)
