"""CreatePartitions (37), v0-3: let topics have more partitions. `count` is the new total, not the increase."""

from __future__ import annotations

from collections import Counter

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.server.context import RequestContext
from oncelog_broker.server.shown import wait_until_usable
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

TopicRequest = CreatePartitionsRequest.CreatePartitionsTopic
TopicResult = CreatePartitionsResponse.CreatePartitionsTopicResult


def handle(request: CreatePartitionsRequest, context: RequestContext) -> Answer[CreatePartitionsResponse]:
    return context.in_a_task(_grow_all(request, context))


async def _grow_all(request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    named = Counter(topic.name for topic in request.topics)
    results = []
    pauses = context.services.slices.pauses()
    for topic in request.topics:
        await pauses.here()
        code, message = ErrorCode.NONE, None
        try:
            if named[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic '{topic.name}' is named twice in the request.")
            await _grow(topic, request, context)
        except KafkaError as error:
            code, message = error.code, error.message
        results.append(TopicResult(name=topic.name, error_code=code, error_message=message))
    return CreatePartitionsResponse(results=results)


async def _grow(topic: TopicRequest, request: CreatePartitionsRequest, context: RequestContext) -> None:
    assignment = None if topic.assignments is None else [entry.broker_ids for entry in topic.assignments]
    services = context.services
    grown = await services.topics.create_partitions(topic.name, topic.count, assignment, request.validate_only)
    if not request.validate_only:
        partitions = len(grown.partitions)
        await wait_until_usable(services.metadata, services.replicas, topic.name, partitions, request.timeout_ms)
