"""AlterPartitionReassignments (45), v0-1: start or cancel moving partitions to other brokers (KIP-455).

Behaviour: each partition succeeds or fails independently; the response is sent when the reassignment has begun. The
reassignment ends later, when the added replicas have caught up. A new reassignment replaces one in progress. A broker
that is not the controller forwards the request to the controller. If the metadata store does not confirm the writes,
the entire request gets REQUEST_TIMED_OUT. Versions: v1 adds `allow_replication_factor_change` (KIP-860).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from oncelog_broker.controller.partitions import Wanted
from oncelog_broker.controller.store_errors import translated
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.replicas.services import ReplicaContext
from oncelog_broker.server.request.forwarding import controller_elsewhere, pass_on
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

TopicResult = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
PartitionResult = TopicResult.ReassignablePartitionResponse


def handle(
    request: AlterPartitionReassignmentsRequest, context: ReplicaContext
) -> Answer[AlterPartitionReassignmentsResponse]:
    return context.in_a_task(_reassign(request, context))


async def _reassign(
    request: AlterPartitionReassignmentsRequest, context: ReplicaContext
) -> AlterPartitionReassignmentsResponse:
    pauses = context.services.slices.pauses()
    may_change = request.allow_replication_factor_change
    wanted: list[Wanted] = []
    for each in _wanted(request):
        await pauses.here()
        wanted.append(each)
    try:
        context.require(rules.REASSIGN)
        controller = controller_elsewhere(context)
        if controller is not None:
            return await pass_on(request, controller, context, request.timeout_ms)
        term = context.services.elector.term()
        with translated("the assignment of partitions"):
            errors = deque(await term.reassign(wanted, may_change_replication_factor=may_change))
    except KafkaError as error:
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=may_change, error_code=error.code, error_message=error.message, responses=[]
        )
    topics = []
    for topic in request.topics:
        await pauses.here()
        partitions = []
        for partition in topic.partitions:
            await pauses.here()
            # The errors are removed one by one, because freeing very many errors at once takes long.
            partitions.append(_result(partition.partition_index, errors.popleft()))
        topics.append(TopicResult(name=topic.name, partitions=partitions))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change, error_code=ErrorCode.NONE, responses=topics
    )


def _wanted(request: AlterPartitionReassignmentsRequest) -> Iterator[Wanted]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield PartitionKey(topic.name, partition.partition_index), partition.replicas


def _result(index: int, error: KafkaError | None) -> PartitionResult:
    if error is None:
        return PartitionResult(partition_index=index, error_code=ErrorCode.NONE)
    return PartitionResult(partition_index=index, error_code=error.code, error_message=error.message)
