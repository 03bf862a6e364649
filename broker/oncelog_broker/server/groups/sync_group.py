"""SyncGroup (14), v0-5: the group leader sends the assignments of a generation, and the other members wait for their
assignments.

Versions: v3 adds static members (KIP-345), v5 adds protocol type and name, which are required (KIP-559, T14).
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

FIRST_PROTOCOL_VERSION: Final = 5


def handle(request: SyncGroupRequest, context: GroupContext) -> Answer[SyncGroupResponse]:
    if context.version >= FIRST_PROTOCOL_VERSION and None in (request.protocol_type, request.protocol_name):
        return _failed(KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    if not context.may(rules.SYNC_GROUP, request.group_id):
        return _failed(KafkaError(rules.SYNC_GROUP.refused))
    return context.services.groups.runtime.write(
        request.group_id, lambda machine, waiter: machine.sync(request, waiter), _failed
    )


def _failed(error: KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code, assignment=b"")
