"""DescribeLogDirs (35), v1-5: the data directories of this broker, the logs in each directory, and the free space.

Each broker describes its own replicas, whether it leads or follows them. An offline log is not listed, as in Kafka. A
future log is the copy of a log that is being moved to another directory (AlterReplicaLogDirs). No directory is cordoned
(v5), because the setting `cordoned.log.dirs` is refused.
"""

from __future__ import annotations

from collections.abc import Collection

from oncelog_broker.log.checkpoints import TopicPartition
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.steps import LightJob, Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.replicas.services import ReplicaContext
from oncelog_broker.server.request.duplicate_names import by_topic
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

DirectoryResult = DescribeLogDirsResponse.DescribeLogDirsResult
TopicResult = DirectoryResult.DescribeLogDirsTopic
PartitionResult = TopicResult.DescribeLogDirsPartition

LOGS_PER_STEP = 100


def handle(request: DescribeLogDirsRequest, context: ReplicaContext) -> Answer[DescribeLogDirsResponse]:
    if not context.may(rules.DESCRIBE_LOG_DIRS):
        return DescribeLogDirsResponse(error_code=rules.DESCRIBE_LOG_DIRS.refused, results=[])
    return context.in_slices(_describe(request, context))


def _describe(request: DescribeLogDirsRequest, context: ReplicaContext) -> Steps[DescribeLogDirsResponse]:
    wanted = None
    if request.topics is not None:
        wanted = yield from by_topic((topic.topic, topic.partitions) for topic in request.topics)
    results = {}
    for directory in context.services.logs.data_directories():
        results[directory] = DirectoryResult(error_code=ErrorCode.NONE, log_dir=directory, topics=[])
        yield LightJob(lambda: _measure(results[directory], context))  # noqa: B023 - it runs at once
    topics: dict[tuple[str, str], TopicResult] = {}
    for number, (key, directory) in enumerate(context.services.logs.places(), 1):
        if _is_wanted(key, wanted):
            _tell(key, directory, results, topics, context)
        if number % LOGS_PER_STEP == 0:
            yield None
    for future in context.services.directory_moves.futures():
        if _is_wanted(future.key, wanted):
            line = PartitionResult(
                partition_index=future.key[1],
                partition_size=future.size_bytes,
                offset_lag=future.lag,
                is_future_key=True,
            )
            _topic(future.key[0], future.directory, results, topics).partitions.append(line)
    return DescribeLogDirsResponse(error_code=ErrorCode.NONE, results=list(results.values()))


def _is_wanted(key: TopicPartition, wanted: dict[str, Collection[int]] | None) -> bool:
    return wanted is None or key[1] in wanted.get(key[0], ())


def _tell(
    key: TopicPartition,
    directory: str,
    results: dict[str, DirectoryResult],
    topics: dict[tuple[str, str], TopicResult],
    context: ReplicaContext,
) -> None:
    partition = context.services.replicas.hosted(*key)
    if partition is None or partition.log.is_offline:
        return
    _topic(key[0], directory, results, topics).partitions.append(
        PartitionResult(
            partition_index=key[1],
            partition_size=partition.log.size_bytes,
            offset_lag=max(0, partition.high_watermark - partition.log.log_end_offset),
            is_future_key=False,
        )
    )


def _topic(
    name: str, directory: str, results: dict[str, DirectoryResult], topics: dict[tuple[str, str], TopicResult]
) -> TopicResult:
    topic = topics.get((directory, name))
    if topic is None:
        topic = topics[directory, name] = TopicResult(name=name, partitions=[])
        results[directory].topics.append(topic)
    return topic


def _measure(result: DirectoryResult, context: ReplicaContext) -> None:
    try:
        result.total_bytes, result.usable_bytes = context.services.logs.room_in(result.log_dir)
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
