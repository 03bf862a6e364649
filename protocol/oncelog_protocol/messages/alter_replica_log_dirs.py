"""AlterReplicaLogDirs (34): moves replicas between the data directories of one broker (KIP-113)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, message, string, struct


@message(api_key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest(Request["AlterReplicaLogDirsResponse"]):
    """Move these replicas of the broker that gets the request.

    v2: flexible.
    """

    dirs: list[AlterReplicaLogDir] = array()

    @struct
    class AlterReplicaLogDir:
        path: str = string()  # absolute path of a data directory
        topics: list[AlterReplicaLogDirTopic] = array()

        @struct
        class AlterReplicaLogDirTopic:
            name: str = string()
            partitions: list[int] = array(of=int32())


@message(api_key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """For each replica, whether its move has begun; DescribeLogDirs shows the progress.

    v1: on a quota violation, the broker responds before it throttles the client.
    v2: flexible.

    Errors of a partition: CLUSTER_AUTHORIZATION_FAILED, LOG_DIR_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION,
    REPLICA_NOT_AVAILABLE, KAFKA_STORAGE_ERROR, INVALID_TOPIC_EXCEPTION.
    """

    throttle_time_ms: int = int32(default=0)
    results: list[AlterReplicaLogDirTopicResult] = array()

    @struct
    class AlterReplicaLogDirTopicResult:
        topic_name: str = string()
        partitions: list[AlterReplicaLogDirPartitionResult] = array()

        @struct
        class AlterReplicaLogDirPartitionResult:
            partition_index: int = int32()
            error_code: int = int16()
