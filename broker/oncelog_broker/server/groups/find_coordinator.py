"""FindCoordinator (10), v0-6: which broker coordinates a group or a transactional id.

Behaviour: the coordinator is the leader of the internal topic's partition to which the key hashes (S30); the response
has the leader's address on the listener of the request. The first request for a group creates `__consumer_offsets`, the
first for a transactional id `__transaction_state`, the first for a share partition `__share_group_state`. Only brokers
may look up share partitions. Versions: v1 adds key types, v4 many keys in one request (T16), v6 share groups.
"""

from __future__ import annotations

from typing import Final

from oncelog.metadata.internal_topics import partition_for
from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.metadata.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from oncelog_broker.runtime.answers import Answer, settled, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_broker.server.request.duplicate_names import once
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.find_coordinator import CoordinatorType, FindCoordinatorRequest, FindCoordinatorResponse

Coordinator = FindCoordinatorResponse.Coordinator

FIRST_BATCHED_VERSION: Final = 4
FIRST_VERSION: Final = {CoordinatorType.GROUP: 0, CoordinatorType.TRANSACTION: 0, CoordinatorType.SHARE: 6}
"""Maps a key type to the first version of FindCoordinator that may request this key type."""
INTERNAL_TOPIC: Final = {
    int(CoordinatorType.GROUP): CONSUMER_OFFSETS,
    int(CoordinatorType.TRANSACTION): TRANSACTION_STATE,
    int(CoordinatorType.SHARE): SHARE_GROUP_STATE,
}
"""Maps a key type to the internal topic that keeps the state for keys of this type."""
RULES: Final = {
    int(CoordinatorType.GROUP): rules.FIND_GROUP,
    int(CoordinatorType.TRANSACTION): rules.FIND_TRANSACTION,
    int(CoordinatorType.SHARE): rules.FIND_SHARE_GROUP,
}


def handle(request: FindCoordinatorRequest, context: GroupContext) -> Answer[FindCoordinatorResponse]:
    if context.version < FIRST_VERSION.get(request.key_type, context.version + 1):  # type: ignore[call-overload]
        return _failed(request, context, ErrorCode.INVALID_REQUEST)
    topic = INTERNAL_TOPIC[request.key_type]
    if context.services.image.topic(topic) is None:
        return context.in_a_task(_create_then_answer(request, context, topic))
    return _answer(request, context, topic)


async def _create_then_answer(
    request: FindCoordinatorRequest, context: GroupContext, topic: str
) -> FindCoordinatorResponse:
    try:
        if await _may_find_any(request, context):
            await context.services.create_topic(topic)
    except KafkaError as error:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return await settled(_failed(request, context, code, error.message))
    return await settled(_answer(request, context, topic))


async def _may_find_any(request: FindCoordinatorRequest, context: GroupContext) -> bool:
    pauses = context.services.slices.pauses()
    for key in _keys(request, context):
        await pauses.here()
        if _refusal(key, request.key_type, context) is None:
            return True
    return False


def _refusal(key: str, key_type: int, context: GroupContext) -> ErrorCode | None:
    """Return the error code if the client may not learn which broker coordinates this key; None if it may."""
    rule = RULES[key_type]
    if key_type != CoordinatorType.SHARE:
        return None if context.may(rule, key) else rule.refused
    if not context.may(rule):
        return rule.refused
    try:
        ShareKey.of_text(key)
    except ValueError:
        return ErrorCode.INVALID_REQUEST
    return None


def _answer(request: FindCoordinatorRequest, context: GroupContext, topic: str) -> Answer[FindCoordinatorResponse]:
    found = context.in_slices(_leaders(request, context, topic))
    return then(found, lambda coordinators: _response(context, coordinators))


def _leaders(request: FindCoordinatorRequest, context: GroupContext, topic: str) -> Steps[list[Coordinator]]:
    image, listener = context.services.image, context.connection.listener
    coordinators = []
    for key in _keys(request, context):
        refusal = _refusal(key, request.key_type, context)
        found = _leader(key, topic, image, listener) if refusal is None else _no_coordinator(key, refusal)
        coordinators.append(found)
        yield None
    return coordinators


def _leader(key: str, topic: str, image: ClusterImage, listener: str) -> Coordinator:
    found = image.topic(topic)
    index = 0 if found is None else partition_for(key, len(found.partitions))
    broker = image.leader_of(topic, index)
    endpoint = None if broker is None else broker.endpoint(listener)
    if broker is None or endpoint is None:
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(key=key, node_id=broker.id, host=endpoint.host, port=endpoint.port, error_code=0)


def _failed(
    request: FindCoordinatorRequest, context: GroupContext, code: ErrorCode, why: str | None = None
) -> Answer[FindCoordinatorResponse]:
    refused = context.in_slices(_no_coordinators(request, context, code, why))
    return then(refused, lambda coordinators: _response(context, coordinators))


def _no_coordinators(
    request: FindCoordinatorRequest, context: GroupContext, code: ErrorCode, why: str | None
) -> Steps[list[Coordinator]]:
    coordinators = []
    for key in _keys(request, context):
        coordinators.append(_no_coordinator(key, code, why))
        yield None
    return coordinators


def _no_coordinator(key: str, code: ErrorCode, why: str | None = None) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=why or code.meaning)


def _keys(request: FindCoordinatorRequest, context: GroupContext) -> list[str]:
    return [request.key] if context.version < FIRST_BATCHED_VERSION else once(request.coordinator_keys)


def _response(context: GroupContext, coordinators: list[Coordinator]) -> FindCoordinatorResponse:
    if context.version >= FIRST_BATCHED_VERSION:
        return FindCoordinatorResponse(coordinators=coordinators)
    (only,) = coordinators
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )
