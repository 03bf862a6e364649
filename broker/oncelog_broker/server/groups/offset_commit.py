"""OffsetCommit (8), v2-10: store the offsets up to which a group has read.

Behaviour: members commit with their generation; a commit without generation and member id requires that the group has
no members. A partition that does not exist is refused individually, as is metadata longer than
offset.metadata.max.bytes (T15). Versions: v2-4 have a retention time, v6 adds leader epochs, v7 static members, v10
topic ids in place of names (T9).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_broker.server.request.request_chunks import is_long, joined, parts
from oncelog_broker.server.request.topic_ids import resolve_names
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

TopicRequest = OffsetCommitRequest.OffsetCommitRequestTopic
TopicResponse = OffsetCommitResponse.OffsetCommitResponseTopic

FIRST_TOPIC_ID_VERSION: Final = 10


def handle(request: OffsetCommitRequest, context: GroupContext) -> Answer[OffsetCommitResponse]:
    if not context.may(rules.OFFSET_COMMIT_GROUP, request.group_id):
        return context.in_slices(_refused_all(request))
    if not is_long(request.topics):
        return _commit(request, request.topics, context)
    answers = context.services.slices.run(_commit_in_parts(request, context), must_finish=True)
    topics = then(then(answers, all_of), lambda each: context.in_slices(joined(part.topics for part in each)))
    return then(topics, lambda topics: OffsetCommitResponse(topics=topics))


def _commit(
    request: OffsetCommitRequest, topics: list[TopicRequest], context: GroupContext
) -> Answer[OffsetCommitResponse]:
    """Commit some of the topics of `request`, or all topics."""
    unknown: list[TopicRequest] = []
    if context.version >= FIRST_TOPIC_ID_VERSION:
        topics, unknown = resolve_names(topics, context.services.image)
    refused = [_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID) for topic in unknown]
    if context.services.authorizer is not None:
        topics, denied = context.divided(rules.OFFSET_COMMIT, topics)
        refused += [_refused(topic, rules.OFFSET_COMMIT.refused) for topic in denied]
    exists = context.services.image.has_partition

    def failed(error: KafkaError) -> OffsetCommitResponse:
        return OffsetCommitResponse(topics=[*(_refused(topic, error.code) for topic in topics), *refused])

    part = replace(request, topics=topics)
    return context.services.groups.runtime.write(
        request.group_id, lambda machine, waiter: machine.commit(part, exists, waiter, refused, context.version), failed
    )


def _commit_in_parts(request: OffsetCommitRequest, context: GroupContext) -> Steps[list[Answer[OffsetCommitResponse]]]:
    """Commit the topics of a large request in parts. Other requests run between two parts and may change the group, so
    the partitions of later parts may get errors that the partitions of earlier parts did not get.
    """
    answers = []
    for part in parts(request.topics):
        answers.append(_commit(request, part, context))
        yield None
    return answers


def _refused_all(request: OffsetCommitRequest) -> Steps[OffsetCommitResponse]:
    answers = []
    for part in parts(request.topics):
        answers.append([_refused(topic, rules.OFFSET_COMMIT_GROUP.refused) for topic in part])
        yield None
    return OffsetCommitResponse(topics=(yield from joined(answers)))


def _refused(topic: TopicRequest, code: ErrorCode) -> TopicResponse:
    return TopicResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            TopicResponse.OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            for partition in topic.partitions
        ],
    )
