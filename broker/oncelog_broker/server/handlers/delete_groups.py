"""DeleteGroups (42), v0-2: delete groups without members, with their offsets (KIP-229); each by itself."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from oncelog_broker.coordinator.effects import Effects, Waiter
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.server.answers import when_all
from oncelog_broker.server.context import RequestContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

Result = DeleteGroupsResponse.DeletableGroupResult


def handle(
    request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse | Awaitable[DeleteGroupsResponse]:
    runtime = context.services.groups.runtime
    answers = [
        runtime.write(group_id, partial(_delete, group_id), partial(_failed, group_id))
        for group_id in dict.fromkeys(request.groups_names)
    ]
    return when_all(answers, lambda results: DeleteGroupsResponse(results=results))


def _delete(group_id: str, machine: GroupMachine, waiter: Waiter) -> Effects:
    effects = machine.delete(group_id)
    effects.reply(waiter, Result(group_id=group_id, error_code=ErrorCode.NONE))
    return effects


def _failed(group_id: str, error: KafkaError) -> Result:
    return Result(group_id=group_id, error_code=error.code)
