"""DescribeGroups returns the members of stable groups, and describes an unknown group differently in each version."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.groups import GroupDriver
from tests.support.handlers import answered, asked, group_coordinator

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups import describe_groups
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.describe_groups import DescribeGroupsRequest


async def describe(version: int, *names: str, driver: GroupDriver | None = None, refused: Any = ()) -> list[Any]:
    groups = group_coordinator(None if driver is None else driver.machine)
    context = asked(ApiKey.DESCRIBE_GROUPS, version, refused=refused, groups=groups)
    return (await answered(describe_groups.handle, DescribeGroupsRequest(groups=list(names)), context)).groups


async def test_a_stable_group_is_described_with_its_members() -> None:
    driver = GroupDriver()
    (joined,) = driver.stable()
    (group,) = await describe(6, "g", driver=driver)
    assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (
        ErrorCode.NONE,
        "Stable",
        "consumer",
        "range",
    )
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "c", "/127.0.0.1")
    assert member.member_assignment == joined.member_id.encode()


async def test_while_a_group_rebalances_no_protocol_is_shown() -> None:
    driver = GroupDriver()
    driver.join(version=3)
    (group,) = await describe(6, "g", driver=driver)
    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    assert [member.member_metadata for member in group.members] == [b""]


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
async def test_an_unknown_group_is_dead(version: int, code: ErrorCode) -> None:
    (group,) = await describe(version, "unknown")
    assert (group.error_code, group.group_state, group.members) == (code, "Dead", [])


async def test_each_group_is_described_once_and_an_unauthorized_one_refused() -> None:
    driver = GroupDriver()
    driver.stable()
    groups = await describe(6, "secret", "g", "g", driver=driver, refused={(rules.DESCRIBE_GROUPS, "secret")})
    assert [(group.group_id, group.error_code, group.group_state) for group in groups] == [
        ("secret", ErrorCode.GROUP_AUTHORIZATION_FAILED, ""),
        ("g", ErrorCode.NONE, "Stable"),
    ]
