"""ListGroups: its filters, and what a user without rights sees."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.groups import GroupDriver
from tests.support.handlers import answered, asked, group_coordinator

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups import list_groups
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.list_groups import ListGroupsRequest


@pytest.fixture
def groups() -> Any:
    """The group `g` is stable, and `h` has a member that waits for the others."""
    driver = GroupDriver()
    driver.stable()
    driver.join(group_id="h", version=3)
    return group_coordinator(driver.machine)


async def listed(groups: Any, *, refused: Any = (), **filters: Any) -> dict[str, str]:
    """Return group id -> state of the group."""
    context = asked(ApiKey.LIST_GROUPS, 5, refused=refused, groups=groups)
    answer = await answered(list_groups.handle, ListGroupsRequest(**filters), context)
    assert answer.error_code == ErrorCode.NONE
    assert {(group.protocol_type, group.group_type) for group in answer.groups} <= {("consumer", "classic")}
    return {group.group_id: group.group_state for group in answer.groups}


async def test_all_groups_are_listed_with_their_states(groups: Any) -> None:
    assert await listed(groups) == {"g": "Stable", "h": "CompletingRebalance"}


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"states_filter": ["sTABLE"]}, {"g"}),
        ({"states_filter": ["Stable", "CompletingRebalance"]}, {"g", "h"}),
        ({"states_filter": ["NoSuchState"]}, set()),
        ({"types_filter": ["CLASSIC"]}, {"g", "h"}),
        ({"types_filter": ["consumer"]}, set()),
        ({"types_filter": ["classic"], "states_filter": ["Empty"]}, set()),
    ],
)
async def test_groups_are_filtered_by_state_and_type(
    groups: Any, filters: dict[str, list[str]], found: set[str]
) -> None:
    assert set(await listed(groups, **filters)) == found


async def test_a_user_without_cluster_rights_sees_authorized_groups_only(groups: Any) -> None:
    refused = {rules.LIST_ALL_GROUPS, (rules.LIST_GROUPS, "g")}
    assert set(await listed(groups, refused=refused)) == {"h"}
    assert set(await listed(groups, refused={(rules.LIST_GROUPS, "g")})) == {"g", "h"}, "by the right on the cluster"


async def test_listing_groups_is_refused_while_a_log_is_loading(groups: Any) -> None:
    groups.runtime.is_loading = True
    answer = await answered(list_groups.handle, ListGroupsRequest(), asked(ApiKey.LIST_GROUPS, 5, groups=groups))
    assert (answer.error_code, answer.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
