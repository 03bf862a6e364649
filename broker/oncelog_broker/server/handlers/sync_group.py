"""SyncGroup (14), v0-5: the leader hands out the assignments of a generation, the others wait for theirs.

Versions: v3 static members (KIP-345), v5 protocol type and name are checked where they are given (KIP-559, T14).
"""

from __future__ import annotations

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.server.context import RequestContext
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def handle(request: SyncGroupRequest, context: RequestContext) -> Answer[SyncGroupResponse]:
    return context.services.groups.runtime.write(
        request.group_id, lambda machine, waiter: machine.sync(request, waiter), _failed
    )


def _failed(error: KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code, assignment=b"")
