"""Heartbeat (12), v0-4: a member is alive, and learns whether it must join again. Versions: v3 static members."""

from __future__ import annotations

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.context import RequestContext
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(request: HeartbeatRequest, context: RequestContext) -> Answer[HeartbeatResponse]:
    if not context.may(rules.HEARTBEAT, request.group_id):
        return _failed(KafkaError(rules.HEARTBEAT.refused))
    return context.services.groups.runtime.write(
        request.group_id, lambda machine, waiter: machine.heartbeat(request, waiter), _failed
    )


def _failed(error: KafkaError) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error.code)
