"""JoinGroup (11), v0-9: a member joins a group or its next generation; the response waits until the generation is
formed.

Versions: v0 has no rebalance timeout, from v4 on a new member first gets an id and joins with a second request
(KIP-394), v5 adds static members (KIP-345), from v7 on the protocol name is null if no generation exists, v9 lets a
returning static leader skip the assignment (KIP-814).
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.coordinator.group.joining import Join
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

FIRST_MEMBER_ID_REQUIRED_VERSION: Final = 4
FIRST_NULL_PROTOCOL_VERSION: Final = 7
FIRST_SKIP_ASSIGNMENT_VERSION: Final = 9


def handle(request: JoinGroupRequest, context: GroupContext) -> Answer[JoinGroupResponse]:
    version = context.version
    no_protocol = None if version >= FIRST_NULL_PROTOCOL_VERSION else ""

    def failed(error: KafkaError) -> JoinGroupResponse:
        return JoinGroupResponse(
            error_code=error.code, protocol_name=no_protocol, leader="", member_id=request.member_id, members=[]
        )

    if not context.may(rules.JOIN_GROUP, request.group_id):
        return failed(KafkaError(rules.JOIN_GROUP.refused))
    client = context.client
    return context.services.groups.runtime.write(
        request.group_id,
        lambda machine, waiter: machine.join(
            Join(
                request,
                client,
                waiter,
                requires_member_id=version >= FIRST_MEMBER_ID_REQUIRED_VERSION,
                can_skip_assignment=version >= FIRST_SKIP_ASSIGNMENT_VERSION,
                no_protocol=no_protocol,
            )
        ),
        failed,
    )
