"""SyncGroup returns the assignment of a member, and v5 requires further fields."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.groups import GroupDriver
from tests.support.handlers import answered, asked, group_coordinator

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups import sync_group
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.sync_group import SyncGroupRequest


async def sync(
    version: int, member_id: str, generation: int, driver: GroupDriver, *, refused: Any = (), **fields: Any
) -> Any:
    request = SyncGroupRequest(group_id="g", generation_id=generation, member_id=member_id, assignments=[], **fields)
    context = asked(ApiKey.SYNC_GROUP, version, refused=refused, groups=group_coordinator(driver.machine))
    return await answered(sync_group.handle, request, context)


async def test_a_member_gets_its_assignment_again() -> None:
    driver = GroupDriver()
    (member,) = driver.stable()
    answer = await sync(4, member.member_id, member.generation_id, driver)
    assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, member.member_id.encode())


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
async def test_v5_must_name_type_and_protocol(missing: str) -> None:
    driver = GroupDriver()
    (member,) = driver.stable()
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    answer = await sync(5, member.member_id, member.generation_id, driver, **named | {missing: None})
    assert (answer.error_code, answer.assignment) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, b"")
    assert (await sync(5, member.member_id, member.generation_id, driver, **named)).error_code == ErrorCode.NONE


async def test_a_refused_sync_returns_no_assignment() -> None:
    driver = GroupDriver()
    (member,) = driver.stable()
    for generation, member_id, refused, code in (
        (member.generation_id + 1, member.member_id, (), ErrorCode.ILLEGAL_GENERATION),
        (member.generation_id, "unknown", (), ErrorCode.UNKNOWN_MEMBER_ID),
        (member.generation_id, member.member_id, {rules.SYNC_GROUP}, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ):
        answer = await sync(4, member_id, generation, driver, refused=refused)
        assert (answer.error_code, answer.assignment) == (code, b"")
