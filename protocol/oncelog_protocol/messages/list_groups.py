"""ListGroups (16): lists the groups that this broker coordinates."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, message, string, struct


@message(api_key=16, versions="0-5", flexible="3+")
class ListGroupsRequest(Request["ListGroupsResponse"]):
    """List groups. List groups; an empty filter matches all groups.

    v3: flexible.
    v4: states_filter (KIP-518).
    v5: types_filter (KIP-848).
    """

    states_filter: list[str] = array("4+", of=string(), default_factory=list)
    types_filter: list[str] = array("5+", of=string(), default_factory=list)  # "classic", "consumer"


@message(api_key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    """The groups that the responding broker coordinates; to list all groups, send the request to every broker.

    v1: throttle_time_ms.
    v2: on a quota violation, the broker responds before it throttles the client.
    v3: flexible.
    v4: group_state (KIP-518).
    v5: group_type (KIP-848).

    Errors: COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS.
    """

    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16()
    groups: list[ListedGroup] = array()

    @struct
    class ListedGroup:
        group_id: str = string()
        protocol_type: str = string()  # "" for a group that only commits offsets
        group_state: str = string("4+", default="")
        group_type: str = string("5+", default="")
