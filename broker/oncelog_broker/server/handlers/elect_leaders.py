"""ElectLeaders (43), v0-2: let preferred replicas lead, or any where nobody in sync is left (KIP-460).

Behaviour: each partition succeeds or fails by itself; one that is named twice is elected once and answered twice. Where
all are asked for, all topics are named, without the partitions that need no election, as Kafka does. Answered when this
broker knows of the new leaders: REQUEST_TIMED_OUT where that takes longer than timeout_ms. Served by the controller
alone.
Versions: v1 unclean elections, and an error of the whole; before, it stands at each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from oncelog_broker.controller.store_errors import translated
from oncelog_broker.metadata.image import ClusterImage
from oncelog_broker.metadata.reader import PartitionKey
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.context import RequestContext
from oncelog_broker.server.shown import wait_until_shown
from oncelog_protocol.elections import ElectionType
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

TopicResult = ElectLeadersResponse.ReplicaElectionResult
PartitionResult = TopicResult.PartitionResult
Outcomes = Mapping[PartitionKey, KafkaError | None]

FIRST_VERSION_WITH_AN_ERROR: Final = 1


def handle(request: ElectLeadersRequest, context: RequestContext) -> Answer[ElectLeadersResponse]:
    return context.in_a_task(_elect(request, context))


async def _elect(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    services = context.services
    asked = None if request.topic_partitions is None else await _asked(request.topic_partitions, context)
    try:
        context.require(rules.ELECT_LEADERS)
        kind = _kind(request)
        term = services.elector.term()
        with translated("the leaders of partitions"):
            outcomes = dict(await term.elect(kind, asked))
    except KafkaError as error:
        return await _refused(error, asked, context)
    elected = {key: term.view.states[key].state.leader_epoch for key, error in outcomes.items()
               if error is None and key in term.view.states}  # fmt: skip
    try:
        await wait_until_shown(services.metadata, lambda image: _shows(image, elected), request.timeout_ms)
    except KafkaError as error:
        outcomes.update(dict.fromkeys(elected, error.as_value()))
    return await _answered(outcomes if asked is None else asked, outcomes, context, names_all=asked is not None)


def _kind(request: ElectLeadersRequest) -> ElectionType:
    try:
        return ElectionType(request.election_type)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no election of type {request.election_type}.") from None


async def _asked(topics: Iterable[ElectLeadersRequest.TopicPartitions], context: RequestContext) -> list[PartitionKey]:
    """In the order of the request."""
    pauses, asked = context.services.slices.pauses(), list[PartitionKey]()
    for topic in topics:
        for partition in topic.partitions:
            await pauses.here()
            asked.append(PartitionKey(topic.topic, partition))
    return asked


def _shows(image: ClusterImage, elected: Mapping[PartitionKey, int]) -> bool:
    """Whether it knows of these elections, or of later ones, or the partition no more."""
    return all(
        (state := image.partition(*key)) is None or state.leader_epoch >= epoch for key, epoch in elected.items()
    )


async def _refused(
    error: KafkaError, asked: Iterable[PartitionKey] | None, context: RequestContext
) -> ElectLeadersResponse:
    if context.version >= FIRST_VERSION_WITH_AN_ERROR:
        return ElectLeadersResponse(error_code=error.code, replica_election_results=[])
    return await _answered(asked or (), dict.fromkeys(asked or (), error), context)


async def _answered(
    keys: Iterable[PartitionKey], outcomes: Outcomes, context: RequestContext, *, names_all: bool = True
) -> ElectLeadersResponse:
    """`names_all`: also the partitions that need no election."""
    pauses, topics = context.services.slices.pauses(), dict[str, TopicResult]()
    for key in keys:
        await pauses.here()
        topic = topics.get(key.topic)
        if topic is None:
            topic = topics[key.topic] = TopicResult(topic=key.topic, partition_result=[])
        error = outcomes[key]
        if names_all or error is None or error.code is not ErrorCode.ELECTION_NOT_NEEDED:
            topic.partition_result.append(_result(key, error))
    return ElectLeadersResponse(error_code=ErrorCode.NONE, replica_election_results=list(topics.values()))


def _result(key: PartitionKey, error: KafkaError | None) -> PartitionResult:
    code = ErrorCode.NONE if error is None else error.code
    return PartitionResult(
        partition_id=key.partition, error_code=code, error_message=None if error is None else error.message
    )
