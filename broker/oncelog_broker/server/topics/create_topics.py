"""CreateTopics (19), v2-7: create topics; the response is sent when their partitions can be used.

Behaviour: each topic succeeds or fails independently; a topic that the request names twice fails with INVALID_REQUEST;
if all topics together need too many partitions, each fails with POLICY_VIOLATION. -1 means the broker's default number
of partitions or replicas (KIP-464). With validate_only no topic is created. A broker that is not the controller
forwards each topic to the controller. Versions: v5 adds the configuration and the numbers of partitions and replicas to
the response (KIP-525), v7 adds the topic id.
"""

from __future__ import annotations

from collections import Counter

from oncelog_broker.config.alter import check_topic_overrides
from oncelog_broker.config.broker_keys import DEFAULT_REPLICATION_FACTOR, NUM_PARTITIONS
from oncelog_broker.config.resolve import describe_topic
from oncelog_broker.controller.topics import too_many
from oncelog_broker.metadata.topic_names import check_topic_may_be_made
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.slices import with_pauses
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.request.duplicate_names import counted
from oncelog_broker.server.request.forwarding import controller_elsewhere, pass_on
from oncelog_broker.server.request.wait_for_metadata import wait_until_usable
from oncelog_broker.server.topics.services import TopicContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from oncelog_protocol.schema import ZERO_UUID

TopicRequest = CreateTopicsRequest.CreatableTopic
TopicResult = CreateTopicsResponse.CreatableTopicResult


def handle(request: CreateTopicsRequest, context: TopicContext) -> Answer[CreateTopicsResponse]:
    return context.in_a_task(_create_all(request, context))


async def _create_all(request: CreateTopicsRequest, context: TopicContext) -> CreateTopicsResponse:
    pauses = context.services.slices.pauses()
    named = await with_pauses(counted(topic.name for topic in request.topics), pauses.here)
    may_create_any = context.may(rules.CREATE_ANY_TOPIC)
    refused = await _refused(request, named, context)
    results = []
    for topic in request.topics:
        await pauses.here()
        if refused is not None:
            results.append(_failed(topic.name, refused))
            continue
        if named[topic.name] > 1:
            error = KafkaError(ErrorCode.INVALID_REQUEST, f"Topic '{topic.name}' is named twice in the request.")
            results.append(_failed(topic.name, error))
            continue
        try:
            controller = controller_elsewhere(context)
            if not may_create_any:
                context.require(rules.CREATE_TOPIC, topic.name)
            if controller is None:
                results.append(await _create(topic, request, context))
            else:
                results.append(await _pass_on(topic, request, controller, context))
        except KafkaError as error:
            results.append(_failed(topic.name, error))
    return CreateTopicsResponse(topics=results)


async def _refused(request: CreateTopicsRequest, named: Counter[str], context: TopicContext) -> KafkaError | None:
    """Return the error that refuses the entire request, or None."""
    pauses, default, partitions = context.services.slices.pauses(), context.services.config[NUM_PARTITIONS], 0
    for topic in request.topics:
        await pauses.here()
        if named[topic.name] == 1:
            partitions += _partitions(topic, default)
    return too_many(partitions)


async def _create(topic: TopicRequest, request: CreateTopicsRequest, context: TopicContext) -> TopicResult:
    services = context.services
    # Check first whether the topic exists, as Kafka does: clients that create a topic just to be sure that it exists
    # expect TOPIC_ALREADY_EXISTS, even if their settings are invalid.
    check_topic_may_be_made(topic.name)
    if services.image.topic(topic.name) is not None:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    assignment = _assignment(topic)
    partitions = services.config[NUM_PARTITIONS] if topic.num_partitions == -1 else topic.num_partitions
    replicas = (
        services.config[DEFAULT_REPLICATION_FACTOR] if topic.replication_factor == -1 else topic.replication_factor
    )
    overrides = check_topic_overrides({config.name: config.value for config in topic.configs})
    wanted = 0 if request.validate_only else _partitions(topic, services.config[NUM_PARTITIONS])
    with context.mutations(wanted):
        created = await services.topics.create_topic(
            topic.name, partitions, replicas, overrides, assignment, validate_only=request.validate_only
        )
    if not request.validate_only:
        count = len(created.partitions)
        await wait_until_usable(services.metadata, services.replicas, topic.name, count, request.timeout_ms)
    topic_id = ZERO_UUID if request.validate_only or created.topic_id is None else created.topic_id
    if not context.may(rules.CREATED_CONFIGS, topic.name):
        return TopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_code=ErrorCode.NONE,
            topic_config_error_code=rules.CREATED_CONFIGS.refused,
        )
    return TopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        num_partitions=len(created.partitions),
        replication_factor=len(next(iter(created.partitions.values())).replicas),
        configs=[
            TopicResult.CreatableTopicConfigs(
                name=line.name,
                value=line.value,
                read_only=line.is_read_only,
                config_source=line.source,
                is_sensitive=line.key.is_sensitive,
            )
            for line in describe_topic(overrides, services.config)
        ],
    )


async def _pass_on(
    topic: TopicRequest, request: CreateTopicsRequest, controller: int, context: TopicContext
) -> TopicResult:
    services, started = context.services, context.services.clock.monotonic()
    alone = CreateTopicsRequest(topics=[topic], timeout_ms=request.timeout_ms, validate_only=request.validate_only)
    wanted = 0 if request.validate_only else _partitions(topic, services.config[NUM_PARTITIONS])
    with context.mutations(wanted):
        answer = await pass_on(alone, controller, context, request.timeout_ms)
        (result,) = answer.topics
        if result.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(result.error_code), result.error_message)
    if not request.validate_only:
        left_ms = request.timeout_ms - int(1000 * (services.clock.monotonic() - started))
        await wait_until_usable(
            services.metadata, services.replicas, topic.name, max(1, result.num_partitions), left_ms
        )
    if not context.may(rules.CREATED_CONFIGS, topic.name):
        return TopicResult(
            name=topic.name,
            topic_id=result.topic_id,
            error_code=ErrorCode.NONE,
            topic_config_error_code=rules.CREATED_CONFIGS.refused,
        )
    return result


def _partitions(topic: TopicRequest, default: int) -> int:
    """Return the number of partitions that the topic needs."""
    if topic.assignments:
        return len(topic.assignments)
    return default if topic.num_partitions == -1 else max(0, topic.num_partitions)


def _assignment(topic: TopicRequest) -> dict[int, list[int]] | None:
    """Return the manual assignment, if the request has one. Raises KafkaError INVALID_REQUEST for an assignment
    combined with a number of partitions or replicas.
    """
    if not topic.assignments:
        return None
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Both a replica assignment and numbers of partitions or replicas were given: the numbers must be -1.",
        )
    assignment = {entry.partition_index: entry.broker_ids for entry in topic.assignments}
    if len(assignment) != len(topic.assignments):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition is assigned twice.")
    return assignment


def _failed(name: str, error: KafkaError) -> TopicResult:
    return TopicResult(name=name, error_code=error.code, error_message=error.message)
