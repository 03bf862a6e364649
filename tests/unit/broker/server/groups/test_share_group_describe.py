"""ShareGroupDescribe returns groups with their members, hides what the client may not see, and omits groups of other
protocols.
"""

from __future__ import annotations

from typing import Any

from tests.support.consumer_groups import topic
from tests.support.handlers import answered, asked, group_coordinator, image_with
from tests.support.share_groups import ShareDriver

from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups import share_group_describe
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.share_group_describe import ShareGroupDescribeRequest

IMAGE = ClusterImage("cluster").with_topics([topic("t", 4)])


async def describe(driver: ShareDriver, *names: str, refused: Any = (), **services: Any) -> list[Any]:
    groups = group_coordinator(driver.machine)
    context = asked(ApiKey.SHARE_GROUP_DESCRIBE, 1, refused=refused, **{"groups": groups, "image": IMAGE, **services})
    request = ShareGroupDescribeRequest(group_ids=list(names), include_authorized_operations=not refused)
    return (await answered(share_group_describe.handle, request, context)).groups  # type: ignore[no-any-return]


async def test_a_group_and_its_members() -> None:
    driver = ShareDriver()
    client = driver.share_joined()
    (group,) = await describe(driver, "g", "g")
    assert (group.error_code, group.group_state, group.assignor_name) == (ErrorCode.NONE, "Stable", "simple")
    assert (group.group_epoch, group.assignment_epoch) == (client.epoch, client.epoch)
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.client_id) == (client.member_id, client.epoch, "c")
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_name, assigned.partitions) == ("t", [0, 1, 2, 3])
    assert group.authorized_operations > 0
    client.leave()
    (group,) = await describe(driver, "g")
    assert (group.group_state, group.members) == ("Empty", [])


async def test_groups_that_are_not_there_or_not_share_groups() -> None:
    driver = ShareDriver()
    driver.client(group_id="consumers").join()
    groups = await describe(driver, "unknown", "consumers", "")
    assert [group.error_code for group in groups] == [
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_GROUP_ID,
    ]


async def test_rights() -> None:
    driver = ShareDriver()
    driver.share_joined()
    (group,) = await describe(driver, "g", refused={(rules.DESCRIBE_SHARE_GROUP, "g")})
    assert group.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    (group,) = await describe(driver, "g", refused={(rules.TOPIC_OF_SHARE_GROUP, "t")})
    assert (group.error_code, group.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])


async def test_consumer_groups_are_disabled_in_a_cluster_with_an_older_broker() -> None:
    (group,) = await describe(ShareDriver(), "g", is_clustered=True, image=image_with())
    assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
