"""ShareGroupHeartbeat (76), v1: a member of a share group joins, stays or leaves (KIP-932).

Behaviour: the entire request is refused if it names a topic that the client may not describe. The first
ShareGroupHeartbeat creates `__share_group_state`, which keeps the state of share partitions.
"""

from __future__ import annotations

from oncelog_broker.coordinator.group.share.heartbeat import ShareHeartbeat, check_request
from oncelog_broker.metadata.membership import feature_levels
from oncelog_broker.metadata.topic_names import SHARE_GROUP_STATE
from oncelog_broker.runtime.answers import Answer, settled, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_broker.server.request.context import TOPICS_PER_STEP, level_in_force
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


def handle(request: ShareGroupHeartbeatRequest, context: GroupContext) -> Answer[ShareGroupHeartbeatResponse]:
    if level_in_force(context) < feature_levels.SHARE_GROUPS:
        return _failed(KafkaError(ErrorCode.UNSUPPORTED_VERSION, "some broker does not know share groups yet"))
    if not context.may(rules.SHARE_HEARTBEAT, request.group_id):
        return _failed(KafkaError(rules.SHARE_HEARTBEAT.refused))
    if request.subscribed_topic_names and context.services.authorizer is not None:
        may = context.in_slices(_may_describe_all(request.subscribed_topic_names, context))
        refused = KafkaError(rules.SHARE_TOPICS.refused)
        return then(may, lambda may: _checked(request, context) if may else _failed(refused))
    return _checked(request, context)


def _may_describe_all(names: list[str], context: GroupContext) -> Steps[bool]:
    for number, name in enumerate(names, 1):
        if not context.may(rules.SHARE_TOPICS, name):
            return False
        if number % TOPICS_PER_STEP == 0:
            yield None
    return True


def _checked(request: ShareGroupHeartbeatRequest, context: GroupContext) -> Answer[ShareGroupHeartbeatResponse]:
    try:
        check_request(request)
    except KafkaError as error:
        return _failed(error)
    if context.services.image.topic(SHARE_GROUP_STATE) is None:
        return context.in_a_task(_create_then_heartbeat(request, context))
    return _heartbeat(request, context)


async def _create_then_heartbeat(
    request: ShareGroupHeartbeatRequest, context: GroupContext
) -> ShareGroupHeartbeatResponse:
    try:
        await context.services.create_topic(SHARE_GROUP_STATE)
    except KafkaError as error:
        return _failed(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message))
    return await settled(_heartbeat(request, context))


def _heartbeat(request: ShareGroupHeartbeatRequest, context: GroupContext) -> Answer[ShareGroupHeartbeatResponse]:
    client = context.client
    return context.services.groups.runtime.write(
        request.group_id,
        lambda machine, waiter: machine.share.heartbeat(ShareHeartbeat(request, client, waiter)),
        _failed,
    )


def _failed(error: KafkaError) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
