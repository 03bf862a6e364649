"""DescribeTopicPartitions (75), v0: the partitions of topics, sorted by topic name and divided into pages (KIP-966).

A page ends after `response_partition_limit` partitions, at most PARTITIONS_PER_PAGE; `next_cursor` is the start of the
next page.
"""

from __future__ import annotations

from heapq import heapify, heappop
from typing import Final

from oncelog_broker.metadata.model.image import ClusterImage, Topic
from oncelog_broker.metadata.topic_names import INTERNAL_TOPICS
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.topics.services import TopicContext
from oncelog_protocol.acls import ResourceType
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from oncelog_protocol.schema import ZERO_UUID

TopicResponse = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
PartitionResponse = TopicResponse.DescribeTopicPartitionsResponsePartition
NextCursor = DescribeTopicPartitionsResponse.Cursor

PARTITIONS_PER_PAGE: Final = 2000
"""The default of Kafka's setting max.request.partition.size.limit."""


def handle(request: DescribeTopicPartitionsRequest, context: TopicContext) -> Answer[DescribeTopicPartitionsResponse]:
    return context.in_slices(_page(request, context))


def _page(request: DescribeTopicPartitionsRequest, context: TopicContext) -> Steps[DescribeTopicPartitionsResponse]:
    image = context.services.image
    named = {topic.name for topic in request.topics}
    names = list(named or image.topics)
    heapify(names)  # use a heap, because sorting very many names at once takes long
    first_topic, first_partition = "", 0
    if request.cursor is not None:
        first_topic, first_partition = request.cursor.topic_name, request.cursor.partition_index
    room = max(1, min(request.response_partition_limit, PARTITIONS_PER_PAGE))
    answers: list[TopicResponse] = []
    while names:
        yield None
        name = heappop(names)
        if name < first_topic:
            continue
        if not context.may(rules.TOPIC_PARTITIONS if named else rules.TOPIC_PARTITIONS_OF_ALL, name):
            if named:
                answers.append(_failed(name, rules.TOPIC_PARTITIONS.refused))
            continue
        topic = image.topic(name)
        if topic is None:
            answers.append(_failed(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            continue
        start = first_partition if name == first_topic else 0
        wanted = [index for index in sorted(topic.partitions) if index >= start]
        if room == 0:
            return DescribeTopicPartitionsResponse(
                topics=answers, next_cursor=NextCursor(topic_name=name, partition_index=start)
            )
        answers.append(_describe(topic, wanted[:room], image, context.operations(ResourceType.TOPIC, name)))
        if len(wanted) > room:
            cursor = NextCursor(topic_name=name, partition_index=wanted[room])
            return DescribeTopicPartitionsResponse(topics=answers, next_cursor=cursor)
        room -= len(wanted)
    return DescribeTopicPartitionsResponse(topics=answers)


def _failed(name: str, code: ErrorCode) -> TopicResponse:
    return TopicResponse(error_code=code, name=name, topic_id=ZERO_UUID, partitions=[])


def _describe(topic: Topic, indexes: list[int], image: ClusterImage, operations: int) -> TopicResponse:
    partitions = []
    for index in indexes:
        partition = topic.partitions[index]
        leads = image.is_led(partition)
        partitions.append(
            PartitionResponse(
                error_code=ErrorCode.NONE if leads else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=partition.leader if leads else -1,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                # The protocol allows null, but Java's admin client expects lists.
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[replica for replica in partition.replicas if replica not in image.brokers],
            )
        )
    return TopicResponse(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=operations,
    )
