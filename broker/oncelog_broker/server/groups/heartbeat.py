"""Heartbeat (12), v0-4: a member reports that it is alive, and learns whether it must rejoin. Versions: v3 adds static
members.
"""

from __future__ import annotations

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(request: HeartbeatRequest, context: GroupContext) -> Answer[HeartbeatResponse]:
    if not context.may(rules.HEARTBEAT, request.group_id):
        return _failed(KafkaError(rules.HEARTBEAT.refused))
    return context.services.groups.runtime.write(
        request.group_id, lambda machine, waiter: machine.heartbeat(request, waiter), _failed
    )


def _failed(error: KafkaError) -> HeartbeatResponse:
    """Return the response for an error of the coordinator. COORDINATOR_LOAD_IN_PROGRESS becomes NONE, because clients
    do not expect this error in a Heartbeat response: Kafka does not return it, and aiokafka's consumer stops on it.
    """
    is_loading = error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)
