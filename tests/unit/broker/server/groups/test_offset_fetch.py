"""OffsetFetch in the old form and in the batched one, with names and with ids, and for partitions without a committed
offset.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.groups import GroupDriver
from tests.support.handlers import answered, asked, group_coordinator, image_with, topic_id

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups import offset_fetch
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest

Old = OffsetFetchRequest.OffsetFetchRequestTopic
Group = OffsetFetchRequest.OffsetFetchRequestGroup
Topic = Group.OffsetFetchRequestTopics


@pytest.fixture
def driver() -> GroupDriver:
    """A group `g` that has committed offset 7 for partition 0 of `orders` and offset 9 for partition 0 of `returns`."""
    driver = GroupDriver()
    driver.commit({("orders", 0): 7, ("returns", 0): 9}, known=("orders", "returns"))
    return driver


async def fetch(
    version: int, request: OffsetFetchRequest, driver: GroupDriver, *, refused: Any = (), code: Any = None
) -> Any:
    groups = group_coordinator(driver.machine)
    if code is not None:
        groups.runtime.refuse(code)
    context = asked(ApiKey.OFFSET_FETCH, version, refused=refused, groups=groups, image=image_with("orders", "returns"))
    return await answered(offset_fetch.handle, request, context)


def offsets(topics: Any) -> dict[Any, dict[int, tuple[int, int]]]:
    """Return topic -> partition -> (offset, error code)."""
    return {
        topic.name or topic.topic_id: {
            each.partition_index: (each.committed_offset, each.error_code) for each in topic.partitions
        }
        for topic in topics
    }


async def test_an_uncommitted_offset_is_minus_one_without_error(driver: GroupDriver) -> None:
    request = OffsetFetchRequest(group_id="g", topics=[Old(name="orders", partition_indexes=[0, 1])])
    answer = await fetch(7, request, driver)
    assert (answer.error_code, offsets(answer.topics)) == (0, {"orders": {0: (7, 0), 1: (-1, 0)}})
    request = OffsetFetchRequest(group_id="unknown", topics=[Old(name="orders", partition_indexes=[0])])
    assert offsets((await fetch(7, request, driver)).topics) == {"orders": {0: (-1, 0)}}


async def test_all_topics_of_a_group_are_fetched(driver: GroupDriver) -> None:
    answer = await fetch(7, OffsetFetchRequest(group_id="g", topics=None), driver)
    assert offsets(answer.topics) == {"orders": {0: (7, 0)}, "returns": {0: (9, 0)}}


async def test_each_of_many_groups_has_its_own_result(driver: GroupDriver) -> None:
    groups = [Group(group_id=name, topics=[Topic(name="orders", partition_indexes=[0])]) for name in ("g", "h")]
    refused = {(rules.OFFSET_FETCH_GROUP, "h")}
    answer = await fetch(8, OffsetFetchRequest(groups=groups), driver, refused=refused)
    assert [(each.group_id, each.error_code) for each in answer.groups] == [
        ("g", ErrorCode.NONE),
        ("h", ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ]
    assert offsets(answer.groups[0].topics) == {"orders": {0: (7, 0)}}


async def test_committed_offsets_are_fetched_by_topic_id(driver: GroupDriver) -> None:
    known, unknown = topic_id("orders"), bytes(15) + b"x"
    topics = [Topic(topic_id=each, partition_indexes=[0]) for each in (known, unknown)]
    answer = await fetch(10, OffsetFetchRequest(groups=[Group(group_id="g", topics=topics)]), driver)
    found = {topic.topic_id: [each.error_code for each in topic.partitions] for topic in answer.groups[0].topics}
    assert found == {known: [ErrorCode.NONE], unknown: [ErrorCode.UNKNOWN_TOPIC_ID]}


async def test_offsets_of_an_unauthorized_topic_are_refused(driver: GroupDriver) -> None:
    request = OffsetFetchRequest(
        groups=[Group(group_id="g", topics=[Topic(name=name, partition_indexes=[0]) for name in ("orders", "returns")])]
    )
    answer = await fetch(9, request, driver, refused={(rules.OFFSET_FETCH, "returns")})
    found = offsets(answer.groups[0].topics)
    assert found["orders"] == {0: (7, 0)}
    assert found["returns"] == {0: (-1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)}
    everything = OffsetFetchRequest(groups=[Group(group_id="g", topics=None)])
    answer = await fetch(9, everything, driver, refused={(rules.OFFSET_FETCH_ALL, "returns")})
    assert set(offsets(answer.groups[0].topics)) == {"orders"}, "of all topics it is left out"


async def test_a_broker_that_does_not_coordinate_the_group_refuses_the_fetch(driver: GroupDriver) -> None:
    request = OffsetFetchRequest(group_id="g", topics=[Old(name="orders", partition_indexes=[0])])
    assert (await fetch(7, request, driver, code=ErrorCode.NOT_COORDINATOR)).error_code == ErrorCode.NOT_COORDINATOR
    answer = await fetch(1, request, driver, code=ErrorCode.NOT_COORDINATOR)
    assert offsets(answer.topics) == {"orders": {0: (-1, ErrorCode.NOT_COORDINATOR)}}, "v1 has no error of the whole"
