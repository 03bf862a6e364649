"""DeleteGroups (42), v0-2: delete groups without members, with their offsets (KIP-229); each group succeeds or fails
independently.

For a share group, the state of its share partitions is deleted first (KIP-932).
"""

from __future__ import annotations

from functools import partial

from oncelog_broker.coordinator.effects import Effects, Waiter
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_broker.server.request.duplicate_names import once
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

Result = DeleteGroupsResponse.DeletableGroupResult


def handle(request: DeleteGroupsRequest, context: GroupContext) -> Answer[DeleteGroupsResponse]:
    answers = context.services.slices.run(_delete_each(request, context), must_finish=True)
    return then(then(answers, all_of), lambda results: DeleteGroupsResponse(results=results))


def _delete_each(request: DeleteGroupsRequest, context: GroupContext) -> Steps[list[Answer[Result]]]:
    answers = list[Answer[Result]]()
    for group_id in once(request.groups_names):
        if not context.may(rules.DELETE_GROUP, group_id):
            answers.append(Result(group_id=group_id, error_code=rules.DELETE_GROUP.refused))
            yield None
            continue
        is_share = context.services.groups.share.is_share_group(group_id)
        answers.append(then(is_share, partial(_delete_of_kind, group_id, context)))
        yield None
    return answers


def _delete_of_kind(group_id: str, context: GroupContext, is_share_group: bool) -> Answer[Result]:
    if is_share_group:
        return context.in_a_task(_delete_share_group(group_id, context))
    runtime = context.services.groups.runtime
    return runtime.write(group_id, partial(_delete, group_id), partial(_failed, group_id))


async def _delete_share_group(group_id: str, context: GroupContext) -> Result:
    error = await context.services.groups.share.delete_group(group_id)
    return Result(group_id=group_id, error_code=ErrorCode.NONE) if error is None else _failed(group_id, error)


def _delete(group_id: str, machine: GroupMachine, waiter: Waiter) -> Effects:
    effects = machine.delete(group_id)
    effects.reply(waiter, Result(group_id=group_id, error_code=ErrorCode.NONE))
    return effects


def _failed(group_id: str, error: KafkaError) -> Result:
    return Result(group_id=group_id, error_code=error.code)
