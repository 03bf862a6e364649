"""DeleteTopics (20), v1-6: delete topics by name, or by id (v6).

Behaviour: each topic succeeds or fails independently; the response is sent when this broker no longer serves the topic.
A broker that is not the controller forwards each topic to the controller. `delete.topic.enable=false` refuses all
deletions (with INVALID_REQUEST before v3, because older clients know no other code).
"""

from __future__ import annotations

from oncelog_broker.config.broker_keys import DELETE_TOPIC_ENABLE
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.request.forwarding import controller_elsewhere, pass_on
from oncelog_broker.server.request.wait_for_metadata import lacks_topic, wait_until_shown
from oncelog_broker.server.topics.services import TopicContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from oncelog_protocol.schema import ZERO_UUID

TopicResult = DeleteTopicsResponse.DeletableTopicResult
TopicState = DeleteTopicsRequest.DeleteTopicState

FIRST_DISABLED_ERROR_VERSION = 3


def handle(request: DeleteTopicsRequest, context: TopicContext) -> Answer[DeleteTopicsResponse]:
    return context.in_a_task(_delete_all(request, context))


async def _delete_all(request: DeleteTopicsRequest, context: TopicContext) -> DeleteTopicsResponse:
    wanted = request.topics or (TopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names)
    responses = []
    pauses = context.services.slices.pauses()
    for topic in wanted:
        await pauses.here()
        code, message = ErrorCode.NONE, None
        try:
            is_by_id = topic.name is None
            controller = controller_elsewhere(context)
            topic = _named(topic, context)
            context.require(rules.DELETE_TOPIC, topic.name or "")
            topic = _identified(topic, context.services.image)
            await _delete(topic, is_by_id, request.timeout_ms, controller, context)
        except KafkaError as error:
            code, message = error.code, error.message
        responses.append(TopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message))
    return DeleteTopicsResponse(responses=responses)


def _named(wanted: TopicState, context: TopicContext) -> TopicState:
    """Return the topic with its name filled in. Raises KafkaError."""
    if not context.services.config[DELETE_TOPIC_ENABLE]:
        known = context.version >= FIRST_DISABLED_ERROR_VERSION
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST)
    if (wanted.name is None) == (wanted.topic_id == ZERO_UUID):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic is deleted by name or by id, not by both or neither.")
    image = context.services.image
    if wanted.name is None:
        found = image.topic_by_id(wanted.topic_id)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        context.require(rules.DELETE_BY_ID, found.name)
        return TopicState(name=found.name, topic_id=found.topic_id)
    return wanted


def _identified(topic: TopicState, image: ClusterImage) -> TopicState:
    """Return the topic with its id filled in if the topic exists. Call this method only for clients that may delete the
    topic, because only they may learn its id.
    """
    found = image.topic(topic.name or "")
    return topic if found is None else TopicState(name=found.name, topic_id=found.topic_id)


async def _delete(
    topic: TopicState, is_by_id: bool, timeout_ms: int, controller: int | None, context: TopicContext
) -> None:
    """Delete one topic. `is_by_id`: whether the request names the topic by id, so that a new topic with the same name
    is not deleted. `controller`: the broker to which the request is forwarded; None if this broker is the controller.
    """
    assert topic.name is not None
    started = context.services.clock.monotonic()
    known = context.services.image.topic(topic.name)
    with context.mutations(0 if known is None else len(known.partitions)):
        try:
            if controller is None:
                topic_id = await context.services.topics.delete_topic(topic.name, topic.topic_id if is_by_id else None)
            else:
                topic_id = await _pass_on(topic, is_by_id, timeout_ms, controller, context)
        except KafkaError as error:
            if is_by_id and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID) from error
            raise
    left_ms = timeout_ms - int(1000 * (context.services.clock.monotonic() - started))
    await wait_until_shown(context.services.metadata, lacks_topic(topic.name, topic_id), left_ms)


async def _pass_on(
    topic: TopicState, is_by_id: bool, timeout_ms: int, controller: int, context: TopicContext
) -> bytes | None:
    """Return the id of the topic before its deletion, if this broker knows the id. Raises KafkaError."""
    alone = TopicState(name=None if is_by_id else topic.name, topic_id=topic.topic_id if is_by_id else ZERO_UUID)
    request = DeleteTopicsRequest(topics=[alone], topic_names=[topic.name or ""], timeout_ms=timeout_ms)
    answer = await pass_on(request, controller, context, timeout_ms)
    (result,) = answer.responses
    if result.error_code != ErrorCode.NONE:
        raise KafkaError(ErrorCode.of(result.error_code), result.error_message)
    told = result.topic_id if result.topic_id != ZERO_UUID else topic.topic_id
    return None if told == ZERO_UUID else told
