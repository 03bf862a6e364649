"""ListGroups (16), v0-5: the groups that this broker coordinates.

Versions: v4 filter by state (KIP-518), v5 by type (KIP-848). Filters are the same in upper and lower case.
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.server.context import RequestContext
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

CLASSIC: Final = "classic"


def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    runtime = context.services.groups.runtime
    if runtime.is_loading:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, groups=[])
    states = {state.lower() for state in request.states_filter}
    types = {group_type.lower() for group_type in request.types_filter}
    groups = [
        ListGroupsResponse.ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=CLASSIC,
        )
        for machine in runtime.machines()
        for group in machine.known()
        if (not states or group.state.value.lower() in states) and (not types or CLASSIC in types)
    ]
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups)
