"""OffsetFetch (9), v1-10: how far groups have read.

Behaviour: -1 where nothing is committed, which is no error; an unknown group has committed nothing. With require_stable
an offset that an open transaction commits is UNSTABLE_OFFSET_COMMIT (S37), which clients retry.
Versions: v2 all topics of a group and an error of the whole, v5 leader epochs, v7 require_stable, v8 many groups in one
request, v10 topic ids in place of names (T9).
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.offsets import CommittedOffset
from oncelog_broker.metadata.image import ClusterImage
from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.server.context import RequestContext
from oncelog_broker.server.topic_ids import resolve_names
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

GroupRequest = OffsetFetchRequest.OffsetFetchRequestGroup
TopicRequest = GroupRequest.OffsetFetchRequestTopics
GroupResponse = OffsetFetchResponse.OffsetFetchResponseGroup
TopicResponse = GroupResponse.OffsetFetchResponseTopics
PartitionResponse = TopicResponse.OffsetFetchResponsePartitions
SingleTopic = OffsetFetchResponse.OffsetFetchResponseTopic

FIRST_GROUP_ERROR_VERSION: Final = 2
FIRST_BATCHED_VERSION: Final = 8
FIRST_TOPIC_ID_VERSION: Final = 10
NO_OFFSET: Final = -1


def handle(request: OffsetFetchRequest, context: RequestContext) -> Answer[OffsetFetchResponse]:
    if context.version >= FIRST_BATCHED_VERSION:
        answers = context.in_slices(_fetch_each(request, context))
        return then(then(answers, all_of), lambda groups: OffsetFetchResponse(groups=groups))
    topics = request.topics
    group = GroupRequest(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [TopicRequest(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics],
    )
    answer = _fetch(group, request.require_stable, context)
    return then(answer, lambda response: _of_one_group(response, group, context.version))


def _fetch_each(request: OffsetFetchRequest, context: RequestContext) -> Steps[list[Answer[GroupResponse]]]:
    answers = list[Answer[GroupResponse]]()
    for group in request.groups:
        answers.append(_fetch(group, request.require_stable, context))
        yield None
    return answers


def _fetch(group: GroupRequest, require_stable: bool, context: RequestContext) -> Answer[GroupResponse]:
    image = context.services.image
    by_id = context.version >= FIRST_TOPIC_ID_VERSION
    unknown: list[TopicRequest] = []
    if by_id and group.topics is not None:
        group.topics, unknown = resolve_names(group.topics, image)

    def query(machine: GroupMachine) -> GroupResponse:
        topics = _all_topics(machine, group.group_id) if group.topics is None else group.topics
        if by_id and group.topics is None:
            topics = _with_ids(topics, image)
        answers = [_offsets(machine, group.group_id, topic, require_stable) for topic in topics]
        refused = [_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID) for topic in unknown]
        return GroupResponse(group_id=group.group_id, topics=answers + refused)

    def failed(error: KafkaError) -> GroupResponse:
        return GroupResponse(group_id=group.group_id, topics=[], error_code=error.code)

    return context.services.groups.runtime.read(group.group_id, query, failed)


def _all_topics(machine: GroupMachine, group_id: str) -> list[TopicRequest]:
    return [
        TopicRequest(name=name, partition_indexes=list(partitions))
        for name, partitions in machine.offsets.of_group(group_id).items()
    ]


def _with_ids(topics: list[TopicRequest], image: ClusterImage) -> list[TopicRequest]:
    """Those that still exist, with their ids: a topic that is gone cannot be named to this client."""
    existing = []
    for topic in topics:
        found = image.topic(topic.name)
        if found is not None:
            topic.topic_id = found.topic_id
            existing.append(topic)
    return existing


def _offsets(machine: GroupMachine, group_id: str, topic: TopicRequest, require_stable: bool) -> TopicResponse:
    answers = []
    for index in topic.partition_indexes:
        if require_stable and machine.offsets.is_pending(group_id, topic.name, index):
            answers.append(_no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
        else:
            answers.append(_offset(index, machine.offsets.get(group_id, topic.name, index)))
    return TopicResponse(name=topic.name, topic_id=topic.topic_id, partitions=answers)


def _offset(index: int, committed: CommittedOffset | None) -> PartitionResponse:
    if committed is None:
        return _no_offset(index, ErrorCode.NONE)
    return PartitionResponse(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=ErrorCode.NONE,
    )


def _no_offset(index: int, code: ErrorCode) -> PartitionResponse:
    return PartitionResponse(partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code)


def _refused(topic: TopicRequest, code: ErrorCode) -> TopicResponse:
    return TopicResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[_no_offset(index, code) for index in topic.partition_indexes],
    )


def _of_one_group(answer: GroupResponse, asked: GroupRequest, version: int) -> OffsetFetchResponse:
    """The answer before v8; v1 has no error of the whole group, so there each partition carries it."""
    code = ErrorCode.of(answer.error_code)
    topics = answer.topics
    if code and version < FIRST_GROUP_ERROR_VERSION:
        topics = [_refused(topic, code) for topic in asked.topics or ()]
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            SingleTopic(
                name=topic.name,
                partitions=[
                    SingleTopic.OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in topics
        ],
    )
