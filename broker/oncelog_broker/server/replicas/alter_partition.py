"""AlterPartition (56), v2-3: a leader proposes a new ISR to the controller (KIP-497). Only brokers may send
AlterPartition.

A replica outside the ISR sends AlterPartition to request a new leader epoch. A replica whose log has a newer leader
epoch than the partition state sends AlterPartition to request an epoch above the last epoch of its log.
`controller/alter_partition.py` explains both cases.

Behaviour: all proposals of a request are written together; each proposal is granted or refused independently. A broker
that is not the controller returns NOT_CONTROLLER. If the outcome of the writes is unknown, the response is
REQUEST_TIMED_OUT: the leader then counts the members of both the old and the proposed ISR, until its cluster image
shows a newer partition epoch. Versions: v3 adds the broker epoch of each replica (KIP-903). v0 and v1 are not served:
they identify topics by name, and another topic may have been created under the same name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oncelog_broker.controller.alter_partition import Member, Proposal
from oncelog_broker.controller.elector import Elector
from oncelog_broker.controller.partitions import Altered
from oncelog_broker.controller.store_errors import translated
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.replicas.services import ReplicaContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

TopicRequest = AlterPartitionRequest.TopicData
PartitionRequest = TopicRequest.PartitionData
TopicResult = AlterPartitionResponse.TopicData
PartitionResult = TopicResult.PartitionData

FIRST_VERSION_WITH_EPOCHS: Final = 3


def handle(request: AlterPartitionRequest, context: ReplicaContext) -> Answer[AlterPartitionResponse]:
    if not context.may_as_broker(rules.ALTER_PARTITION):
        return AlterPartitionResponse(error_code=rules.ALTER_PARTITION.refused, topics=[])
    return context.in_a_task(alter(request, context.version, context.services.elector, context.services.slices))


async def alter(
    request: AlterPartitionRequest, version: int, elector: Elector, slices: Slices
) -> AlterPartitionResponse:
    """Let this broker's controller handle the proposals, on behalf of any broker, including this broker."""
    pauses = slices.pauses()
    proposals = []
    for proposal in _proposals(request, version):
        await pauses.here()
        proposals.append(proposal)
    try:
        term = elector.term()
        with translated("the ISR of partitions"):
            altered = iter(await term.alter(request.broker_id, request.broker_epoch, proposals))
    except KafkaError as error:
        return AlterPartitionResponse(error_code=error.code, topics=[])
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            await pauses.here()
            partitions.append(_result(partition.partition_index, next(altered)))
        topics.append(TopicResult(topic_id=topic.topic_id, partitions=partitions))
    return AlterPartitionResponse(error_code=ErrorCode.NONE, topics=topics)


def _proposals(request: AlterPartitionRequest, version: int) -> Iterator[tuple[bytes, int, Proposal]]:
    for topic in request.topics:
        for partition in topic.partitions:
            proposal = Proposal(
                request.broker_id,
                partition.leader_epoch,
                partition.partition_epoch,
                _members(partition, version),
                partition.leader_recovery_state,
                partition.is_log_offline,
                partition.log_epoch,
            )
            yield topic.topic_id, partition.partition_index, proposal


def _members(partition: PartitionRequest, version: int) -> list[Member]:
    if version < FIRST_VERSION_WITH_EPOCHS:
        return [Member(broker) for broker in partition.new_isr]
    return [Member(member.broker_id, member.broker_epoch) for member in partition.new_isr_with_epochs]


def _result(index: int, altered: Altered) -> PartitionResult:
    if isinstance(altered, KafkaError):
        return PartitionResult(
            partition_index=index, error_code=altered.code, leader_id=-1, leader_epoch=-1, isr=[], partition_epoch=-1
        )
    state = altered.state
    return PartitionResult(
        partition_index=index,
        error_code=ErrorCode.NONE,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=state.leader_recovery_state,
        partition_epoch=altered.version,
    )
