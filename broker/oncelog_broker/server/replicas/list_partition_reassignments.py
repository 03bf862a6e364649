"""ListPartitionReassignments (46), v0: the partitions that are being reassigned (KIP-455).

Behaviour: lists each of the named partitions once, or all partitions; a partition that is not being reassigned or does
not exist is omitted. The controller responds from its own view of the partitions; any other broker forwards the request
to the controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oncelog_broker.controller.store_errors import translated
from oncelog_broker.controller.view import ClusterView
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.slices import with_pauses
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.replicas.services import ReplicaContext
from oncelog_broker.server.request.duplicate_names import by_topic
from oncelog_broker.server.request.forwarding import controller_elsewhere, pass_on
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

TopicResult = ListPartitionReassignmentsResponse.OngoingTopicReassignment
PartitionResult = TopicResult.OngoingPartitionReassignment

PARTITIONS_PER_STEP = 500


def handle(
    request: ListPartitionReassignmentsRequest, context: ReplicaContext
) -> Answer[ListPartitionReassignmentsResponse]:
    return context.in_a_task(_answer(request, context))


async def _answer(
    request: ListPartitionReassignmentsRequest, context: ReplicaContext
) -> ListPartitionReassignmentsResponse:
    try:
        context.require(rules.LIST_REASSIGNMENTS)
        controller = controller_elsewhere(context)
        if controller is not None:
            return await pass_on(request, controller, context, request.timeout_ms)
        term = context.services.elector.term()
        with translated("the assignment of partitions"):
            view = await term.current_view()
    except KafkaError as error:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message, topics=[])
    return await with_pauses(_list(request, view), context.services.slices.pauses().here)


def _list(request: ListPartitionReassignmentsRequest, view: ClusterView) -> Steps[ListPartitionReassignmentsResponse]:
    if request.topics is None:
        # The list is a copy, because the view may change between two steps.
        keys: Iterable[PartitionKey] = (key for name in list(view.topics) for key in view.keys_of((name,)))
    else:
        named = yield from by_topic((topic.name, topic.partition_indexes) for topic in request.topics)
        keys = _keys(named.items())
    topics: dict[str, TopicResult] = {}
    for number, key in enumerate(keys, 1):
        assignment = view.assignment(key)
        if assignment is not None and assignment.is_reassigned:
            topic = topics.setdefault(key.topic, TopicResult(name=key.topic, partitions=[]))
            topic.partitions.append(
                PartitionResult(
                    partition_index=key.partition,
                    replicas=list(assignment.replicas),
                    adding_replicas=list(assignment.adding_replicas),
                    removing_replicas=list(assignment.removing_replicas),
                )
            )
        if number % PARTITIONS_PER_STEP == 0:
            yield None
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, topics=list(topics.values()))


def _keys(named: Iterable[tuple[str, Iterable[int]]]) -> Iterator[PartitionKey]:
    for topic, partitions in named:
        for partition in partitions:
            yield PartitionKey(topic, partition)
