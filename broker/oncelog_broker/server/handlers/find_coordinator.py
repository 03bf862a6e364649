"""FindCoordinator (10), v0-6: which broker coordinates a group or a transactional id.

Versions: v1 key types, v4 many keys in one request (T16), v6 share groups.
Coordinators are not served yet, so every key is answered COORDINATOR_NOT_AVAILABLE, which clients retry.
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.server.dispatch import RequestContext
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

FIRST_BATCHED_VERSION: Final = 4
KEY_TYPES: Final = {0: 0, 1: 0, 2: 6}
"""Group, transaction, share group: the first version of each."""


def handle(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    known = context.version >= KEY_TYPES.get(request.key_type, context.version + 1)
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE if known else ErrorCode.INVALID_REQUEST
    if context.version < FIRST_BATCHED_VERSION:
        return FindCoordinatorResponse(error_code=code, error_message=code.meaning, node_id=-1, host="", port=-1)
    coordinators = [
        FindCoordinatorResponse.Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=code, error_message=code.meaning
        )
        for key in request.coordinator_keys
    ]
    return FindCoordinatorResponse(coordinators=coordinators)
