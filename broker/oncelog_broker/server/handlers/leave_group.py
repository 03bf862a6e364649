"""LeaveGroup (13), v0-5: members leave, or are taken out by an administrator.

Versions: before v3 one member, whose error is the answer's; from v3 many, static ones by their instance id alone
(KIP-345); v5 a reason, which is logged (KIP-800).
"""

from __future__ import annotations

import logging
from typing import Final

from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.server.context import RequestContext
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

logger = logging.getLogger(__name__)

FIRST_BATCHED_VERSION: Final = 3


def handle(request: LeaveGroupRequest, context: RequestContext) -> Answer[LeaveGroupResponse]:
    members = request.members
    if context.version < FIRST_BATCHED_VERSION:
        members = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
    for member in members:
        if member.reason:
            logger.info(
                "member leaves",
                extra={"group": request.group_id, "member": member.member_id, "reason": member.reason},
            )
    answer: Answer[LeaveGroupResponse] = context.services.groups.runtime.write(
        request.group_id, lambda machine, waiter: machine.leave(request.group_id, members, waiter), _failed
    )
    return answer if context.version >= FIRST_BATCHED_VERSION else then(answer, _of_one_member)


def _of_one_member(answer: LeaveGroupResponse) -> LeaveGroupResponse:
    code = answer.members[0].error_code if answer.members else answer.error_code
    return LeaveGroupResponse(error_code=code)


def _failed(error: KafkaError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.code)
