"""OffsetCommit (8), v2-10: store how far a group has read.

Behaviour: members commit in their generation; without generation and member id the group must have no members. A topic
that does not exist is refused by itself, as is metadata over offset.metadata.max.bytes (T15).
Versions: v2-4 a retention of its own, v6 leader epochs, v7 static members, v10 topic ids in place of names (T9).
"""

from __future__ import annotations

import asyncio
from typing import Final

from oncelog_broker.server.context import RequestContext
from oncelog_broker.server.topic_ids import resolve_names
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

TopicRequest = OffsetCommitRequest.OffsetCommitRequestTopic
TopicResponse = OffsetCommitResponse.OffsetCommitResponseTopic

FIRST_TOPIC_ID_VERSION: Final = 10


def handle(
    request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | asyncio.Future[OffsetCommitResponse]:
    known = context.services.image.topics
    unknown: list[TopicRequest] = []
    if context.version >= FIRST_TOPIC_ID_VERSION:
        request.topics, unknown = resolve_names(request.topics, context.services.image)

    def failed(error: KafkaError) -> OffsetCommitResponse:
        return OffsetCommitResponse(topics=[_refused(topic, error.code) for topic in (*request.topics, *unknown)])

    return context.services.groups.runtime.write(
        request.group_id,
        lambda machine, waiter: machine.commit(
            request, known, waiter, [_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID) for topic in unknown]
        ),
        failed,
    )


def _refused(topic: TopicRequest, code: ErrorCode) -> TopicResponse:
    return TopicResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            TopicResponse.OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            for partition in topic.partitions
        ],
    )
