"""JoinGroup: how requests of each version behave, and how errors are encoded in each version."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.handlers import answered, asked, group_coordinator

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups import join_group
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.join_group import JoinGroupRequest


async def join(version: int, member_id: str = "", group_id: str = "g", groups: Any = None, **options: Any) -> Any:
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    context = asked(ApiKey.JOIN_GROUP, version, groups=groups or group_coordinator(), **options)
    return await answered(join_group.handle, request, context)


async def test_before_v4_a_new_member_joins_at_once() -> None:
    answer = await join(3)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (ErrorCode.NONE, 1, "range")
    assert answer.member_id == answer.leader == answer.members[0].member_id != ""


async def test_from_v4_on_a_new_member_gets_an_id_to_join_with() -> None:
    groups = group_coordinator()
    first = await join(4, groups=groups)
    assert (first.error_code, first.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
    assert first.member_id
    joined = await join(4, first.member_id, groups=groups)
    assert (joined.error_code, joined.member_id) == (ErrorCode.NONE, first.member_id)


@pytest.mark.parametrize(("version", "no_protocol"), [(6, ""), (7, None)])
async def test_a_failed_join_names_the_member_and_no_protocol(version: int, no_protocol: str | None) -> None:
    answer = await join(version, "unknown")
    assert (answer.error_code, answer.protocol_name) == (ErrorCode.UNKNOWN_MEMBER_ID, no_protocol)
    assert (answer.member_id, answer.members) == ("unknown", [])


async def test_joining_a_group_needs_the_right() -> None:
    groups = group_coordinator()
    answer = await join(9, groups=groups, refused={(rules.JOIN_GROUP, "g")})
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert list(groups.runtime.machine.known()) == []


async def test_group_id_and_coordinator_of_a_join_are_checked() -> None:
    assert (await join(9, group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
    groups = group_coordinator()
    groups.runtime.refuse(ErrorCode.NOT_COORDINATOR)
    assert (await join(9, groups=groups)).error_code == ErrorCode.NOT_COORDINATOR
