"""Decides which committed offsets are removed: the offsets in an OffsetDelete request, and the offsets whose retention
time is over (KIP-211). Pure.
"""

from __future__ import annotations

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.classic_group import ClassicGroup
from oncelog_broker.coordinator.group.commits import Exists
from oncelog_broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from oncelog_broker.coordinator.group.offsets import CommittedOffsets
from oncelog_broker.coordinator.group.records import offset_record
from oncelog_broker.coordinator.group.share.share_group import ShareGroup
from oncelog_broker.coordinator.group.states import GroupState
from oncelog_broker.coordinator.group.streams.streams_group import StreamsGroup
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

Group = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup
Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic


def delete_offsets(
    group: Group, request: OffsetDeleteRequest, offsets: CommittedOffsets, exists: Exists
) -> tuple[Effects, OffsetDeleteResponse]:
    """Return (effects, response). The effects have a tombstone for each requested offset whose topic the group does not
    read. Raises KafkaError NON_EMPTY_GROUP, or GROUP_ID_NOT_FOUND for a share group, which commits no offsets.
    """
    if isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    if isinstance(group, ClassicGroup) and group.state is not GroupState.EMPTY and not group.is_consumer_group:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    reads = group.topics() if group.members else frozenset()
    effects = Effects()
    effects.may_be_divided = True
    response = OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=[])
    for topic in request.topics:
        is_read = reads is None or topic.name in reads
        answers = []
        for partition in topic.partitions:
            index = partition.partition_index
            if not exists(topic.name, index):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
            if code is ErrorCode.NONE and offsets.keeps(request.group_id, topic.name, index):
                effects.append(offset_record(request.group_id, topic.name, index, None))
            answers.append(Topic.OffsetDeleteResponsePartition(partition_index=index, error_code=code))
        response.topics.append(Topic(name=topic.name, partitions=answers))
    return effects, response


def expired_offsets(
    group_id: str, group: Group | None, offsets: CommittedOffsets, *, now_ms: int, retention_ms: int
) -> list[tuple[str, int]]:
    """Return the (topic, partition) pairs of the offsets whose retention has passed. Offsets of topics that members
    read never expire.
    """
    empty_since_ms, keep_topics = None, frozenset[str]()
    if isinstance(group, ClassicGroup):
        if group.protocol_type is not None and group.state is GroupState.EMPTY:
            empty_since_ms = group.state_since_ms
        elif group.protocol_type is not None:
            reads = group.topics() if group.state is GroupState.STABLE else None
            if reads is None:
                return []
            keep_topics = reads
    elif group is not None:
        keep_topics = group.topics()
    return offsets.expired(
        group_id,
        now_ms=now_ms,
        retention_ms=retention_ms,
        empty_since_ms=empty_since_ms,
        keep_topics=keep_topics,
    )
