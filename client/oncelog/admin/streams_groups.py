"""Descriptions of streams groups (KIP-1071) for `admin.groups.describe`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from oncelog.admin.calls import Calls
from oncelog.admin.items import the_one
from oncelog.cluster import TopicPartition
from oncelog.errors import ErrorCode, UnsupportedVersion, error_for

if TYPE_CHECKING:
    from oncelog_protocol.messages.streams_group_describe import StreamsGroupDescribeResponse

Sources = Mapping[str, list[tuple[str, int]]]
"""Subtopology -> the topics that its tasks read, with the number of partitions of each topic."""


async def ask(
    calls: Calls, group_id: str, node_id: int
) -> tuple[StreamsGroupDescribeResponse.DescribedGroup, Sources] | None:
    """Ask a coordinator for the description of a group. Returns None if the broker does not know the group or the
    protocol. Raises KafkaError."""
    from oncelog_protocol.messages.streams_group_describe import StreamsGroupDescribeRequest

    request = StreamsGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    try:
        response = await calls.send_to(node_id, request)
    except UnsupportedVersion:
        return None
    group = the_one(response.groups, group_id)
    if group.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    if group.error_code:
        raise error_for(group.error_code, f"{group_id}: {group.error_message or ''}")
    return group, await _sources(calls, group)


async def _sources(calls: Calls, group: StreamsGroupDescribeResponse.DescribedGroup) -> Sources:
    """Return the existing topics that the tasks read."""
    subtopologies = [] if group.topology is None else group.topology.subtopologies or []
    topics = (await calls.described(None)).topics if subtopologies else {}
    return {
        each.subtopology_id: [
            (name, len(topics[name].partitions))
            for name in sorted({*each.source_topics, *(topic.name for topic in each.repartition_source_topics)})
            if name in topics
        ]
        for each in subtopologies
    }


def partitions_of(tasks: Iterable[Any], sources: Sources) -> tuple[TopicPartition, ...]:
    """Return the partitions that these tasks read."""
    return tuple(
        TopicPartition(topic, index)
        for task in tasks
        for topic, count in sources.get(task.subtopology_id, ())
        for index in task.partitions
        if index < count
    )


def names_of(tasks: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of the tasks in Kafka Streams: `0_3` is the task of subtopology 0 for partition 3."""
    return tuple(f"{task.subtopology_id}_{index}" for task in tasks for index in task.partitions)
