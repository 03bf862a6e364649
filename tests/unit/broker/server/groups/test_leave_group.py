"""LeaveGroup before v3 has one member, and the response has one error. From v3 on, a request has many members, and each
has its own error.
"""

from __future__ import annotations

from typing import Any

from tests.support.groups import GroupDriver
from tests.support.handlers import answered, asked, group_coordinator

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups import leave_group
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.leave_group import LeaveGroupRequest

Member = LeaveGroupRequest.MemberIdentity


async def leave(version: int, driver: GroupDriver, *, refused: Any = (), **fields: Any) -> Any:
    context = asked(ApiKey.LEAVE_GROUP, version, refused=refused, groups=group_coordinator(driver.machine))
    return await answered(leave_group.handle, LeaveGroupRequest(group_id="g", **fields), context)


def members_of(driver: GroupDriver) -> list[str]:
    return [member for group in driver.machine.known() for member in group.members]


async def test_a_single_member_leaves() -> None:
    driver = GroupDriver()
    (member,) = driver.stable()
    assert (await leave(2, driver, member_id="unknown")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert members_of(driver) == [member.member_id]
    assert (await leave(2, driver, member_id=member.member_id)).error_code == ErrorCode.NONE
    assert members_of(driver) == []


async def test_each_of_several_leaving_members_has_its_own_error() -> None:
    driver = GroupDriver()
    (member,) = driver.stable()
    named = [
        Member(member_id=member.member_id),
        Member(member_id="unknown"),
        Member(member_id="", group_instance_id="i"),
    ]
    answer = await leave(3, driver, members=named)
    assert answer.error_code == ErrorCode.NONE
    codes = [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members]
    assert codes == [
        (member.member_id, None, ErrorCode.NONE),
        ("unknown", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "i", ErrorCode.UNKNOWN_MEMBER_ID),
    ]


async def test_members_of_a_missing_group_are_unknown() -> None:
    driver = GroupDriver()
    answer = await leave(3, driver, members=[Member(member_id="m")])
    assert (answer.error_code, [each.error_code for each in answer.members]) == (0, [ErrorCode.UNKNOWN_MEMBER_ID])
    assert (await leave(2, driver, member_id="m")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_leaving_a_group_needs_the_right() -> None:
    driver = GroupDriver()
    (member,) = driver.stable()
    answer = await leave(3, driver, refused={rules.LEAVE_GROUP}, members=[Member(member_id=member.member_id)])
    assert (answer.error_code, answer.members) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])
    assert members_of(driver) == [member.member_id]
