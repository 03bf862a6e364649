"""Requests to coordinators, and what each response means (KIP-98, KIP-360, KIP-447, KIP-588, KIP-890)."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.cluster import TopicPartition
from oncelog.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from oncelog.producer import transaction_requests as requests
from oncelog.producer.transaction_requests import HIGHEST_BEFORE_V2, Meaning, codes_of, meaning_of, worst
from oncelog_protocol.codec import codec
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from oncelog_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from oncelog_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from oncelog_protocol.producer_id import NO_IDENTITY, ProducerIdAndEpoch
from oncelog_protocol.schema import schema_of

IDENTITY = ProducerIdAndEpoch(7, 3)
P0, P1, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("a", 5)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([], ErrorCode.NONE),
        ([0, 0], ErrorCode.NONE),
        ([0, 14, 0], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ([14, 51], ErrorCode.CONCURRENT_TRANSACTIONS),
        ([51, 16], ErrorCode.NOT_COORDINATOR),
        ([16, 29], ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ([29, 90], ErrorCode.PRODUCER_FENCED),
        ([90, 53], ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ([29, 22], ErrorCode.TOPIC_AUTHORIZATION_FAILED),  # the first of several equally serious errors
        ([55, 55, 3], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),  # not attempted because of the other partition's error
        ([29, 55], ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ([55, 0], ErrorCode.OPERATION_NOT_ATTEMPTED),  # no reason is given, but the operation was not attempted
    ],
)
def test_the_worst_of_several_results_decides(codes: list[int], expected: ErrorCode) -> None:
    assert worst(map(ErrorCode.of, codes)) is expected
    if ErrorCode.TOPIC_AUTHORIZATION_FAILED not in codes or ErrorCode.ILLEGAL_GENERATION not in codes:
        assert worst(map(ErrorCode.of, reversed(codes))) is expected


def test_each_answer_maps_its_error_codes() -> None:
    added = AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code) for code in codes
                ],
            )
            for name, codes in (("a", [0, 29]), ("b", [55]))
        ]
    )
    topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
    partition = topic.TxnOffsetCommitResponsePartition
    committed = TxnOffsetCommitResponse(
        topics=[
            topic(name="a", partitions=[partition(partition_index=n, error_code=code) for n, code in ((0, 0), (1, 22))])
        ]
    )
    assert list(codes_of(added)) == [0, 29, 55]
    assert list(codes_of(committed)) == [0, 22]
    for response in (
        InitProducerIdResponse(error_code=90, producer_epoch=-1),
        AddOffsetsToTxnResponse(error_code=90),
        EndTxnResponse(error_code=90, producer_epoch=-1),
    ):
        assert list(codes_of(response)) == [ErrorCode.PRODUCER_FENCED]
    with pytest.raises(TypeError, match="str is not an answer of a coordinator"):
        list(codes_of(""))


def test_a_code_of_a_newer_broker_is_fatal() -> None:
    (code,) = codes_of(EndTxnResponse(error_code=9999, producer_epoch=-1))
    assert meaning_of(code) is Meaning.FATAL


def test_s34_an_init_producer_id_request_is_made() -> None:
    taking_over = requests.init_producer_id("t", 1000, NO_IDENTITY)
    assert (taking_over.transactional_id, taking_over.transaction_timeout_ms) == ("t", 1000)
    assert (taking_over.producer_id, taking_over.producer_epoch) == (-1, -1)
    going_on = requests.init_producer_id("t", 1000, IDENTITY)
    assert (going_on.producer_id, going_on.producer_epoch) == (7, 3)


def test_s36_partitions_are_added_by_topic() -> None:
    request = requests.add_partitions("t", IDENTITY, {P1, OTHER, P0})
    assert [(topic.name, topic.partitions) for topic in request.v3_and_below_topics] == [("a", [5]), ("t", [0, 1])]
    told = (
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
    )
    assert told == ("t", 7, 3)


def test_s37_offsets_are_sent_with_their_consumer() -> None:
    added = requests.add_offsets("t", IDENTITY, "g")
    assert (added.transactional_id, added.producer_id, added.producer_epoch, added.group_id) == ("t", 7, 3, "g")
    group = ConsumerGroupMetadata("g", 12, "member", "instance")
    offsets = {P1: OffsetAndMetadata(5, "note", 2), OTHER: OffsetAndMetadata(0), P0: OffsetAndMetadata(9)}
    request = requests.txn_offset_commit("t", IDENTITY, offsets, group)
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == ("t", 7, 3)
    told = (request.group_id, request.generation_id, request.member_id, request.group_instance_id)
    assert told == ("g", 12, "member", "instance")
    assert [
        (
            topic.name,
            place.partition_index,
            place.committed_offset,
            place.committed_leader_epoch,
            place.committed_metadata,
        )
        for topic in request.topics
        for place in topic.partitions
    ] == [("a", 5, 0, -1, ""), ("t", 0, 9, -1, ""), ("t", 1, 5, 2, "note")]


@pytest.mark.parametrize("commits", [True, False])
def test_s38_an_end_request_is_made(commits: bool) -> None:
    request = requests.end_txn("t", IDENTITY, commits=commits)
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == ("t", 7, 3)
    assert request.committed is commits


def test_t6_a_producer_without_v2_uses_older_versions() -> None:
    # Request -> the first version that means transactions V2 or that clients must not use. The producer uses at most
    # the version before.
    first_of_v2: dict[Any, int] = {
        ProduceRequest: 12,
        AddPartitionsToTxnRequest: 4,
        TxnOffsetCommitRequest: 5,
        EndTxnRequest: 5,
    }
    for request, first in first_of_v2.items():
        assert HIGHEST_BEFORE_V2[request] == first - 1
        assert schema_of(request).versions.high >= first
    assert HIGHEST_BEFORE_V2[AddOffsetsToTxnRequest] == schema_of(AddOffsetsToTxnRequest).versions.high
    assert InitProducerIdRequest not in HIGHEST_BEFORE_V2


@pytest.mark.parametrize("version", range(4))
def test_s36_every_version_of_a_client_can_be_encoded(version: int) -> None:
    request = requests.add_partitions("t", IDENTITY, {P0})
    made = codec(AddPartitionsToTxnRequest, version)
    assert made.decode(made.encode(request)) == request
