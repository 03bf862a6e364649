"""OffsetDelete: which offsets it deletes while topics are subscribed, and the rights that each topic requires."""

from __future__ import annotations

from typing import Any

from tests.support.groups import GroupDriver
from tests.support.handlers import answered, asked, group_coordinator, image_with

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups import offset_delete
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.offset_delete import OffsetDeleteRequest

Topic = OffsetDeleteRequest.OffsetDeleteRequestTopic


def driver_with_offsets(*topics: str) -> GroupDriver:
    driver = GroupDriver()
    driver.commit(dict.fromkeys(((topic, 0) for topic in topics), 7), known=topics)
    return driver


async def delete(driver: GroupDriver, *topics: str, refused: Any = ()) -> tuple[int, dict[str, list[int]]]:
    """Return the error code of the response, and topic -> error codes of partition 0."""
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            Topic(name=name, partitions=[Topic.OffsetDeleteRequestPartition(partition_index=0)]) for name in topics
        ],
    )
    context = asked(
        ApiKey.OFFSET_DELETE,
        0,
        refused=refused,
        groups=group_coordinator(driver.machine),
        image=image_with("orders", "returns"),
    )
    answer = await answered(offset_delete.handle, request, context)
    return answer.error_code, {topic.name: [each.error_code for each in topic.partitions] for topic in answer.topics}


def kept(driver: GroupDriver) -> list[tuple[str, int]]:
    return sorted(driver.machine.offsets.partitions_of("g"))


async def test_offsets_are_deleted_and_unknown_topics_reported() -> None:
    driver = driver_with_offsets("orders", "returns")
    codes = {"orders": [ErrorCode.NONE], "gone": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]}
    assert await delete(driver, "orders", "gone") == (ErrorCode.NONE, codes)
    assert kept(driver) == [("returns", 0)]


async def test_an_unknown_group_is_refused_as_a_whole() -> None:
    assert await delete(GroupDriver(), "orders") == (ErrorCode.GROUP_ID_NOT_FOUND, {})


async def test_deleting_offsets_needs_rights_on_group_and_topics() -> None:
    driver = driver_with_offsets("orders", "returns")
    assert await delete(driver, "orders", refused={rules.OFFSET_DELETE_GROUP}) == (
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        {},
    )
    codes = {"returns": [ErrorCode.NONE], "orders": [ErrorCode.TOPIC_AUTHORIZATION_FAILED]}
    assert await delete(driver, "orders", "returns", refused={(rules.OFFSET_DELETE, "orders")}) == (0, codes)
    assert kept(driver) == [("orders", 0)]
