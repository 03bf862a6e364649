"""DeleteGroups (42): deletes groups without members, with their offsets (KIP-229)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, message, string, struct


@message(api_key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest(Request["DeleteGroupsResponse"]):
    """Delete groups.

    v2: flexible.
    """

    groups_names: list[str] = array(of=string())


@message(api_key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    """The response has one result per group.

    v1: on a quota violation, the broker responds before it throttles the client.
    v2: flexible.

    Errors of a group: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, INVALID_GROUP_ID, NOT_COORDINATOR,
    COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, GROUP_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32(default=0)
    results: list[DeletableGroupResult] = array()

    @struct
    class DeletableGroupResult:
        group_id: str = string()
        error_code: int = int16()
