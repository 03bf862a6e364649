"""Builds the requests of a transactional producer to its coordinators, and reads the error codes of their responses.
Pure.

`transaction_errors` has the table of the codes' meanings (`Meaning`), which all APIs have in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import singledispatch
from itertools import groupby
from typing import Any, Final

from oncelog.cluster import TopicPartition
from oncelog.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from oncelog.prepared_transaction import LAST_END_TXN_BEFORE_V2
from oncelog.producer.transaction_errors import Meaning, meaning_of
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from oncelog_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from oncelog_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.schema import Request

HIGHEST_BEFORE_V2: Final[Mapping[type[Request[Any]], int]] = {
    ProduceRequest: 11,
    EndTxnRequest: LAST_END_TXN_BEFORE_V2,
    TxnOffsetCommitRequest: 4,
    AddPartitionsToTxnRequest: 3,  # clients use at most version 3; later versions are for requests between brokers
    AddOffsetsToTxnRequest: 4,
}
"""Request class -> its highest version for transactions V1; newer versions imply transactions V2 (T6).
"""

FIRST_WITH_IDENTITY: Final = 3
"""The first version of InitProducerId with which a producer can continue after an error (KIP-360)."""


CONCURRENT_BACKOFF_MS: Final = 1
"""Milliseconds of the first backoff while the previous transaction is being completed. This backoff is shorter than
Kafka's 20 ms, which would take most of the time of a small transaction.
"""


def worst(codes: Iterable[ErrorCode]) -> ErrorCode:
    """Return the one error code that stands for an entire response; OPERATION_NOT_ATTEMPTED is returned only if there
    is no other error.
    """
    order = list(Meaning)
    errors = [code for code in codes if code is not ErrorCode.NONE]
    reasons = [code for code in errors if code is not ErrorCode.OPERATION_NOT_ATTEMPTED] or errors
    return max(reasons, key=lambda code: order.index(meaning_of(code)), default=ErrorCode.NONE)


@singledispatch
def codes_of(response: object) -> Iterator[ErrorCode]:
    """Return all error codes of a response."""
    raise TypeError(f"{type(response).__name__} is not an answer of a coordinator")


@codes_of.register(InitProducerIdResponse)
@codes_of.register(AddOffsetsToTxnResponse)
@codes_of.register(EndTxnResponse)
def _(response: InitProducerIdResponse | AddOffsetsToTxnResponse | EndTxnResponse) -> Iterator[ErrorCode]:
    yield ErrorCode.of(response.error_code)


@codes_of.register(AddPartitionsToTxnResponse)
def _(response: AddPartitionsToTxnResponse) -> Iterator[ErrorCode]:
    for topic in response.results_by_topic_v3_and_below:
        for partition in topic.results_by_partition:
            yield ErrorCode.of(partition.partition_error_code)


@codes_of.register(TxnOffsetCommitResponse)
def _(response: TxnOffsetCommitResponse) -> Iterator[ErrorCode]:
    for topic in response.topics:
        for partition in topic.partitions:
            yield ErrorCode.of(partition.error_code)


def init_producer_id(
    transactional_id: str,
    timeout_ms: int,
    identity: ProducerIdAndEpoch,
    *,
    two_phase: bool = False,
    keeps_open: bool = False,
) -> InitProducerIdRequest:
    """Return an InitProducerId request. `identity` is the present producer id and epoch if the producer continues after
    an error, or NO_IDENTITY to initialise the transactional id (S34). `two_phase` requests transactions without a
    timeout; `keeps_open` keeps an
    open transaction instead of aborting it (S120).
    """
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        enable2_pc=two_phase,
        keep_prepared_txn=keeps_open,
    )


def add_partitions(
    transactional_id: str, identity: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Return a request that adds partitions to the transaction (S36)."""
    topics = [
        AddPartitionsToTxnTopic(name=name, partitions=[partition.partition for partition in group])
        for name, group in groupby(sorted(partitions), key=_topic)
    ]
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=topics,
    )


def add_offsets(transactional_id: str, identity: ProducerIdAndEpoch, group_id: str) -> AddOffsetsToTxnRequest:
    """Return a request that adds the offsets of a group to the transaction (S37)."""
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group_id,
    )


def txn_offset_commit(
    transactional_id: str,
    identity: ProducerIdAndEpoch,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group: ConsumerGroupMetadata,
) -> TxnOffsetCommitRequest:
    """Return a request that commits offsets of a group with the transaction (S37, S46)."""
    topic_type = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    topics = [
        topic_type(
            name=name,
            partitions=[
                topic_type.TxnOffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=offsets[partition].offset,
                    committed_leader_epoch=offsets[partition].leader_epoch,
                    committed_metadata=offsets[partition].metadata,
                )
                for partition in partitions
            ],
        )
        for name, partitions in groupby(sorted(offsets), key=_topic)
    ]
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=topics,
    )


def end_txn(transactional_id: str, identity: ProducerIdAndEpoch, *, commits: bool) -> EndTxnRequest:
    """Return a request that commits or aborts the transaction (S38)."""
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=commits,
    )


def _topic(partition: TopicPartition) -> str:
    return partition.topic
