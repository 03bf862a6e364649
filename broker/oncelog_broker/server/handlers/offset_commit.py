"""OffsetCommit (8), v2-10: store how far a group has read.

Behaviour: members commit in their generation; without generation and member id the group must have no members. A topic
that does not exist is refused by itself, as is metadata over offset.metadata.max.bytes (T15).
Versions: v2-4 a retention of its own, v6 leader epochs, v7 static members, v10 topic ids in place of names (T9).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.server.context import RequestContext
from oncelog_broker.server.topic_ids import resolve_names
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

TopicRequest = OffsetCommitRequest.OffsetCommitRequestTopic
TopicResponse = OffsetCommitResponse.OffsetCommitResponseTopic

FIRST_TOPIC_ID_VERSION: Final = 10
PARTITIONS_PER_STEP: Final = 500
"""A request about more is no longer one step of the group's machine, but one after another: some 4 ms each."""


def handle(request: OffsetCommitRequest, context: RequestContext) -> Answer[OffsetCommitResponse]:
    unknown: list[TopicRequest] = []
    if context.version >= FIRST_TOPIC_ID_VERSION:
        request.topics, unknown = resolve_names(request.topics, context.services.image)
    refused = [_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID) for topic in unknown]
    if sum(len(topic.partitions) for topic in request.topics) <= PARTITIONS_PER_STEP:
        return _commit(request, context, request.topics, refused)
    answers = context.services.slices.run(_commit_in_parts(request, context, refused), must_finish=True)
    return then(then(answers, all_of), _joined)


def _commit(
    request: OffsetCommitRequest, context: RequestContext, topics: list[TopicRequest], refused: list[TopicResponse]
) -> Answer[OffsetCommitResponse]:
    """Commit some of the topics of `request`; `refused` joins the answer."""
    known = context.services.image.topics

    def failed(error: KafkaError) -> OffsetCommitResponse:
        return OffsetCommitResponse(topics=[*(_refused(topic, error.code) for topic in topics), *refused])

    part = request if topics is request.topics else replace(request, topics=topics)
    return context.services.groups.runtime.write(
        request.group_id, lambda machine, waiter: machine.commit(part, known, waiter, refused), failed
    )


def _commit_in_parts(
    request: OffsetCommitRequest, context: RequestContext, refused: list[TopicResponse]
) -> Steps[list[Answer[OffsetCommitResponse]]]:
    """Others have their turn in between, so the group may change: then the rest is refused, partition by partition."""
    answers = [_commit(request, context, [], refused)]
    for topic in request.topics:
        for start in range(0, len(topic.partitions), PARTITIONS_PER_STEP):
            part = replace(topic, partitions=topic.partitions[start : start + PARTITIONS_PER_STEP])
            answers.append(_commit(request, context, [part], []))
            yield None
    return answers


def _joined(parts: list[OffsetCommitResponse]) -> OffsetCommitResponse:
    topics: list[TopicResponse] = []
    for part in parts:
        for topic in part.topics:
            if topics and (topics[-1].name, topics[-1].topic_id) == (topic.name, topic.topic_id):
                topics[-1].partitions += topic.partitions
            else:
                topics.append(topic)
    return OffsetCommitResponse(topics=topics)


def _refused(topic: TopicRequest, code: ErrorCode) -> TopicResponse:
    return TopicResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            TopicResponse.OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            for partition in topic.partitions
        ],
    )
