"""AlterShareGroupOffsets (91), v0: set the start offsets of share partitions of a group without members (KIP-932).

Behaviour: a group that does not exist is created. The group's state in these partitions is reset: acknowledged records
after the start offset are delivered again.
"""

from __future__ import annotations

from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.metadata.topic_names import SHARE_GROUP_STATE
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)

AskedTopic = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
Topic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
Partition = Topic.AlterShareGroupOffsetsResponsePartition

NO_TOPIC_ID = bytes(16)


def handle(request: AlterShareGroupOffsetsRequest, context: GroupContext) -> Answer[AlterShareGroupOffsetsResponse]:
    return context.in_a_task(_alter(request, context))


async def _alter(request: AlterShareGroupOffsetsRequest, context: GroupContext) -> AlterShareGroupOffsetsResponse:
    group_id = request.group_id
    if not context.may(rules.ALTER_SHARE_OFFSETS_GROUP, group_id):
        return _failed(KafkaError(rules.ALTER_SHARE_OFFSETS_GROUP.refused))
    if not group_id:
        return _failed(KafkaError(ErrorCode.INVALID_GROUP_ID))
    try:
        if context.services.image.topic(SHARE_GROUP_STATE) is None:
            await context.services.create_topic(SHARE_GROUP_STATE)
    except KafkaError as error:
        return _failed(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message))
    starts: dict[bytes, dict[int, int]] = {}
    answers = [_checked(topic, starts, context) for topic in request.topics]
    errors = await context.services.groups.share.alter(group_id, starts) if starts else {}
    if isinstance(errors, KafkaError):
        return _failed(errors)
    for topic in answers:
        for partition in topic.partitions:
            failure = errors.get(ShareKey(group_id, topic.topic_id, partition.partition_index))
            if failure is not None:
                partition.error_code, partition.error_message = failure.code, failure.message
    return AlterShareGroupOffsetsResponse(responses=answers)


def _checked(asked: AskedTopic, starts: dict[bytes, dict[int, int]], context: GroupContext) -> Topic:
    """Return the response for a topic if all its partitions can be altered; adds the share partitions that can be
    altered to `starts`.
    """
    topic = context.services.image.topic(asked.topic_name)
    if not context.may(rules.ALTER_SHARE_OFFSETS, asked.topic_name):
        topic = None  # a client without rights to a topic must not learn whether the topic exists
        refused: KafkaError | None = KafkaError(rules.ALTER_SHARE_OFFSETS.refused)
    else:
        refused = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if topic is None else None
    answers = []
    for partition in asked.partitions:
        error = refused
        if error is None and topic is not None and partition.partition_index not in topic.partitions:
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if error is None and partition.start_offset < 0:
            error = KafkaError(ErrorCode.INVALID_REQUEST, "a start offset must not be negative")
        if error is None and topic is not None:
            starts.setdefault(topic.topic_id, {})[partition.partition_index] = partition.start_offset
        answers.append(
            Partition(
                partition_index=partition.partition_index,
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
            )
        )
    topic_id = NO_TOPIC_ID if topic is None else topic.topic_id
    return Topic(topic_name=asked.topic_name, topic_id=topic_id, partitions=answers)


def _failed(error: KafkaError) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message, responses=[])
