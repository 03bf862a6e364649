"""DescribeShareGroupOffsets (90), v0-1: the start offsets of share partitions, and the lag (KIP-932).

Behaviour: a partition for which the group has no state has the start offset -1, without an error. The lag counts the
records from the start offset to the high watermark, without acknowledged and archived records; the lag is -1 if the
start offset or the high watermark is unknown. The high watermark of a new leader is unknown until it has reached the
start of the leader epoch. Versions: v1 adds the lag (KIP-1226).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.coordinator.share.share_state import NOT_SET, ShareState
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.replication.peers import PeerUnavailable, Purpose
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from oncelog_protocol.messages.list_offsets import ListOffsetsRequest

AskedGroup = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
AskedTopic = AskedGroup.DescribeShareGroupOffsetsRequestTopic
Group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
Topic = Group.DescribeShareGroupOffsetsResponseTopic
Partition = Topic.DescribeShareGroupOffsetsResponsePartition

FIRST_LAG_VERSION: Final = 1
ENDS_SECONDS: Final = 5.0
"""If another broker does not return the high watermarks of its partitions within this number of seconds, the lag is
unknown.
"""
LATEST: Final = -1
Ends = dict[tuple[str, int], int]
"""High watermarks by topic name and partition index."""


def handle(
    request: DescribeShareGroupOffsetsRequest, context: GroupContext
) -> Answer[DescribeShareGroupOffsetsResponse]:
    return context.in_a_task(_describe(request, context))


async def _describe(
    request: DescribeShareGroupOffsetsRequest, context: GroupContext
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(groups=[await _group(asked, context) for asked in request.groups])


async def _group(asked: AskedGroup, context: GroupContext) -> Group:
    group_id, image = asked.group_id, context.services.image
    if not context.may(rules.DESCRIBE_SHARE_OFFSETS_GROUP, group_id):
        return _failed(group_id, KafkaError(rules.DESCRIBE_SHARE_OFFSETS_GROUP.refused))
    topics: list[Topic] = []
    wanted: dict[bytes, frozenset[int]] | None = None
    if asked.topics is not None:
        wanted = {}
        for topic in asked.topics:
            found = image.topic(topic.topic_name)
            if not context.may(rules.DESCRIBE_SHARE_OFFSETS, topic.topic_name):
                topics.append(_refused(topic, bytes(16), KafkaError(rules.DESCRIBE_SHARE_OFFSETS.refused)))
            elif found is None:
                topics.append(_refused(topic, bytes(16), KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
            else:
                wanted[found.topic_id] = frozenset(topic.partitions)
    states = await context.services.groups.share.describe(group_id, wanted)
    if isinstance(states, KafkaError):
        return _failed(group_id, states)
    names = {key: named.name for key in states if (named := image.topic_by_id(key.topic_id)) is not None}
    if wanted is None:
        names = {key: name for key, name in names.items() if context.may(rules.DESCRIBE_SHARE_OFFSETS, name)}
    ends: Ends = {}
    if context.version >= FIRST_LAG_VERSION:
        started = {key: names[key] for key, state in states.items() if key in names and _has_started(state)}
        ends = await _ends(started, context)
    by_topic: dict[bytes, Topic] = {}
    for key, name in names.items():
        described = by_topic.setdefault(key.topic_id, Topic(topic_name=name, topic_id=key.topic_id, partitions=[]))
        described.partitions.append(_partition(key.partition, states[key], ends.get((name, key.partition))))
    return Group(group_id=group_id, topics=[*topics, *by_topic.values()])


def _has_started(state: ShareState | KafkaError) -> bool:
    return isinstance(state, ShareState) and state.start_offset != NOT_SET


def _partition(index: int, state: ShareState | KafkaError, end: int | None) -> Partition:
    if isinstance(state, KafkaError):
        return Partition(
            partition_index=index, start_offset=NOT_SET, error_code=state.code, error_message=state.message
        )
    lag = -1
    if end is not None and state.start_offset != NOT_SET:
        lag = max(0, end - state.start_offset - max(0, state.complete_count))
    return Partition(
        partition_index=index, start_offset=state.start_offset, leader_epoch=max(0, state.leader_epoch), lag=lag
    )


async def _ends(wanted: Mapping[ShareKey, str], context: GroupContext) -> Ends:
    """Return the high watermarks of these partitions. A partition is missing if its leader does not respond, is new
    and may have a lower high watermark than the previous leader, or may have a successor with a higher one.
    """
    services = context.services
    ends: Ends = {}
    elsewhere: dict[int, list[tuple[str, int]]] = {}
    for key, name in wanted.items():
        state = services.image.partition(name, key.partition)
        led = services.replicas.led_partition(name, key.partition)
        if led is not None:
            # Other leaders check the same conditions when they answer ListOffsets (KIP-207).
            if led.high_watermark_caught_up and not (led.is_in_doubt or led.log.is_offline):
                ends[name, key.partition] = led.high_watermark
        elif state is not None and state.leader != NO_LEADER:
            elsewhere.setdefault(state.leader, []).append((name, key.partition))
    asked = (_ends_at(broker_id, partitions, context) for broker_id, partitions in elsewhere.items())
    for found in await asyncio.gather(*asked):
        ends |= found
    return ends


async def _ends_at(broker_id: int, partitions: list[tuple[str, int]], context: GroupContext) -> Ends:
    topic = ListOffsetsRequest.ListOffsetsTopic
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            topic(
                name=name,
                partitions=[topic.ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in indexes],
            )
            for name, indexes in topics.items()
        ],
    )
    try:
        response = await context.services.peers.send(
            broker_id, request, purpose=Purpose.SHARE_STATE, timeout=ENDS_SECONDS
        )
    except PeerUnavailable:
        return {}
    return {
        (found.name, partition.partition_index): partition.offset
        for found in response.topics
        for partition in found.partitions
        if partition.error_code == ErrorCode.NONE and partition.offset >= 0
    }


def _refused(asked: AskedTopic, topic_id: bytes, error: KafkaError) -> Topic:
    return Topic(
        topic_name=asked.topic_name,
        topic_id=topic_id,
        partitions=[
            Partition(partition_index=index, start_offset=NOT_SET, error_code=error.code, error_message=error.message)
            for index in asked.partitions
        ],
    )


def _failed(group_id: str, error: KafkaError) -> Group:
    return Group(group_id=group_id, topics=[], error_code=error.code, error_message=error.message)
