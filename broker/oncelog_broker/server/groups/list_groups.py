"""ListGroups (16), v0-5: the groups that this broker coordinates.

Versions: v4 adds a filter by state (KIP-518), v5 a filter by type (KIP-848). Filters ignore upper and lower case.
"""

from __future__ import annotations

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def handle(request: ListGroupsRequest, context: GroupContext) -> Answer[ListGroupsResponse]:
    return context.in_slices(_list(request, context))


def _list(request: ListGroupsRequest, context: GroupContext) -> Steps[ListGroupsResponse]:
    runtime = context.services.groups.runtime
    if runtime.is_loading:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, groups=[])
    states = {state.lower() for state in request.states_filter}
    types = {group_type.lower() for group_type in request.types_filter}
    sees_all = context.may(rules.LIST_ALL_GROUPS)
    groups = []
    for machine in list(runtime.machines()):
        for group in list(machine.known()):
            yield None
            if (states and group.state.value.lower() not in states) or (types and group.kind not in types):
                continue
            if not (sees_all or context.may(rules.LIST_GROUPS, group.group_id)):
                continue
            groups.append(
                ListGroupsResponse.ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type=group.kind,
                )
            )
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups)
