"""Metadata (3), v0-13: brokers, topics, leaders; creates requested topics if that is allowed.

Behaviour: the response has the address of each broker on the listener of the request (T24). A missing topic is created
if `auto.create.topics.enable` and the request (v4+) both allow it; the response then describes the topic with its
leaders. A topic that a request names several times appears once in the response, because otherwise a small request
could cause a response larger than the broker's memory. Versions: in v0 an empty list means all topics; from v1 on null
means all topics, and an empty list means no topics (T10); v4 adds allow_auto_topic_creation; v10 adds topic ids to the
response; v12 allows requests by topic id, with null names (T9).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from oncelog_broker.config.broker_keys import AUTO_CREATE_TOPICS_ENABLE
from oncelog_broker.metadata.model.image import ClusterImage, Topic
from oncelog_broker.metadata.topic_names import INTERNAL_TOPICS, check_topic_name
from oncelog_broker.runtime.answers import Answer, settled, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.request.duplicate_names import NAMES_PER_STEP
from oncelog_broker.server.topics.services import TopicContext
from oncelog_protocol.acls import ResourceType
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog_protocol.schema import ZERO_UUID

TopicRequest = MetadataRequest.MetadataRequestTopic
TopicResponse = MetadataResponse.MetadataResponseTopic
PartitionResponse = TopicResponse.MetadataResponsePartition
BrokerResponse = MetadataResponse.MetadataResponseBroker

FIRST_AUTO_CREATION_FLAG_VERSION: Final = 4
FIRST_NULL_NAME_VERSION: Final = 12
NAMES_AT_ONCE: Final = 500
"""If a request names more missing topics than this number, the rest of the request runs in a separate task."""


def handle(request: MetadataRequest, context: TopicContext) -> Answer[MetadataResponse]:
    if request.topics is None or (context.version == 0 and not request.topics):
        return _answer(request, context, _all_topics(request, context))
    return then(context.in_slices(_named_once(request.topics)), partial(_answer_named, request, context))


def _answer_named(
    request: MetadataRequest, context: TopicContext, topics: list[TopicRequest]
) -> Answer[MetadataResponse]:
    request.topics = topics
    if _may_create(request, context):
        missing = _missing(request.topics, context.services.image)
        # If the client may not describe any of the missing topics, respond at once, as if all topics existed: the time
        # of the response must not show which topics exist.
        if len(missing) > NAMES_AT_ONCE or any(context.may(rules.METADATA, name) for name in missing):
            return context.in_a_task(_create_then_answer(request, context, missing))
    return _answer(request, context, _described(request, context, {}))


def _answer(
    request: MetadataRequest, context: TopicContext, topics: Steps[list[TopicResponse]]
) -> Answer[MetadataResponse]:
    return then(context.in_slices(topics), partial(_response, request, context))


def _all_topics(request: MetadataRequest, context: TopicContext) -> Steps[list[TopicResponse]]:
    image = context.services.image
    answers = []
    for topic in image.topics.values():
        if context.may(rules.METADATA_OF_ALL, topic.name):
            answers.append(_shown(topic, image, request, context))
        yield None
    return answers


def _missing(topics: list[TopicRequest], image: ClusterImage) -> list[str]:
    return [
        wanted.name
        for wanted in topics
        if wanted.name is not None and wanted.topic_id == ZERO_UUID and wanted.name not in image.topics
    ]


def _named_once(topics: list[TopicRequest]) -> Steps[list[TopicRequest]]:
    found: dict[tuple[str | None, bytes], TopicRequest] = {}
    for number, topic in enumerate(topics, 1):
        found[topic.name, topic.topic_id] = topic
        if number % NAMES_PER_STEP == 0:
            yield None
    return list(found.values())


def _may_create(request: MetadataRequest, context: TopicContext) -> bool:
    allowed = request.allow_auto_topic_creation or context.version < FIRST_AUTO_CREATION_FLAG_VERSION
    return allowed and context.services.config[AUTO_CREATE_TOPICS_ENABLE]


async def _create_then_answer(request: MetadataRequest, context: TopicContext, missing: list[str]) -> MetadataResponse:
    failures: dict[str, KafkaError] = {}
    pauses = context.services.slices.pauses()
    for name in missing:
        await pauses.here()
        if not context.may(rules.METADATA, name):
            continue  # the client must not learn whether the topic exists
        try:
            if not context.may(rules.METADATA_CREATE_ANY):
                context.require(rules.METADATA_CREATE, name)
            await context.services.create_topic(name)
        except KafkaError as error:
            failures[name] = error.as_value()
    return await settled(_answer(request, context, _described(request, context, failures)))


def _described(
    request: MetadataRequest, context: TopicContext, failures: dict[str, KafkaError]
) -> Steps[list[TopicResponse]]:
    image = context.services.image
    answers = []
    for wanted in request.topics or ():
        yield None
        if wanted.topic_id != ZERO_UUID:
            if context.version < FIRST_NULL_NAME_VERSION:
                answers.append(_failed(ErrorCode.INVALID_REQUEST, wanted.name or "", wanted.topic_id))
                continue
            topic = image.topic_by_id(wanted.topic_id)
            name = None if topic is None else topic.name
            missing = _failed(ErrorCode.UNKNOWN_TOPIC_ID, None, wanted.topic_id)
        else:
            name = wanted.name or ""
            topic = image.topic(name)
            missing = _failed(_why_missing(name, failures), name, ZERO_UUID)
        if name is not None and not context.may(rules.METADATA, name):
            answers.append(_failed(rules.METADATA.refused, missing.name, wanted.topic_id))
        else:
            answers.append(missing if topic is None else _shown(topic, image, request, context))
    return answers


def _why_missing(name: str, failures: dict[str, KafkaError]) -> ErrorCode:
    if name in failures:
        return failures[name].code
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _failed(code: ErrorCode, name: str | None, topic_id: bytes) -> TopicResponse:
    return TopicResponse(error_code=code, name=name, topic_id=topic_id, partitions=[])


def _shown(topic: Topic, image: ClusterImage, request: MetadataRequest, context: TopicContext) -> TopicResponse:
    answer = describe(topic, image)
    if request.include_topic_authorized_operations:
        answer.topic_authorized_operations = context.operations(ResourceType.TOPIC, topic.name)
    return answer


def describe(topic: Topic, image: ClusterImage) -> TopicResponse:
    """Return the description of a topic and its partitions, as the cluster image has them."""
    partitions = []
    for index, partition in topic.partitions.items():
        leads = image.is_led(partition)
        partitions.append(
            PartitionResponse(
                error_code=ErrorCode.NONE if leads else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=partition.leader if leads else -1,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=[replica for replica in partition.replicas if replica not in image.brokers],
            )
        )
    return TopicResponse(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
    )


def _response(request: MetadataRequest, context: TopicContext, topics: list[TopicResponse]) -> MetadataResponse:
    image = context.services.image
    brokers = []
    for broker in image.brokers.values():
        endpoint = broker.endpoint(context.connection.listener)
        if endpoint is not None:
            brokers.append(BrokerResponse(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack))
    response = MetadataResponse(
        brokers=brokers, cluster_id=image.cluster_id, controller_id=image.controller_id, topics=topics
    )
    if request.include_cluster_authorized_operations:
        may = context.may(rules.METADATA_CLUSTER)
        response.cluster_authorized_operations = context.operations(ResourceType.CLUSTER) if may else 0
    return response
