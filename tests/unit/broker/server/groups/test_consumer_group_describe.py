"""ConsumerGroupDescribe returns members with their present and target assignments."""

from __future__ import annotations

from typing import Any

from tests.support.consumer_groups import ConsumerDriver
from tests.support.handlers import answered, asked, group_coordinator

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups import consumer_group_describe
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest


async def describe(driver: ConsumerDriver, *names: str, refused: Any = ()) -> list[Any]:
    groups = group_coordinator(driver.machine)
    groups.config = driver.config
    context = asked(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, refused=refused, groups=groups, image=driver.view._image)
    request = ConsumerGroupDescribeRequest(group_ids=list(names), include_authorized_operations=False)
    return (await answered(consumer_group_describe.handle, request, context)).groups


def partitions(assignment: Any) -> dict[str, list[int]]:
    return {topic.topic_name: topic.partitions for topic in assignment.topic_partitions}


async def test_a_member_with_all_partitions_is_described() -> None:
    driver = ConsumerDriver()
    driver.joined()
    (group,) = await describe(driver, "g")
    assert (group.error_code, group.group_state, group.assignor_name) == (ErrorCode.NONE, "Stable", "uniform")
    (member,) = group.members
    assert (member.member_id, member.subscribed_topic_names) == ("m1", ["t"])
    assert partitions(member.assignment) == partitions(member.target_assignment) == {"t": [0, 1, 2, 3]}


async def test_a_member_is_shown_with_partitions_that_it_must_still_revoke() -> None:
    driver = ConsumerDriver()
    first = driver.joined()
    driver.advance(2)
    driver.joined()
    first.beat()
    ((member, _),) = [group.members for group in await describe(driver, "g")]
    assert partitions(member.assignment) == {"t": [0, 1, 2, 3]}
    assert partitions(member.target_assignment) == {"t": [0, 1]}


async def test_unknown_and_unauthorized_groups_are_refused() -> None:
    driver = ConsumerDriver()
    driver.joined()
    groups = await describe(driver, "unknown", "", "secret", refused={(rules.DESCRIBE_CONSUMER_GROUP, "secret")})
    assert [(group.group_id, group.error_code, group.members) for group in groups] == [
        ("unknown", ErrorCode.GROUP_ID_NOT_FOUND, []),
        ("", ErrorCode.INVALID_GROUP_ID, []),
        ("secret", ErrorCode.GROUP_AUTHORIZATION_FAILED, []),
    ]


async def test_a_group_with_a_hidden_topic_is_not_described() -> None:
    driver = ConsumerDriver()
    driver.joined()
    (group,) = await describe(driver, "g", refused={(rules.TOPIC_OF_CONSUMER_GROUP, "t")})
    assert (group.error_code, group.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])


def test_members_are_described_in_slices_as_they_were_in_one_moment() -> None:
    driver = ConsumerDriver()
    first, *others = [driver.joined() for _ in range(20)]
    context = asked(
        ApiKey.CONSUMER_GROUP_DESCRIBE, 1, groups=group_coordinator(driver.machine), image=driver.view._image
    )
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    found = consumer_group_describe._find("g", ("uniform",), driver.machine)
    steps = consumer_group_describe._with_rights(request, [found], context)
    next(steps)
    for client in others:
        client.leave()
    count = 1
    try:
        while True:
            next(steps)
            count += 1
    except StopIteration as end:
        (group,) = end.value.groups
    assert count >= 20, "thousands of members at once would hold up all other requests"
    assert len(group.members) == 20
    assert partitions(group.members[0].assignment) == {"t": [0, 1, 2, 3]}
    assert first.owns
