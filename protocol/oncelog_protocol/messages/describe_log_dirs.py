"""DescribeLogDirs (35): describes log directories, and the size of the partitions in them (KIP-113)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, boolean, int16, int32, int64, message, string, struct


@message(api_key=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"]):
    """Describe the log directories of one broker.

    v2: flexible.
    """

    topics: list[DescribableLogDirTopic] | None = array(nullable="0+", default=None)  # None: all

    @struct
    class DescribableLogDirTopic:
        topic: str = string()
        partitions: list[int] = array(of=int32())


@message(api_key=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    """The response has one entry per log directory.

    v1: on a quota violation, the broker responds before it throttles the client.
    v2: flexible.
    v3: an error of the entire request.
    v4: total_bytes and usable_bytes of the volume (KIP-827).
    v5: is_cordoned: the directory accepts no new partitions (KIP-1066).

    Errors: CLUSTER_AUTHORIZATION_FAILED; of a directory: KAFKA_STORAGE_ERROR.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("3+", default=0)
    results: list[DescribeLogDirsResult] = array()

    @struct
    class DescribeLogDirsResult:
        error_code: int = int16()
        log_dir: str = string()  # absolute path of the log directory
        topics: list[DescribeLogDirsTopic] = array()
        total_bytes: int = int64("4+", default=-1)  # total bytes of the volume; -1 means unknown
        usable_bytes: int = int64("4+", default=-1)  # free bytes of the volume; -1 means unknown
        is_cordoned: bool = boolean("5+", default=False)

        @struct
        class DescribeLogDirsTopic:
            name: str = string()
            partitions: list[DescribeLogDirsPartition] = array()

            @struct
            class DescribeLogDirsPartition:
                partition_index: int = int32()
                partition_size: int = int64()  # total bytes of the partition's segments
                # records by which the log is behind the high watermark; future logs: behind the current log
                offset_lag: int = int64()
                # whether this log is a copy that will replace the log in another directory
                is_future_key: bool = boolean()
