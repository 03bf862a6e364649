"""ElectLeaders (43), v0-2: elect preferred replicas as leaders, or any replica if no in-sync replica is left (KIP-460).

Behaviour: each partition succeeds or fails independently; a partition that the request names twice is elected once and
appears twice in the response. If a request is for all partitions, the response has all topics, but leaves out the
partitions that need no election, as in Kafka. The response is sent when this broker knows the new leaders;
REQUEST_TIMED_OUT if that takes longer than timeout_ms. A broker that is not the controller forwards the request to the
controller. Versions: v1 adds unclean elections and a top-level error; before v1 each partition carries the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from oncelog_broker.controller.store_errors import translated
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.slices import Pause
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.replicas.services import ReplicaContext
from oncelog_broker.server.request.forwarding import controller_elsewhere, pass_on
from oncelog_broker.server.request.wait_for_metadata import wait_until_shown
from oncelog_protocol.elections import ElectionType
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

TopicResult = ElectLeadersResponse.ReplicaElectionResult
PartitionResult = TopicResult.PartitionResult
Outcomes = dict[PartitionKey, KafkaError | None]

FIRST_VERSION_WITH_AN_ERROR: Final = 1


def handle(request: ElectLeadersRequest, context: ReplicaContext) -> Answer[ElectLeadersResponse]:
    return context.in_a_task(_elect(request, context))


async def _elect(request: ElectLeadersRequest, context: ReplicaContext) -> ElectLeadersResponse:
    services = context.services
    pauses = services.slices.pauses()
    asked = None if request.topic_partitions is None else await _asked(request.topic_partitions, pauses.here)
    try:
        context.require(rules.ELECT_LEADERS)
        kind = _kind(request)
        controller = controller_elsewhere(context)
        if controller is not None:
            return await pass_on(request, controller, context, request.timeout_ms)
        term = services.elector.term()
        with translated("the leaders of partitions"):
            outcomes = await term.elect(kind, None if asked is None else asked.keys)
    except KafkaError as error:
        return await _refused(error, asked, context)
    elected: dict[PartitionKey, int] = {}
    for key, outcome in outcomes.items():
        await pauses.here()
        if outcome is None and key in term.view.states:
            elected[key] = term.view.states[key].state.leader_epoch
    try:
        await wait_until_shown(services.metadata, lambda image: _shows(image, elected), request.timeout_ms)
    except KafkaError as error:
        outcomes.update(dict.fromkeys(elected, error.as_value()))
    named = list(outcomes) if asked is None else asked.in_order
    return await _answered(named, outcomes, context, names_all=asked is not None)


def _kind(request: ElectLeadersRequest) -> ElectionType:
    try:
        return ElectionType(request.election_type)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}.") from None


class Asked(NamedTuple):
    """The partitions of an ElectLeaders request."""

    in_order: list[PartitionKey]
    """The requested partitions, including repeated partitions."""
    keys: set[PartitionKey]


async def _asked(topics: Iterable[ElectLeadersRequest.TopicPartitions], pause: Pause) -> Asked:
    asked = Asked([], set())
    for topic in topics:
        await pause()
        for partition in topic.partitions:
            await pause()
            key = PartitionKey(topic.topic, partition)
            asked.in_order.append(key)
            asked.keys.add(key)
    return asked


def _shows(image: ClusterImage, elected: Mapping[PartitionKey, int]) -> bool:
    """Return whether the cluster image shows each of these elections or a later election, or the partition was
    deleted."""
    return all(
        (state := image.partition(*key)) is None or state.leader_epoch >= epoch for key, epoch in elected.items()
    )


async def _refused(error: KafkaError, asked: Asked | None, context: ReplicaContext) -> ElectLeadersResponse:
    if asked is None or context.version >= FIRST_VERSION_WITH_AN_ERROR:
        code = error.code if context.version >= FIRST_VERSION_WITH_AN_ERROR else ErrorCode.NONE
        return ElectLeadersResponse(error_code=code, replica_election_results=[])
    return await _answered(asked.in_order, dict.fromkeys(asked.keys, error.as_value()), context)


async def _answered(
    keys: Iterable[PartitionKey], outcomes: Outcomes, context: ReplicaContext, *, names_all: bool = True
) -> ElectLeadersResponse:
    """Return the response with the outcome of each partition. `names_all`: whether the response includes partitions
    that need no election. Outcomes are removed from `outcomes` one by one, because freeing very many errors at once
    takes long.
    """
    pauses, topics = context.services.slices.pauses(), dict[str, TopicResult]()
    results: dict[PartitionKey, PartitionResult | None] = {}
    for key in keys:
        await pauses.here()
        topic = topics.get(key.topic)
        if topic is None:
            topic = topics[key.topic] = TopicResult(topic=key.topic, partition_result=[])
        if key in outcomes:
            error = outcomes.pop(key)
            is_named = names_all or error is None or error.code is not ErrorCode.ELECTION_NOT_NEEDED
            results[key] = _result(key, error) if is_named else None
        if (result := results[key]) is not None:
            topic.partition_result.append(result)
    return ElectLeadersResponse(error_code=ErrorCode.NONE, replica_election_results=list(topics.values()))


def _result(key: PartitionKey, error: KafkaError | None) -> PartitionResult:
    code = ErrorCode.NONE if error is None else error.code
    return PartitionResult(
        partition_id=key.partition, error_code=code, error_message=None if error is None else error.message
    )
