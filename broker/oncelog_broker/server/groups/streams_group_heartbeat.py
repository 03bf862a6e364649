"""StreamsGroupHeartbeat (88), v0: a member of a streams group joins, stays or leaves (KIP-1071).

Behaviour: a request is refused if its topology names a topic that the sender may not describe, or a topic that the
brokers use internally. The broker creates missing internal topics with the rights of the sender. If the sender may not
create one of these topics, the broker creates no topic, and the status names the forbidden topic.
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.coordinator.group.streams.configured_topology import WantedTopic
from oncelog_broker.coordinator.group.streams.heartbeat_request import StreamsAnswer, StreamsHeartbeat, check_request
from oncelog_broker.coordinator.group.streams.streams_topology import named_topics
from oncelog_broker.metadata.membership import feature_levels
from oncelog_broker.metadata.topic_names import check_topic_name, is_internal
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_broker.server.request.context import TOPICS_PER_STEP, level_in_force
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.streams_group_heartbeat import (
    StatusCode,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

Topology = StreamsGroupHeartbeatRequest.Topology
ERRORS_IN_STATUS: Final = 3
"""Maximum number of creation errors in one status."""


def handle(request: StreamsGroupHeartbeatRequest, context: GroupContext) -> Answer[StreamsGroupHeartbeatResponse]:
    if level_in_force(context) < feature_levels.STREAMS_GROUPS:
        return _failed(KafkaError(ErrorCode.UNSUPPORTED_VERSION, "some broker does not know streams groups yet"))
    if not context.may(rules.STREAMS_HEARTBEAT, request.group_id):
        return _failed(KafkaError(rules.STREAMS_HEARTBEAT.refused))
    if request.topology is None:
        return _checked(request, context)
    refused = context.in_slices(_refused_topics(request.topology, context))
    return then(refused, lambda error: _checked(request, context) if error is None else _failed(error))


def _refused_topics(topology: Topology, context: GroupContext) -> Steps[KafkaError | None]:
    """Return the error if the sender may not use all topics of a topology; otherwise None."""
    names = named_topics(topology)
    yield None
    prohibited = [name for name in names if is_internal(name)]
    if prohibited:
        return KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited.",
        )
    for number, name in enumerate(names, 1):
        try:
            check_topic_name(name)
        except KafkaError as error:
            return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, error.message)
        if not context.may(rules.STREAMS_TOPICS, name):
            return KafkaError(rules.STREAMS_TOPICS.refused)
        if number % TOPICS_PER_STEP == 0:
            yield None
    return None


def _checked(request: StreamsGroupHeartbeatRequest, context: GroupContext) -> Answer[StreamsGroupHeartbeatResponse]:
    try:
        check_request(request)
    except KafkaError as error:
        return _failed(error)
    client = context.client
    answer = context.services.groups.runtime.write(
        request.group_id,
        lambda machine, waiter: machine.streams.heartbeat(StreamsHeartbeat(request, client, waiter)),
        lambda error: StreamsAnswer(_failed(error)),
    )
    return then(answer, lambda answer: _with_topics(answer, context))


def _with_topics(answer: StreamsAnswer, context: GroupContext) -> Answer[StreamsGroupHeartbeatResponse]:
    if not answer.topics:
        return answer.response
    return context.in_slices(_create_topics(answer, context))


def _create_topics(answer: StreamsAnswer, context: GroupContext) -> Steps[StreamsGroupHeartbeatResponse]:
    """Begin to create the missing topics, and add the errors of earlier creations to the status."""
    denied = yield from _not_to_be_created(answer.topics, context)
    if denied:
        _tell(answer.response, f"Unauthorized to CREATE on topics {', '.join(denied)}.")
        return answer.response
    creations = context.services.internal_topics
    wanted = creations.wanted(answer.topics)
    if wanted:
        with context.mutations(sum(topic.partitions for topic in wanted)):
            creations.begin(wanted, answer.keep_errors_ms / 1000)
    errors = creations.errors_of(answer.topics)
    if errors:
        shown = ", ".join(f"{name} ({reason})" for name, reason in list(errors.items())[:ERRORS_IN_STATUS])
        more = f" and {len(errors) - ERRORS_IN_STATUS} more" if len(errors) > ERRORS_IN_STATUS else ""
        _tell(answer.response, f"Creation failed: {shown}{more}.")
    return answer.response


def _not_to_be_created(topics: tuple[WantedTopic, ...], context: GroupContext) -> Steps[list[str]]:
    """Return the names of the topics that the sender may not create."""
    if context.may(rules.STREAMS_CREATE_ANY_TOPIC):
        return []
    denied = []
    for number, topic in enumerate(topics, 1):
        if not context.may(rules.STREAMS_CREATE_TOPIC, topic.name):
            denied.append(topic.name)
        if number % TOPICS_PER_STEP == 0:
            yield None
    return denied


def _tell(response: StreamsGroupHeartbeatResponse, what: str) -> None:
    """Add a text to the detail of the status MISSING_INTERNAL_TOPICS."""
    for status in response.status or ():
        if status.status_code == StatusCode.MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; {what}"


def _failed(error: KafkaError) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message, status=[])
