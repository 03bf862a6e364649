"""Metadata (3), v0-13: brokers, topics, leaders; creates topics that are asked for where that is allowed.

Behaviour: addresses are those of the listener that the request came through (T24). A missing topic is created when
`auto.create.topics.enable` and the request (v4+) both allow it, and is then answered whole, leaders and all.
A topic that is named several times is answered once, or a small request could ask for more than the broker's memory.
Versions: v0 empty list = all topics, v1+ null = all and empty = none (T10); v4 allow_auto_topic_creation; v10 topic
ids in the answer; v12 topics asked for by id, null names only here (T9).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from oncelog_broker.config.broker_keys import AUTO_CREATE_TOPICS_ENABLE
from oncelog_broker.metadata.image import ClusterImage, Topic
from oncelog_broker.metadata.topic_names import INTERNAL_TOPICS, check_topic_name
from oncelog_broker.runtime.answers import Answer, settled, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.server.context import RequestContext
from oncelog_protocol.authorized_operations import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog_protocol.schema import ZERO_UUID

TopicRequest = MetadataRequest.MetadataRequestTopic
TopicResponse = MetadataResponse.MetadataResponseTopic
PartitionResponse = TopicResponse.MetadataResponsePartition
BrokerResponse = MetadataResponse.MetadataResponseBroker

FIRST_AUTO_CREATION_FLAG_VERSION: Final = 4
FIRST_NULL_NAME_VERSION: Final = 12


def handle(request: MetadataRequest, context: RequestContext) -> Answer[MetadataResponse]:
    if request.topics is None or (context.version == 0 and not request.topics):
        return _answer(request, context, _all_topics(context.services.image))
    request.topics = _named_once(request.topics)
    missing = [
        wanted.name
        for wanted in request.topics
        if wanted.name is not None and wanted.topic_id == ZERO_UUID and wanted.name not in context.services.image.topics
    ]
    if missing and _may_create(request, context):
        return context.in_a_task(_create_then_answer(request, context, missing))
    return _answer(request, context, _described(request, context, {}))


def _answer(
    request: MetadataRequest, context: RequestContext, topics: Steps[list[TopicResponse]]
) -> Answer[MetadataResponse]:
    return then(context.in_slices(topics), partial(_response, request, context))


def _all_topics(image: ClusterImage) -> Steps[list[TopicResponse]]:
    answers = []
    for topic in image.topics.values():
        answers.append(describe(topic, image))
        yield None
    return answers


def _named_once(topics: list[TopicRequest]) -> list[TopicRequest]:
    return list({(topic.name, topic.topic_id): topic for topic in topics}.values())


def _may_create(request: MetadataRequest, context: RequestContext) -> bool:
    allowed = request.allow_auto_topic_creation or context.version < FIRST_AUTO_CREATION_FLAG_VERSION
    return allowed and context.services.config[AUTO_CREATE_TOPICS_ENABLE]


async def _create_then_answer(
    request: MetadataRequest, context: RequestContext, missing: list[str]
) -> MetadataResponse:
    failures: dict[str, KafkaError] = {}
    pauses = context.services.slices.pauses()
    for name in missing:
        await pauses.here()
        try:
            await context.services.create_topic(name)
        except KafkaError as error:
            failures[name] = error.as_value()
    return await settled(_answer(request, context, _described(request, context, failures)))


def _described(
    request: MetadataRequest, context: RequestContext, failures: dict[str, KafkaError]
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
            missing = _failed(ErrorCode.UNKNOWN_TOPIC_ID, None, wanted.topic_id)
        else:
            topic = image.topic(wanted.name or "")
            missing = _failed(_why_missing(wanted.name or "", failures), wanted.name or "", ZERO_UUID)
        answers.append(missing if topic is None else describe(topic, image))
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


def describe(topic: Topic, image: ClusterImage) -> TopicResponse:
    """A topic with its partitions as the image has them."""
    partitions = []
    for index, partition in topic.partitions.items():
        leads = partition.leader in image.brokers
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


def _response(request: MetadataRequest, context: RequestContext, topics: list[TopicResponse]) -> MetadataResponse:
    image = context.services.image
    brokers = []
    for broker in image.brokers.values():
        endpoint = broker.endpoint(context.connection.listener)
        if endpoint is not None:
            brokers.append(BrokerResponse(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack))
    response = MetadataResponse(
        brokers=brokers, cluster_id=image.cluster_id, controller_id=image.controller_id, topics=topics
    )
    # Without an authorizer everybody may do everything.
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code == ErrorCode.NONE:
                topic.topic_authorized_operations = ALL_TOPIC_OPERATIONS
    return response
