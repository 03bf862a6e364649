"""DeleteShareGroupOffsets (92), v0: delete the state that a share group without members has for given topics (KIP-932).

Behaviour: a member that subscribes to such a topic later starts at the position that the group's
share.auto.offset.reset sets.
"""

from __future__ import annotations

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_broker.server.request.duplicate_names import once
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)

Topic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic

NO_TOPIC_ID = bytes(16)


def handle(request: DeleteShareGroupOffsetsRequest, context: GroupContext) -> Answer[DeleteShareGroupOffsetsResponse]:
    return context.in_a_task(_delete(request, context))


async def _delete(request: DeleteShareGroupOffsetsRequest, context: GroupContext) -> DeleteShareGroupOffsetsResponse:
    group_id, image = request.group_id, context.services.image
    if not context.may(rules.DELETE_SHARE_OFFSETS_GROUP, group_id):
        return _failed(KafkaError(rules.DELETE_SHARE_OFFSETS_GROUP.refused))
    if not group_id:
        return _failed(KafkaError(ErrorCode.INVALID_GROUP_ID))
    answers: list[Topic] = []
    wanted: dict[bytes, str] = {}
    for name in once([topic.topic_name for topic in request.topics]):
        topic = image.topic(name)
        if not context.may(rules.DELETE_SHARE_OFFSETS, name):
            answers.append(_topic(name, NO_TOPIC_ID, KafkaError(rules.DELETE_SHARE_OFFSETS.refused)))
        elif topic is None:
            answers.append(_topic(name, NO_TOPIC_ID, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
        else:
            wanted[topic.topic_id] = name
    outcomes = await context.services.groups.share.delete_offsets(group_id, frozenset(wanted))
    if isinstance(outcomes, KafkaError):
        return _failed(outcomes)
    nothing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete.")
    answers += [_topic(name, topic_id, outcomes.get(topic_id, nothing)) for topic_id, name in wanted.items()]
    return DeleteShareGroupOffsetsResponse(responses=answers)


def _topic(name: str, topic_id: bytes, error: KafkaError | None) -> Topic:
    return Topic(
        topic_name=name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )


def _failed(error: KafkaError) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message, responses=[])
