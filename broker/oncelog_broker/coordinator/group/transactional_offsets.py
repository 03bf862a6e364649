"""Handles TxnOffsetCommit, with which a transaction commits offsets. The offsets are pending until the marker of the
transaction is written (S37, S46). Pure.
"""

from __future__ import annotations

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group import membership
from oncelog_broker.coordinator.group.classic_group import ClassicGroup
from oncelog_broker.coordinator.group.commits import Commit, check_no_members
from oncelog_broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from oncelog_broker.coordinator.group.consumer.epochs import check_commit
from oncelog_broker.coordinator.group.states import GroupState
from oncelog_broker.coordinator.group.streams import streams_epochs
from oncelog_broker.coordinator.group.streams.streams_group import StreamsGroup
from oncelog_broker.coordinator.group.topic_view import TopicView
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

TopicResponse = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
PartitionResponse = TopicResponse.TxnOffsetCommitResponsePartition
NO_GENERATION = -1


def check_member(group: ClassicGroup | None, request: TxnOffsetCommitRequest, *, has_offsets: bool) -> None:
    """Check that the consumer for which the producer commits still owns its partitions (KIP-447).

    A request without generation, member id and instance id is not checked, because before v3 a producer sends only its
    transactional id. Unlike OffsetCommit, TxnOffsetCommit is allowed while the group rebalances, because the member
    keeps its partitions until it joins again. Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION.
    """
    generation, member_id, instance_id = request.generation_id, request.member_id, request.group_instance_id
    if group is None:
        check_no_members(generation, has_offsets=has_offsets)
        return
    if generation <= NO_GENERATION and (group.state is GroupState.EMPTY or (not member_id and instance_id is None)):
        return
    membership.check_generation(group, member_id, instance_id, generation)


def check_epoch(group: ConsumerGroup | StreamsGroup, request: TxnOffsetCommitRequest, topics: TopicView) -> None:
    """Check that a member of a group with member epochs (consumer or streams protocol) still owns the partitions whose
    offsets it commits. The check accepts the epoch of the member, or an older epoch for partitions that the member had
    in that epoch (KIP-1251). Raises KafkaError UNKNOWN_MEMBER_ID for an unknown member, or ILLEGAL_GENERATION for a
    stale epoch.
    """
    epoch, member_id = request.generation_id, request.member_id
    says_nothing = epoch == NO_GENERATION and not member_id and request.group_instance_id is None
    if says_nothing or (epoch < 0 and not group.members):
        return
    try:
        if isinstance(group, StreamsGroup):
            check = streams_epochs.check_commit(group, member_id, epoch, version=None)
        else:
            check = check_commit(group, member_id, epoch, topics, version=None)
        if check is not None:
            for topic in request.topics:
                for partition in topic.partitions:
                    check(topic.name, partition.partition_index)
    except KafkaError as error:
        if error.code is ErrorCode.STALE_MEMBER_EPOCH:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
        raise


def commit_in_transaction(request: TxnOffsetCommitRequest, commit: Commit) -> tuple[Effects, TxnOffsetCommitResponse]:
    """Return (effects with the records of the offsets, the response). The records belong to the transaction of the
    request's producer. The caller adds the reply to the effects.
    """
    effects = Effects()
    effects.too_large = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    effects.producer = (request.producer_id, request.producer_epoch)
    topics = [
        TopicResponse(
            name=topic.name,
            partitions=[
                PartitionResponse(
                    partition_index=partition.partition_index, error_code=commit.add(effects, topic.name, partition)
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return effects, TxnOffsetCommitResponse(topics=topics)
