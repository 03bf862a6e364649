"""ConsumerGroupHeartbeat (68), v0-1: a member of a consumer group joins, stays or leaves (KIP-848).

Behaviour: the entire request is refused if it names a topic that the client may not describe. A regular expression is
validated in a thread when a member first sends it. Versions: v1 adds regular expressions, and the client generates the
member id.
"""

from __future__ import annotations

from functools import partial

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.consumer.heartbeat import Heartbeat, check_request
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.patterns import check_topic_pattern
from oncelog_broker.metadata.membership import feature_levels
from oncelog_broker.runtime.answers import Answer, settled, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_broker.server.request.context import TOPICS_PER_STEP, level_in_force
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(request: ConsumerGroupHeartbeatRequest, context: GroupContext) -> Answer[ConsumerGroupHeartbeatResponse]:
    if level_in_force(context) < feature_levels.CONSUMER_GROUPS:
        return _failed(KafkaError(ErrorCode.UNSUPPORTED_VERSION, "some broker does not know consumer groups yet"))
    if not context.may(rules.CONSUMER_HEARTBEAT, request.group_id):
        return _failed(KafkaError(rules.CONSUMER_HEARTBEAT.refused))
    if request.subscribed_topic_names and context.services.authorizer is not None:
        may = context.in_slices(_may_describe_all(request.subscribed_topic_names, context))
        return then(may, lambda may: _checked(request, context) if may else _failed(_REFUSED))
    return _checked(request, context)


_REFUSED = KafkaError(rules.CONSUMER_TOPICS.refused)


def _may_describe_all(names: list[str], context: GroupContext) -> Steps[bool]:
    for number, name in enumerate(names, 1):
        if not context.may(rules.CONSUMER_TOPICS, name):
            return False
        if number % TOPICS_PER_STEP == 0:
            yield None
    return True


def _checked(request: ConsumerGroupHeartbeatRequest, context: GroupContext) -> Answer[ConsumerGroupHeartbeatResponse]:
    try:
        check_request(request, context.version, context.services.groups.config.consumer_assignors)
    except KafkaError as error:
        return _failed(error)
    if request.subscribed_topic_regex:
        return context.in_a_task(_with_regex(request, context, request.subscribed_topic_regex))
    return _heartbeat(request, context, None)


async def _with_regex(
    request: ConsumerGroupHeartbeatRequest, context: GroupContext, regex: str
) -> ConsumerGroupHeartbeatResponse:
    return await settled(_heartbeat(request, context, await check_topic_pattern(regex)))


def _heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: GroupContext, wrong_regex: str | None
) -> Answer[ConsumerGroupHeartbeatResponse]:
    may_describe = partial(context.may, rules.CONSUMER_MATCHED_TOPICS)
    client = context.client

    def serve(machine: GroupMachine, waiter: object) -> Effects:
        return machine.consumer_heartbeat(Heartbeat(request, client, waiter, may_describe, wrong_regex))

    return context.services.groups.runtime.write(request.group_id, serve, _failed)


def _failed(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
