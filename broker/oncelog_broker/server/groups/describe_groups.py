"""DescribeGroups (15), v0-6: state and members of groups.

Member metadata is shown only while the group is stable; assignments are always shown. During a rebalance, the
assignments of the last generation are shown. An unknown group is reported as GROUP_ID_NOT_FOUND from v6 on (KIP-1043),
and in earlier versions as a group in state Dead.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.states import GroupState
from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_broker.server.request.duplicate_names import once
from oncelog_protocol.acls import ResourceType
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

DescribedGroup = DescribeGroupsResponse.DescribedGroup

FIRST_NOT_FOUND_VERSION: Final = 6


def handle(request: DescribeGroupsRequest, context: GroupContext) -> Answer[DescribeGroupsResponse]:
    answers = context.in_slices(_describe_each(request, context))
    described = then(answers, all_of)
    if not request.include_authorized_operations:
        return then(described, lambda groups: DescribeGroupsResponse(groups=groups))
    return then(described, lambda groups: context.in_slices(_with_operations(groups, context)))


def _describe_each(request: DescribeGroupsRequest, context: GroupContext) -> Steps[list[Answer[DescribedGroup]]]:
    runtime = context.services.groups.runtime
    answers = list[Answer[DescribedGroup]]()
    for group_id in once(request.groups):
        if not context.may(rules.DESCRIBE_GROUPS, group_id):
            answers.append(_failed(group_id, context.version, KafkaError(rules.DESCRIBE_GROUPS.refused)))
            yield None
            continue
        answers.append(
            runtime.read(group_id, partial(_describe, group_id), partial(_failed, group_id, context.version))
        )
        yield None
    return answers


def _with_operations(groups: list[DescribedGroup], context: GroupContext) -> Steps[DescribeGroupsResponse]:
    for group in groups:
        if group.error_code == ErrorCode.NONE:
            group.authorized_operations = context.operations(ResourceType.GROUP, group.group_id)
            yield None
    return DescribeGroupsResponse(groups=groups)


def _describe(group_id: str, machine: GroupMachine) -> DescribedGroup:
    group = machine.find_classic(group_id)
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroup.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def _failed(group_id: str, version: int, error: KafkaError) -> DescribedGroup:
    is_unknown = error.code is ErrorCode.GROUP_ID_NOT_FOUND
    return DescribedGroup(
        error_code=ErrorCode.NONE if is_unknown and version < FIRST_NOT_FOUND_VERSION else error.code,
        error_message=error.message,
        group_id=group_id,
        group_state=GroupState.DEAD.value if is_unknown else "",
        protocol_type="",
        protocol_data="",
        members=[],
    )
