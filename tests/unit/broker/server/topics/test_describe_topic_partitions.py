"""DescribeTopicPartitions returns topics by name, page by page."""

from __future__ import annotations

from typing import Any

from tests.support.handlers import answered, asked, image_with

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.topics import describe_topic_partitions
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest

IMAGE = image_with("c", "a", "b", partitions=3)
Cursor = DescribeTopicPartitionsRequest.Cursor


async def page(*names: str, limit: int = 2000, cursor: Any = None, refused: Any = (), image: Any = IMAGE) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )
    context = asked(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, refused=refused, image=image)
    context.services.authorizer = None
    return await answered(describe_topic_partitions.handle, request, context)


def shown(answer: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, [each.partition_index for each in topic.partitions]) for topic in answer.topics]


async def test_all_topics_are_described_by_name() -> None:
    answer = await page()
    assert shown(answer) == [("a", [0, 1, 2]), ("b", [0, 1, 2]), ("c", [0, 1, 2])]
    assert answer.next_cursor is None


async def test_pages_have_all_partitions_once() -> None:
    found: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        answer = await page(limit=2, cursor=cursor)
        found += [(name, index) for name, indexes in shown(answer) for index in indexes]
        assert sum(len(indexes) for _, indexes in shown(answer)) <= 2
        if answer.next_cursor is None:
            break
        cursor = Cursor(topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index)
    assert found == [(name, index) for name in "abc" for index in range(3)]


async def test_named_topics_are_described_and_hidden_ones_refused() -> None:
    answer = await page("b", "secret", "unknown", refused={(rules.TOPIC_PARTITIONS, "secret")})
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("b", ErrorCode.NONE),
        ("secret", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    answer = await page(refused={(rules.TOPIC_PARTITIONS_OF_ALL, "b")})
    assert [topic.name for topic in answer.topics] == ["a", "c"], "of all topics it is left out"


async def test_a_partition_without_a_leader_is_described() -> None:
    (topic,) = (await page("a", image=image_with("a", leader=3, partitions=1))).topics
    (partition,) = topic.partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (partition.replica_nodes, partition.offline_replicas) == ([1, 2], [])
