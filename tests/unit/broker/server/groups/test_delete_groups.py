"""DeleteGroups gives each group its own result, and deletes only groups without members."""

from __future__ import annotations

from typing import Any

from tests.support.groups import GroupDriver
from tests.support.handlers import answered, asked, group_coordinator

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups import delete_groups
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.delete_groups import DeleteGroupsRequest


async def delete(driver: GroupDriver, *names: str, refused: Any = ()) -> dict[str, int]:
    context = asked(ApiKey.DELETE_GROUPS, 2, refused=refused, groups=group_coordinator(driver.machine))
    answer = await answered(delete_groups.handle, DeleteGroupsRequest(groups_names=list(names)), context)
    assert len({result.group_id for result in answer.results}) == len(answer.results), "each once"
    return {result.group_id: result.error_code for result in answer.results}


async def test_a_group_with_members_is_kept_and_an_empty_one_deleted() -> None:
    driver = GroupDriver()
    (member,) = driver.stable()
    assert await delete(driver, "g", "g", "unknown") == {
        "g": ErrorCode.NON_EMPTY_GROUP,
        "unknown": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    driver.leave(member.member_id)
    assert await delete(driver, "g") == {"g": ErrorCode.NONE}
    assert list(driver.machine.known()) == []


async def test_deleting_a_group_needs_the_right() -> None:
    driver = GroupDriver()
    (member,) = driver.stable()
    driver.leave(member.member_id)
    assert await delete(driver, "g", refused={rules.DELETE_GROUP}) == {"g": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert driver.machine.ids() == ["g"]
