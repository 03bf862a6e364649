"""LeaveGroup (13), v0-5: members leave a group, or an administrator removes members from a group.

Versions: before v3 the request has one member, whose error is the top-level error; v3 has many members, and may name a
static member by its instance id alone (KIP-345); v5 adds a reason, which is logged (KIP-800).
"""

from __future__ import annotations

import logging
from typing import Final

from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

Member = LeaveGroupRequest.MemberIdentity

logger = logging.getLogger(__name__)

FIRST_BATCHED_VERSION: Final = 3


MEMBERS_PER_STEP: Final = 500
"""The maximum number of members that leave in one step of the state machine; a step with this many members takes some 2
ms. The members of a larger request leave in several steps, as if there were several requests.
"""


def handle(request: LeaveGroupRequest, context: GroupContext) -> Answer[LeaveGroupResponse]:
    if not context.may(rules.LEAVE_GROUP, request.group_id):
        return LeaveGroupResponse(error_code=rules.LEAVE_GROUP.refused)
    if context.version < FIRST_BATCHED_VERSION:
        return then(_leave(request, [Member(member_id=request.member_id)], context), _of_one_member)
    if len(request.members) <= MEMBERS_PER_STEP:
        return _leave(request, request.members, context)
    answers = context.services.slices.run(_leave_in_parts(request, context), must_finish=True)
    return then(then(answers, all_of), _joined)


def _leave_in_parts(request: LeaveGroupRequest, context: GroupContext) -> Steps[list[Answer[LeaveGroupResponse]]]:
    answers = []
    for start in range(0, len(request.members), MEMBERS_PER_STEP):
        answers.append(_leave(request, request.members[start : start + MEMBERS_PER_STEP], context))
        yield None
    return answers


def _joined(answers: list[LeaveGroupResponse]) -> LeaveGroupResponse:
    """Combine the responses to the parts of one request. If a part has a top-level error, the entire response is this
    error: this broker does not coordinate the group, or the group does not exist. The client then sends the request
    again.
    """
    for answer in answers:
        if answer.error_code:
            return answer
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE, members=[member for answer in answers for member in answer.members]
    )


def _leave(request: LeaveGroupRequest, members: list[Member], context: GroupContext) -> Answer[LeaveGroupResponse]:
    for member in members:
        if member.reason:
            logger.info(
                "member leaves",
                extra={"group": request.group_id, "member": member.member_id, "reason": member.reason},
            )

    def failed(error: KafkaError) -> LeaveGroupResponse:
        if context.version < FIRST_BATCHED_VERSION or error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
            return LeaveGroupResponse(error_code=error.code)
        return LeaveGroupResponse(error_code=ErrorCode.NONE, members=[_unknown(member) for member in members])

    return context.services.groups.runtime.write(
        request.group_id, lambda machine, waiter: machine.leave(request.group_id, members, waiter), failed
    )


def _of_one_member(answer: LeaveGroupResponse) -> LeaveGroupResponse:
    code = answer.members[0].error_code if answer.members else answer.error_code
    return LeaveGroupResponse(error_code=code)


def _unknown(member: Member) -> LeaveGroupResponse.MemberResponse:
    """Return the error for a member of a group that does not exist."""
    return LeaveGroupResponse.MemberResponse(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        error_code=ErrorCode.UNKNOWN_MEMBER_ID,
    )
