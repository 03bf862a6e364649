"""AlterReplicaLogDirs (34), v1-2: move replicas of this broker to other data directories (KIP-113).

The response says which moves have begun; a move ends later, or is dropped if it fails. A partition that the request
names for several directories is moved to the last one, as in Kafka.
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.replicas.services import ReplicaContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse

TopicResult = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
PartitionResult = TopicResult.AlterReplicaLogDirPartitionResult

PARTITIONS_PER_STEP: Final = 100


def handle(request: AlterReplicaLogDirsRequest, context: ReplicaContext) -> Answer[AlterReplicaLogDirsResponse]:
    return context.in_slices(_alter(request, context))


def _alter(request: AlterReplicaLogDirsRequest, context: ReplicaContext) -> Steps[AlterReplicaLogDirsResponse]:
    may = context.may(rules.ALTER_REPLICA_LOG_DIRS)
    wanted: dict[tuple[str, int], str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for number, index in enumerate(topic.partitions, 1):
                wanted[topic.name, index] = directory.path
                if number % PARTITIONS_PER_STEP == 0:
                    yield None
            yield None
    results: dict[str, TopicResult] = {}
    for number, ((name, index), path) in enumerate(wanted.items(), 1):
        code = _move(name, index, path, context) if may else rules.ALTER_REPLICA_LOG_DIRS.refused
        result = results.get(name)
        if result is None:
            result = results[name] = TopicResult(topic_name=name, partitions=[])
        result.partitions.append(PartitionResult(partition_index=index, error_code=code))
        if number % PARTITIONS_PER_STEP == 0:
            yield None
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _move(name: str, index: int, path: str, context: ReplicaContext) -> ErrorCode:
    try:
        context.services.directory_moves.move(name, index, path)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
