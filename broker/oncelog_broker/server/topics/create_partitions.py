"""CreatePartitions (37), v0-3: add partitions to topics. `count` is the new total, not the increase.

Behaviour: each topic succeeds or fails independently; a topic that the request names twice fails with INVALID_REQUEST;
if all topics together need too many new partitions, each fails with POLICY_VIOLATION. A broker that is not the
controller forwards each topic to the controller.
"""

from __future__ import annotations

from oncelog_broker.controller.topics import too_many
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.slices import with_pauses
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.request.duplicate_names import counted
from oncelog_broker.server.request.forwarding import controller_elsewhere, pass_on
from oncelog_broker.server.request.wait_for_metadata import wait_until_usable
from oncelog_broker.server.topics.services import TopicContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

TopicRequest = CreatePartitionsRequest.CreatePartitionsTopic
TopicResult = CreatePartitionsResponse.CreatePartitionsTopicResult


def handle(request: CreatePartitionsRequest, context: TopicContext) -> Answer[CreatePartitionsResponse]:
    return context.in_a_task(_grow_all(request, context))


async def _grow_all(request: CreatePartitionsRequest, context: TopicContext) -> CreatePartitionsResponse:
    pauses = context.services.slices.pauses()
    named = await with_pauses(counted(topic.name for topic in request.topics), pauses.here)
    increase = 0
    for topic in request.topics:
        await pauses.here()
        if named[topic.name] == 1:
            increase += _increase(topic, context.services.image)
    refused = too_many(increase)
    results = []
    for topic in request.topics:
        await pauses.here()
        if refused is not None:
            results.append(_failed(topic.name, refused))
            continue
        try:
            if named[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic '{topic.name}' is named twice in the request.")
            context.require(rules.CREATE_PARTITIONS, topic.name)
            await _grow(topic, request, context)
        except KafkaError as error:
            results.append(_failed(topic.name, error))
        else:
            results.append(TopicResult(name=topic.name, error_code=ErrorCode.NONE))
    return CreatePartitionsResponse(results=results)


async def _grow(topic: TopicRequest, request: CreatePartitionsRequest, context: TopicContext) -> None:
    assignment = None if topic.assignments is None else [entry.broker_ids for entry in topic.assignments]
    services, started = context.services, context.services.clock.monotonic()
    controller = controller_elsewhere(context)
    with context.mutations(0 if request.validate_only else _increase(topic, services.image)):
        if controller is None:
            grown = await services.topics.create_partitions(topic.name, topic.count, assignment, request.validate_only)
            partitions = len(grown.partitions)
        else:
            await _pass_on(topic, request, controller, context)
            partitions = topic.count
    if not request.validate_only:
        left_ms = request.timeout_ms - int(1000 * (services.clock.monotonic() - started))
        await wait_until_usable(services.metadata, services.replicas, topic.name, partitions, left_ms)


async def _pass_on(
    topic: TopicRequest, request: CreatePartitionsRequest, controller: int, context: TopicContext
) -> None:
    """Forward the request for one topic to the controller. Raises KafkaError with the controller's error."""
    alone = CreatePartitionsRequest(topics=[topic], timeout_ms=request.timeout_ms, validate_only=request.validate_only)
    answer = await pass_on(alone, controller, context, request.timeout_ms)
    (result,) = answer.results
    if result.error_code != ErrorCode.NONE:
        raise KafkaError(ErrorCode.of(result.error_code), result.error_message)


def _increase(topic: TopicRequest, image: ClusterImage) -> int:
    """Return how many new partitions the topic needs, as far as this broker knows."""
    known = image.topic(topic.name)
    return 0 if known is None else max(0, topic.count - len(known.partitions))


def _failed(name: str, error: KafkaError) -> TopicResult:
    return TopicResult(name=name, error_code=error.code, error_message=error.message)
