"""The transactional producer against a small coordinator, by the old protocol (V1) and KIP-890's (V2): S36-S45, E1."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.fake_transactions import FakeCoordinator, Step, impatient

from oncelog.cluster import TopicPartition
from oncelog.errors import (
    AbortableError,
    BufferExhausted,
    ClientClosed,
    EndNotKnown,
    FatalError,
    InvalidTransactionState,
    KafkaError,
    MessageTooLarge,
    ProducerFenced,
    RequestTimedOut,
)
from oncelog.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from oncelog.producer.producer import Producer
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from oncelog_protocol.records.batch import RecordBatch, batches

GROUP = ConsumerGroupMetadata("g", 3, "member", None)
OFFSETS = {TopicPartition("in", 0): 42}
P0 = ("topic", 0)
MANY = 10
TURNS = 20


@contextlib.asynccontextmanager
async def started(coordinator: FakeCoordinator, **options: Any) -> AsyncIterator[Producer]:
    quick = {"reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 5, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5}
    async with Producer(
        coordinator.broker.address, **{"transactional_id": "t", "linger_ms": 0, **quick, **options}
    ) as producer:
        yield producer


def batches_of(coordinator: FakeCoordinator) -> list[RecordBatch]:
    return [batch for data in coordinator.broker.logs.get(P0, []) for batch in batches(data)]


def identities(coordinator: FakeCoordinator) -> list[tuple[int, int]]:
    """(epoch, base sequence) of each batch in the log."""
    return [(batch.producer_epoch, batch.base_sequence) for batch in batches_of(coordinator)]


def ends(coordinator: FakeCoordinator) -> list[bool]:
    """Of each EndTxn, whether it was to commit."""
    return [request.committed for request in coordinator.broker.requests_of(EndTxnRequest)]


async def commit_one(producer: Producer, value: bytes) -> None:
    async with producer.transaction():
        await producer.send("topic", value)


# what goes over the wire


async def test_s36_s37_s38_before_v2_everything_is_added_first(coordinator_v1: FakeCoordinator) -> None:
    broker = coordinator_v1.broker
    async with started(coordinator_v1, transaction_timeout_ms=1234) as producer, producer.transaction():
        future = await producer.send("topic", b"v")
        await future
        await producer.send_offsets(OFFSETS, GROUP)
    kinds = ["InitProducerId", "AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"]
    assert coordinator_v1.kinds() == kinds
    assert broker.versions[ProduceRequest] == [11]
    assert broker.versions[AddPartitionsToTxnRequest] == [3]
    assert broker.versions[AddOffsetsToTxnRequest] == [4]
    assert broker.versions[TxnOffsetCommitRequest] == [4]
    assert broker.versions[EndTxnRequest] == [4]
    (init,) = broker.requests_of(InitProducerIdRequest)
    assert (init.transactional_id, init.transaction_timeout_ms) == ("t", 1234)
    assert (init.producer_id, init.producer_epoch) == (-1, -1)
    assert broker.requests_of(ProduceRequest)[0].transactional_id == "t"
    assert batches_of(coordinator_v1)[0].is_transactional
    assert coordinator_v1.committed == {P0: [b"v"]}
    assert coordinator_v1.offsets == {("g", "in", 0): 42}


async def test_kip890_under_v2_nothing_is_added_first(coordinator_v2: FakeCoordinator) -> None:
    broker = coordinator_v2.broker
    async with started(coordinator_v2) as producer, producer.transaction():
        await (await producer.send("topic", b"v"))
        await producer.send_offsets(OFFSETS, GROUP)
    assert coordinator_v2.kinds() == ["InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn"]
    assert broker.versions[ProduceRequest] == [12]
    assert broker.versions[TxnOffsetCommitRequest] == [5]
    assert broker.versions[EndTxnRequest] == [5]
    assert coordinator_v2.committed == {P0: [b"v"]}
    assert coordinator_v2.offsets == {("g", "in", 0): 42}


async def test_s21_before_v2_epoch_and_numbers_go_on(coordinator_v1: FakeCoordinator) -> None:
    async with started(coordinator_v1) as producer:
        for value in (b"0", b"1", b"2"):
            await commit_one(producer, value)
    assert identities(coordinator_v1) == [(0, 0), (0, 1), (0, 2)]
    assert coordinator_v1.committed == {P0: [b"0", b"1", b"2"]}


async def test_kip890_under_v2_each_transaction_has_the_next_epoch_and_begins_at_zero(
    coordinator_v2: FakeCoordinator,
) -> None:
    async with started(coordinator_v2) as producer:
        await commit_one(producer, b"0")
        producer.begin_transaction()
        await producer.send("topic", b"dropped")
        await producer.flush()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait("topic", b"1")
            await producer.send_and_wait("topic", b"2")
    assert identities(coordinator_v2) == [(0, 0), (1, 0), (2, 0), (2, 1)]
    assert coordinator_v2.committed == {P0: [b"0", b"1", b"2"]}
    assert len(coordinator_v2.broker.requests_of(InitProducerIdRequest)) == 1


async def test_s36_each_partition_is_added_once(coordinator_v1: FakeCoordinator) -> None:
    broker = coordinator_v1.broker
    broker.topics["topic"] = 3
    async with started(coordinator_v1) as producer, producer.transaction():
        await asyncio.gather(*[producer.send("topic", b"v", partition=n) for n in (0, 1, 0)])
        await producer.flush()
        await producer.send("topic", b"v", partition=1)
        await producer.send("topic", b"v", partition=2)
    added = [
        index
        for request in broker.requests_of(AddPartitionsToTxnRequest)
        for topic in request.v3_and_below_topics
        for index in topic.partitions
    ]
    assert sorted(added) == [0, 1, 2]
    assert {place: len(values) for place, values in coordinator_v1.committed.items()} == {
        ("topic", 0): 2,
        ("topic", 1): 2,
        ("topic", 2): 1,
    }


async def test_s37_a_group_is_added_once_in_a_transaction(coordinator_v1: FakeCoordinator) -> None:
    other = GROUP._replace(group_id="other")
    async with started(coordinator_v1) as producer:
        async with producer.transaction():
            await producer.send_offsets({TopicPartition("in", 0): OffsetAndMetadata(41, "note", 7)}, GROUP)
            await producer.send_offsets(OFFSETS, GROUP)
            await producer.send_offsets(OFFSETS, other)
        async with producer.transaction():
            await producer.send_offsets({TopicPartition("in", 1): 5}, GROUP)
    kinds = coordinator_v1.kinds()[1:]
    add, commit = "AddOffsetsToTxn", "TxnOffsetCommit"
    assert kinds == [add, commit, commit, add, commit, "EndTxn", add, commit, "EndTxn"]
    assert coordinator_v1.offsets == {("g", "in", 0): 42, ("other", "in", 0): 42, ("g", "in", 1): 5}
    request = coordinator_v1.broker.requests_of(TxnOffsetCommitRequest)[0]
    assert (request.generation_id, request.member_id, request.group_instance_id) == (3, "member", None)


@pytest.mark.parametrize("partitions", [1, 4])
async def test_s36_records_without_a_key_wander_over_partitions(coordinator: FakeCoordinator, partitions: int) -> None:
    coordinator.broker.topics["topic"] = partitions
    async with started(coordinator, batch_size=100) as producer:
        for _ in range(5):
            async with producer.transaction():
                for number in range(7):
                    await producer.send("topic", b"%d" % number * 60)
    assert sum(map(len, coordinator.committed.values())) == 35


async def test_t7_the_cluster_may_come_to_v2_between_two_transactions(coordinator_v1: FakeCoordinator) -> None:
    broker = coordinator_v1.broker
    async with started(coordinator_v1) as producer:
        await commit_one(producer, b"0")
        producer.begin_transaction()
        broker.finalized["transaction.version"] = 2
        coordinator_v1.is_v2 = True
        broker.hang_up()  # a broker says on each new connection what the cluster has
        await producer.send("topic", b"1")
        await producer.commit_transaction()
        assert broker.versions[EndTxnRequest] == [4, 4]  # a transaction ends as it began
        await commit_one(producer, b"2")
    assert broker.versions[EndTxnRequest] == [4, 4, 5]
    assert coordinator_v1.committed == {P0: [b"0", b"1", b"2"]}


# empty transactions, and what is dropped


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_s38_an_empty_transaction_says_nothing(coordinator: FakeCoordinator, end: str) -> None:
    async with started(coordinator) as producer:
        for _ in range(2):
            producer.begin_transaction()
            await producer.send_offsets({}, GROUP)
            await (producer.commit_transaction() if end == "commit" else producer.abort_transaction())
    assert coordinator.kinds() == ["InitProducerId"]


async def test_s45_abort_drops_what_was_not_sent(coordinator: FakeCoordinator) -> None:
    async with started(coordinator, linger_ms=60_000, delivery_timeout_ms=100_000) as producer:
        producer.begin_transaction()
        future = await producer.send("topic", b"dropped")
        await producer.abort_transaction()
        with pytest.raises(KafkaError, match="the transaction was aborted before the record was sent"):
            await future
        producer.begin_transaction()
        await producer.send("topic", b"v")
        await producer.commit_transaction()
    assert coordinator.broker.requests_of(ProduceRequest)[0].topic_data[0].partition_data[0].index == 0
    assert [record.value for record in coordinator.broker.records()] == [b"v"]
    assert coordinator.committed == {P0: [b"v"]}


async def test_s45_abort_drops_what_waits_for_its_partition(coordinator_v1: FakeCoordinator) -> None:
    hold = asyncio.Event()
    coordinator_v1.script[AddPartitionsToTxnRequest] = [hold]
    async with started(coordinator_v1) as producer:
        producer.begin_transaction()
        future = await producer.send("topic", b"dropped")
        await coordinator_v1.broker.received(AddPartitionsToTxnRequest)
        aborting = asyncio.ensure_future(producer.abort_transaction())
        with pytest.raises(KafkaError, match="aborted before the record was sent"):
            await future
        hold.set()
        await aborting
        await commit_one(producer, b"v")
    assert ends(coordinator_v1) == [False, True]  # the partition was added all the same
    assert [record.value for record in coordinator_v1.broker.records()] == [b"v"]


async def test_s38_abort_waits_for_what_is_on_its_way(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()
    coordinator.script[ProduceRequest] = [hold]
    async with started(coordinator) as producer:
        producer.begin_transaction()
        future = await producer.send("topic", b"v")
        await coordinator.broker.received(ProduceRequest)
        aborting = asyncio.ensure_future(producer.abort_transaction())
        await turns()
        assert ends(coordinator) == []
        hold.set()
        await aborting
        assert (await future).offset == 0
    assert ends(coordinator) == [False]
    assert coordinator.committed == {}


# a failed send


async def test_s38_a_failed_send_makes_the_commit_raise(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"good")
        coordinator.script[ProduceRequest] = [ErrorCode.INVALID_RECORD]
        await producer.send("topic", b"bad")
        with pytest.raises(AbortableError) as caught:
            await producer.commit_transaction()
        assert caught.value.code is ErrorCode.INVALID_RECORD
        assert ends(coordinator) == []
        for call in (
            producer.commit_transaction(),
            producer.send("topic", b"v"),
            producer.send_offsets(OFFSETS, GROUP),
        ):
            with pytest.raises(AbortableError):
                await call
        with pytest.raises(InvalidTransactionState):
            producer.begin_transaction()
        await producer.abort_transaction()
        await commit_one(producer, b"next")
    assert ends(coordinator) == [False, True]
    assert coordinator.committed == {P0: [b"next"]}


async def test_s38_a_failure_that_nobody_looked_at_aborts_the_block(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        coordinator.script[ProduceRequest] = [ErrorCode.INVALID_RECORD]
        with pytest.raises(AbortableError):
            await commit_one(producer, b"bad")
        await commit_one(producer, b"good")
    assert ends(coordinator)[-1:] == [True]
    assert coordinator.committed == {P0: [b"good"]}


async def test_s38_when_one_fails_what_waits_is_dropped(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()

    async def refuse(request: Any) -> Any:
        await hold.wait()
        return coordinator.answer(request, coordinator.broker.version, refusal=ErrorCode.INVALID_RECORD)

    coordinator.broker.handlers[ProduceRequest] = refuse
    async with started(coordinator, max_in_flight_requests_per_connection=1, batch_size=1) as producer:
        producer.begin_transaction()
        futures = [await producer.send("topic", b"v") for _ in range(MANY)]
        hold.set()
        await asyncio.wait(futures)
        assert all(isinstance(future.exception(), KafkaError) for future in futures)
        await producer.abort_transaction()
    assert len(coordinator.broker.requests_of(ProduceRequest)) == 1


async def test_s38_a_record_that_is_refused_at_once_counts_as_failed(coordinator: FakeCoordinator) -> None:
    async with started(coordinator, max_request_size=200) as producer:
        producer.begin_transaction()
        with pytest.raises(MessageTooLarge):
            await producer.send("topic", b"x" * 300)
        with pytest.raises(AbortableError) as caught:
            await producer.commit_transaction()
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        await producer.abort_transaction()
        await commit_one(producer, b"v")
    assert coordinator.committed == {P0: [b"v"]}


async def test_s38_a_record_whose_topic_is_not_there_counts_as_failed(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await producer.send("topic", b"v")
        with pytest.raises(RequestTimedOut, match="no metadata"), impatient(producer):
            await producer.send("nowhere", b"v")
        with pytest.raises(AbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
    assert coordinator.committed == {}


async def test_s38_a_record_that_finds_no_room_counts_as_failed(coordinator: FakeCoordinator) -> None:
    coordinator.script[ProduceRequest] = [asyncio.Event()]
    async with started(coordinator, buffer_memory=200, batch_size=200) as producer:
        producer.begin_transaction()
        await producer.send("topic", b"x" * 80)
        with pytest.raises(BufferExhausted), impatient(producer):
            await producer.send("topic", b"x" * 80)
        with pytest.raises(AbortableError):
            await producer.commit_transaction()
        coordinator.broker.hang_up()
        await producer.abort_transaction()
    assert coordinator.committed == {}


async def test_a_record_of_the_wrong_type_is_only_told(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer, producer.transaction():
        with pytest.raises(TypeError):
            await producer.send("topic", "text")  # type: ignore[arg-type]
        await producer.send("topic", b"v")
    assert coordinator.committed == {P0: [b"v"]}


async def test_s38_a_batch_too_large_while_the_transaction_is_aborted_is_not_split(
    coordinator: FakeCoordinator,
) -> None:
    hold = asyncio.Event()

    async def too_large(request: Any) -> Any:
        await hold.wait()
        return coordinator.answer(request, coordinator.broker.version, refusal=ErrorCode.MESSAGE_TOO_LARGE)

    coordinator.broker.handlers[ProduceRequest] = too_large
    async with started(coordinator, linger_ms=1) as producer:
        producer.begin_transaction()
        futures = await asyncio.gather(*[producer.send("topic", b"v") for _ in range(4)])
        await coordinator.broker.received(ProduceRequest)
        aborting = asyncio.ensure_future(producer.abort_transaction())
        await turns()
        hold.set()
        await aborting
        assert all(isinstance(future.exception(), KafkaError) for future in futures)
    assert len(coordinator.broker.requests_of(ProduceRequest)) == 1


# fencing


async def fenced(producer: Producer) -> None:
    """Nothing goes any more, and everything says why."""
    for call in (
        producer.send("topic", b"v"),
        producer.send_offsets(OFFSETS, GROUP),
        producer.commit_transaction(),
        producer.abort_transaction(),
    ):
        with pytest.raises(ProducerFenced):
            await call
    with pytest.raises(ProducerFenced):
        producer.begin_transaction()


CODES = [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]


@pytest.mark.parametrize("code", CODES)
async def test_s41_fenced_when_it_starts(coordinator: FakeCoordinator, code: ErrorCode) -> None:
    coordinator.script[InitProducerIdRequest] = [code]
    producer = Producer(coordinator.broker.address, transactional_id="t")
    with pytest.raises(ProducerFenced):
        await producer.start()
    with pytest.raises(ClientClosed):
        producer.begin_transaction()


@pytest.mark.parametrize("code", CODES)
async def test_s41_fenced_when_a_partition_is_added(coordinator_v1: FakeCoordinator, code: ErrorCode) -> None:
    coordinator_v1.script[AddPartitionsToTxnRequest] = [code]
    async with started(coordinator_v1) as producer:
        producer.begin_transaction()
        with pytest.raises(ProducerFenced):
            await (await producer.send("topic", b"v"))
        await fenced(producer)
    assert ends(coordinator_v1) == []


@pytest.mark.parametrize("code", CODES)
async def test_s41_fenced_when_offsets_are_added(coordinator_v1: FakeCoordinator, code: ErrorCode) -> None:
    coordinator_v1.script[AddOffsetsToTxnRequest] = [code]
    async with started(coordinator_v1) as producer:
        producer.begin_transaction()
        if code is ErrorCode.PRODUCER_FENCED:
            with pytest.raises(ProducerFenced):
                await producer.send_offsets(OFFSETS, GROUP)
            await fenced(producer)
        else:
            # as of a write (below), it may only mean that the transaction took too long
            with pytest.raises((AbortableError, ProducerFenced)):
                await producer.send_offsets(OFFSETS, GROUP)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_s41_fenced_when_it_ends(coordinator: FakeCoordinator, code: ErrorCode, end: str) -> None:
    coordinator.script[EndTxnRequest] = [code]
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"v")
        with pytest.raises(ProducerFenced):
            await (producer.commit_transaction() if end == "commit" else producer.abort_transaction())
        await fenced(producer)
    assert len(ends(coordinator)) == 1
    assert coordinator.committed == {}


@pytest.mark.parametrize("write", ["records", "offsets"])
async def test_s41_fenced_when_it_writes(coordinator: FakeCoordinator, write: str) -> None:
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"v")
        await producer.send_offsets(OFFSETS, GROUP)
        coordinator.take_over()
        coordinator.script[TxnOffsetCommitRequest] = [ErrorCode.INVALID_PRODUCER_EPOCH]
        with pytest.raises(AbortableError):
            if write == "records":
                await producer.send_and_wait("topic", b"v")
            else:
                await producer.send_offsets(OFFSETS, GROUP)
        with pytest.raises(ProducerFenced):
            await producer.abort_transaction()
        await fenced(producer)
    assert ends(coordinator) == []
    assert coordinator.committed == {}


async def test_s41_a_block_that_is_fenced_raises_what_is_fatal(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        with pytest.raises(ProducerFenced):
            async with producer.transaction():
                await producer.send_and_wait("topic", b"v")
                coordinator.take_over()
        with pytest.raises(ProducerFenced):
            async with producer.transaction():
                raise AssertionError("never begun")


async def test_s41_the_last_one_to_start_wins(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as old:
        old.begin_transaction()
        await old.send_and_wait("topic", b"old")
        async with started(coordinator) as new:
            await commit_one(new, b"new")
            with pytest.raises(FatalError):
                await old.commit_transaction()
    assert coordinator.committed == {P0: [b"new"]}


@pytest.mark.parametrize("write", ["records", "offsets"])
async def test_s42_a_producer_that_was_too_slow_aborts_and_goes_on(coordinator: FakeCoordinator, write: str) -> None:
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"slow")
        coordinator.time_out()
        coordinator.script[TxnOffsetCommitRequest] = [ErrorCode.INVALID_PRODUCER_EPOCH]
        coordinator.script[AddOffsetsToTxnRequest] = [ErrorCode.NONE]
        with pytest.raises(AbortableError):
            if write == "records":
                await producer.send_and_wait("topic", b"late")
            else:
                await producer.send_offsets(OFFSETS, GROUP)
        await producer.abort_transaction()
        await commit_one(producer, b"next")
    shown = coordinator.broker.requests_of(InitProducerIdRequest)[1]
    assert (shown.producer_id, shown.producer_epoch) == (coordinator.transaction().producer_id, 0)
    assert coordinator.committed == {P0: [b"next"]}


async def test_s42_kip890_a_commit_that_comes_too_late_can_be_aborted(coordinator_v2: FakeCoordinator) -> None:
    async with started(coordinator_v2) as producer:
        with pytest.raises(AbortableError, match="it took too long"):
            async with producer.transaction():
                await producer.send_and_wait("topic", b"slow")
                coordinator_v2.time_out()
        await commit_one(producer, b"next")
    assert coordinator_v2.committed == {P0: [b"next"]}


# coordinators that are busy, move, or break off


CONCURRENT = [ErrorCode.CONCURRENT_TRANSACTIONS] * 3


async def test_s36_the_transaction_before_is_being_completed(coordinator: FakeCoordinator) -> None:
    for request in (InitProducerIdRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, EndTxnRequest):
        coordinator.script[request] = list(CONCURRENT)
    coordinator.script[ProduceRequest] = list(CONCURRENT)  # V2: the leader asks the coordinator
    async with started(coordinator) as producer, producer.transaction():
        await producer.send("topic", b"v")
        await producer.send_offsets(OFFSETS, GROUP)
    assert coordinator.committed == {P0: [b"v"]}
    assert len(ends(coordinator)) == 4
    assert coordinator.broker.requests_of(ProduceRequest)[-1] is not None
    assert len(coordinator.broker.requests_of(ProduceRequest)) == 4
    assert len(coordinator.broker.requests_of(FindCoordinatorRequest)) == 2  # nobody has moved


@pytest.mark.parametrize(
    "trouble",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        Step.DROPPED,
        Step.LOST,
    ],
)
async def test_s44_a_coordinator_that_moves_loads_or_breaks_off(coordinator: FakeCoordinator, trouble: Any) -> None:
    kinds = [InitProducerIdRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest]
    for request in (*kinds, EndTxnRequest):
        coordinator.script[request] = [trouble, trouble]
    coordinator.script[FindCoordinatorRequest] = [ErrorCode.COORDINATOR_NOT_AVAILABLE, Step.DROPPED]
    async with started(coordinator) as producer:
        for number in range(3):
            async with producer.transaction():
                await producer.send("topic", b"%d" % number)
                await producer.send_offsets({TopicPartition("in", 0): number}, GROUP)
    assert coordinator.committed == {P0: [b"0", b"1", b"2"]}
    assert coordinator.offsets == {("g", "in", 0): 2}


async def test_s44_a_coordinator_that_moved_is_looked_for_again(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        before = len(coordinator.broker.requests_of(FindCoordinatorRequest))
        coordinator.script[EndTxnRequest] = [ErrorCode.NOT_COORDINATOR]
        await commit_one(producer, b"v")
        assert len(coordinator.broker.requests_of(FindCoordinatorRequest)) == before + 1
    assert coordinator.committed == {P0: [b"v"]}


async def test_s30_a_transaction_that_nobody_coordinates_times_out(coordinator: FakeCoordinator) -> None:
    coordinator.script[FindCoordinatorRequest] = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 1000
    with pytest.raises(RequestTimedOut, match=r"could not be taken over \(max\.block\.ms=30 has passed\)"):
        async with started(coordinator, max_block_ms=30):
            raise AssertionError("never started")


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_s44_with_nothing_to_end_the_coordinator_may_be_away(coordinator: FakeCoordinator, end: str) -> None:
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await coordinator.broker.stop()
        await turns()  # so that the producer knows
        await (producer.commit_transaction() if end == "commit" else producer.abort_transaction())
        await coordinator.broker.start()
        await commit_one(producer, b"v")
    assert coordinator.committed == {P0: [b"v"]}


async def test_s44_a_broker_that_is_away_for_longer_than_a_record_may_wait(coordinator: FakeCoordinator) -> None:
    async with started(coordinator, request_timeout_ms=30, delivery_timeout_ms=60) as producer:
        await commit_one(producer, b"0")
        producer.begin_transaction()
        await coordinator.broker.stop()
        with pytest.raises(KafkaError):
            await producer.send_and_wait("topic", b"lost")
        aborting = asyncio.ensure_future(producer.abort_transaction())
        await turns()
        await coordinator.broker.start()
        await aborting
        await commit_one(producer, b"1")
    assert coordinator.committed == {P0: [b"0", b"1"]}


# answers that are lost, and what may come late


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_e1_before_v2_an_end_without_an_answer_costs_an_epoch(coordinator_v1: FakeCoordinator, end: str) -> None:
    coordinator_v1.script[EndTxnRequest] = [Step.LOST]
    async with started(coordinator_v1) as producer:
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"1")
        await (producer.commit_transaction() if end == "commit" else producer.abort_transaction())
        late = coordinator_v1.broker.requests_of(EndTxnRequest)[0]
        assert coordinator_v1.kinds()[-3:] == ["EndTxn", "EndTxn", "InitProducerId"]
        shown = coordinator_v1.broker.requests_of(InitProducerIdRequest)[1]
        assert (shown.producer_id, shown.producer_epoch) == (late.producer_id, late.producer_epoch)
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"2")
        assert coordinator_v1.answer(late, 4).error_code == ErrorCode.PRODUCER_FENCED
        await producer.send_and_wait("topic", b"3")
        await producer.commit_transaction()
    assert coordinator_v1.committed == {P0: [b"1", b"2", b"3"] if end == "commit" else [b"2", b"3"]}
    assert identities(coordinator_v1) == [(0, 0), (1, 0), (1, 1)]


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_e1_under_v2_an_end_without_an_answer_is_harmless(coordinator_v2: FakeCoordinator, end: str) -> None:
    coordinator_v2.script[EndTxnRequest] = [Step.LOST]
    async with started(coordinator_v2) as producer:
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"1")
        await (producer.commit_transaction() if end == "commit" else producer.abort_transaction())
        late = coordinator_v2.broker.requests_of(EndTxnRequest)[0]
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"2")
        assert coordinator_v2.answer(late, 5).error_code
        await producer.send_and_wait("topic", b"3")
        await producer.commit_transaction()
    assert coordinator_v2.committed == {P0: [b"1", b"2", b"3"] if end == "commit" else [b"2", b"3"]}
    assert len(coordinator_v2.broker.requests_of(InitProducerIdRequest)) == 1


@pytest.mark.parametrize("kind", [AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest])
@pytest.mark.parametrize("step", [Step.LOST, Step.DROPPED])
async def test_e1_e2_before_v2_any_request_without_an_answer_costs_an_epoch(
    coordinator_v1: FakeCoordinator, kind: Any, step: Step
) -> None:
    # A copy of it may come in the next transaction: old offsets would be committed with it, or what hangs be begun.
    coordinator_v1.script[kind] = [step]
    async with started(coordinator_v1) as producer:
        async with producer.transaction():
            await producer.send("topic", b"1")
            await producer.send_offsets(OFFSETS, GROUP)
        late = coordinator_v1.broker.requests_of(kind)[0]
        async with producer.transaction():
            await producer.send("topic", b"2")
            await producer.send_offsets({TopicPartition("in", 1): 7}, GROUP)
            answer = coordinator_v1.answer(late, 3)
            assert str(int(ErrorCode.PRODUCER_FENCED)) in str(answer)
        await commit_one(producer, b"3")
    assert coordinator_v1.broker.requests_of(InitProducerIdRequest)[1].producer_epoch == 0
    assert len(coordinator_v1.broker.requests_of(InitProducerIdRequest)) == 2  # once, and no more for the next one
    assert coordinator_v1.committed == {P0: [b"1", b"2", b"3"]}


async def test_e1_before_v2_a_commit_without_an_answer_that_is_refused_then(coordinator_v1: FakeCoordinator) -> None:
    coordinator_v1.script[EndTxnRequest] = [Step.DROPPED, ErrorCode.TRANSACTION_ABORTABLE]
    async with started(coordinator_v1) as producer:
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"1")
        with pytest.raises(AbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        late = coordinator_v1.broker.requests_of(EndTxnRequest)[0]
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"2")
        assert coordinator_v1.answer(late, 4).error_code == ErrorCode.PRODUCER_FENCED
        await producer.commit_transaction()
    assert coordinator_v1.committed == {P0: [b"2"]}


async def test_e2_before_v2_a_batch_whose_outcome_is_unknown_costs_an_epoch(coordinator_v1: FakeCoordinator) -> None:
    async with started(coordinator_v1, request_timeout_ms=30, delivery_timeout_ms=60) as producer:
        await commit_one(producer, b"0")
        producer.begin_transaction()
        coordinator_v1.script[ProduceRequest] = [Step.DROPPED] * 1000
        with pytest.raises(KafkaError):
            await producer.send_and_wait("topic", b"1")
        coordinator_v1.script.clear()
        late = coordinator_v1.broker.requests_of(ProduceRequest)[1]
        await producer.abort_transaction()
        assert coordinator_v1.kinds()[-2:] == ["EndTxn", "InitProducerId"]
        await commit_one(producer, b"2")
        await commit_one(producer, b"3")
        records = late.topic_data[0].partition_data[0].records
        assert coordinator_v1.append(records, *P0, "t", 11)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(coordinator_v1.broker.requests_of(InitProducerIdRequest)) == 2
    assert coordinator_v1.committed == {P0: [b"0", b"2", b"3"]}


async def test_e2_under_v2_the_abort_brings_the_epoch(coordinator_v2: FakeCoordinator) -> None:
    async with started(coordinator_v2, request_timeout_ms=30, delivery_timeout_ms=60) as producer:
        producer.begin_transaction()
        coordinator_v2.script[ProduceRequest] = [Step.LOST] + [Step.DROPPED] * 1000
        with pytest.raises(KafkaError):
            await producer.send_and_wait("topic", b"1")
        coordinator_v2.script.clear()
        await producer.abort_transaction()
        await commit_one(producer, b"2")
    assert len(coordinator_v2.broker.requests_of(InitProducerIdRequest)) == 1
    assert identities(coordinator_v2) == [(0, 0), (1, 0)]
    assert coordinator_v2.committed == {P0: [b"2"]}


async def test_s8_a_batch_whose_answer_was_lost_is_there_once(coordinator: FakeCoordinator) -> None:
    coordinator.script[ProduceRequest] = [Step.LOST, Step.DROPPED, Step.LOST]
    async with started(coordinator) as producer:
        await commit_one(producer, b"0")
        await commit_one(producer, b"1")
    assert coordinator.committed == {P0: [b"0", b"1"]}


async def test_kip360_a_broker_before_2_5_cannot_give_the_next_epoch(coordinator_v1: FakeCoordinator) -> None:
    coordinator_v1.broker.max_versions[22] = 2
    coordinator_v1.script[EndTxnRequest] = [Step.LOST]
    async with started(coordinator_v1) as producer:
        await commit_one(producer, b"v")  # it is committed, whatever comes then
        with pytest.raises(FatalError, match=r"older than Kafka 2\.5"):
            producer.begin_transaction()
    assert coordinator_v1.committed == {P0: [b"v"]}


# what may not be added


async def test_s36_a_topic_that_may_not_be_written_leaves_nothing_to_end(coordinator_v1: FakeCoordinator) -> None:
    async with started(coordinator_v1) as producer:
        await commit_one(producer, b"0")
        coordinator_v1.script[AddPartitionsToTxnRequest] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        with pytest.raises(AbortableError) as caught:
            await commit_one(producer, b"refused")
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await commit_one(producer, b"1")
    assert ends(coordinator_v1) == [True, True]  # Kafka answers the abort of what it does not know as an error
    assert coordinator_v1.committed == {P0: [b"0", b"1"]}


async def test_s37_a_group_that_may_not_be_read_leaves_nothing_to_end(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        await commit_one(producer, b"0")
        coordinator.script[AddOffsetsToTxnRequest] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
        coordinator.script[TxnOffsetCommitRequest] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
        with pytest.raises(AbortableError) as caught:
            async with producer.transaction():
                await producer.send_offsets(OFFSETS, GROUP)
        assert caught.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        coordinator.script.clear()
        await commit_one(producer, b"1")
    assert coordinator.committed == {P0: [b"0", b"1"]}


@pytest.mark.parametrize("step", [Step.LOST, Step.DROPPED])
async def test_e2_what_was_refused_after_a_lost_answer_may_have_begun(
    coordinator_v1: FakeCoordinator, step: Step
) -> None:
    coordinator_v1.script[AddPartitionsToTxnRequest] = [step, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    async with started(coordinator_v1) as producer:
        with pytest.raises(AbortableError):
            await commit_one(producer, b"refused")
        assert coordinator_v1.transaction().state != "Ongoing"
        assert coordinator_v1.transaction().epoch > 0
        await commit_one(producer, b"1")
    assert coordinator_v1.committed == {P0: [b"1"]}


async def test_s38_one_of_two_leaders_takes_nothing_from_us(coordinator_v2: FakeCoordinator) -> None:
    broker = coordinator_v2.broker
    broker.topics["topic"] = 2
    other = type(broker)()
    other.max_versions[ApiKey.PRODUCE] = 2
    other.handlers[FindCoordinatorRequest] = broker.handlers[FindCoordinatorRequest]
    await other.start()

    def metadata(request: Any) -> Any:
        response = broker.on_metadata(request)
        listed = MetadataResponse.MetadataResponseBroker(node_id=2, host="127.0.0.1", port=other.port)
        response.brokers.append(listed)
        for topic in response.topics:
            topic.partitions[0].leader_id = 2
        return response

    broker.handlers[MetadataRequest] = other.handlers[MetadataRequest] = metadata
    try:
        async with Producer(other.address, transactional_id="t", linger_ms=5) as producer:
            producer.begin_transaction()
            futures = [await producer.send("topic", b"v", partition=index) for index in (0, 1)]
            await asyncio.wait(futures)
            assert all(isinstance(future.exception(), KafkaError) for future in futures)
            with pytest.raises(FatalError):
                await producer.commit_transaction()
    finally:
        await other.stop()
    assert broker.requests_of(ProduceRequest) == []


async def test_s37_offsets_that_cannot_be_encoded_count_as_failed(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await producer.send("topic", b"v")
        with pytest.raises(AbortableError):
            await producer.send_offsets({TopicPartition("in", 0): 2**63}, GROUP)
        with pytest.raises(AbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
    assert coordinator.committed == {}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ],
)
async def test_s46_offsets_of_a_consumer_behind_its_group_abort(coordinator: FakeCoordinator, code: ErrorCode) -> None:
    async with started(coordinator) as producer:
        with pytest.raises(AbortableError) as caught:
            async with producer.transaction():
                await producer.send("topic", b"v")
                coordinator.script[TxnOffsetCommitRequest] = [code]
                await producer.send_offsets(OFFSETS, GROUP)
        assert caught.value.code is code
        await commit_one(producer, b"next")
    assert coordinator.committed == {P0: [b"next"]}
    assert coordinator.offsets == {}


async def test_s37_offsets_that_cannot_be_handed_over_in_time_abort(coordinator: FakeCoordinator) -> None:
    coordinator.script[TxnOffsetCommitRequest] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000
    async with started(coordinator) as producer:
        with pytest.raises(AbortableError, match="the offsets could not be handed over"):
            async with producer.transaction():
                with impatient(producer):
                    await producer.send_offsets(OFFSETS, GROUP)
        coordinator.script.clear()
        await commit_one(producer, b"v")
    assert coordinator.offsets == {}


async def test_s37_handing_over_offsets_may_be_cancelled(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()
    coordinator.script[TxnOffsetCommitRequest] = [hold]
    async with started(coordinator) as producer:
        producer.begin_transaction()
        handing = asyncio.ensure_future(producer.send_offsets(OFFSETS, GROUP))
        late = await coordinator.broker.received(TxnOffsetCommitRequest)
        handing.cancel()
        await asyncio.wait([handing])
        assert handing.cancelled()
        with pytest.raises(AbortableError):
            await producer.commit_transaction()
        hold.set()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_offsets({TopicPartition("in", 1): 7}, GROUP)
            assert str(int(ErrorCode.PRODUCER_FENCED)) in str(coordinator.answer(late, 3))
    assert coordinator.offsets == {("g", "in", 1): 7}


async def test_s37_a_negative_offset_is_refused_and_nothing_has_happened(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer, producer.transaction():
        with pytest.raises(ValueError, match="offset -1: must not be negative"):
            await producer.send_offsets({TopicPartition("in", 0): -1}, GROUP)
    assert coordinator.kinds() == ["InitProducerId"]


# ends that take long, are cancelled, or come with close


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_s44_an_end_that_takes_too_long_goes_on(coordinator: FakeCoordinator, end: str) -> None:
    hold = asyncio.Event()
    coordinator.script[EndTxnRequest] = [hold]
    async with started(coordinator) as producer:
        call = producer.commit_transaction if end == "commit" else producer.abort_transaction
        other = producer.abort_transaction if end == "commit" else producer.commit_transaction
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"v")
        with (
            pytest.raises(EndNotKnown, match=rf"the {end} goes on after max\.block\.ms=1: call {end} again"),
            impatient(producer),
        ):
            await call()
        with pytest.raises(InvalidTransactionState, match=f"the {end} is under way still"):
            producer.begin_transaction()
        with pytest.raises(InvalidTransactionState, match=f"the {end} is under way still"):
            await other()
        with pytest.raises(InvalidTransactionState):
            await producer.send("topic", b"v")
        again = asyncio.ensure_future(call())
        await turns()
        assert not again.done()
        hold.set()
        await again
        with pytest.raises(InvalidTransactionState):
            await call()  # once is enough
        await commit_one(producer, b"next")
    assert ends(coordinator) == [end == "commit", True]
    assert coordinator.committed == {P0: [b"v", b"next"] if end == "commit" else [b"next"]}


async def test_s44_a_commit_that_ended_unseen_can_be_asked_for_or_left(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        for is_asked in (True, False):
            hold = asyncio.Event()
            coordinator.script[EndTxnRequest] = [hold]
            producer.begin_transaction()
            await producer.send_and_wait("topic", b"v")
            with pytest.raises(EndNotKnown), impatient(producer):
                await producer.commit_transaction()
            hold.set()
            await turns(100)
            assert coordinator.transaction().state == "CompleteCommit"
            if is_asked:
                await producer.commit_transaction()
        await commit_one(producer, b"next")
    assert coordinator.committed == {P0: [b"v", b"v", b"next"]}


async def test_s44_a_commit_that_failed_unseen_can_only_be_aborted(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()

    async def refuse(request: Any) -> Any:
        await hold.wait()
        return coordinator.answer(request, coordinator.broker.version, refusal=ErrorCode.TRANSACTION_ABORTABLE)

    coordinator.broker.handlers[EndTxnRequest] = refuse
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"v")
        with pytest.raises(EndNotKnown), impatient(producer):
            await producer.commit_transaction()
        hold.set()
        coordinator.broker.handlers[EndTxnRequest] = coordinator._handle
        await until_abortable(producer)
        await producer.abort_transaction()
        await commit_one(producer, b"next")
    assert ends(coordinator) == [True, False, True]
    assert coordinator.committed == {P0: [b"next"]}


async def test_s44_a_commit_that_is_cancelled_goes_on(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()
    coordinator.script[EndTxnRequest] = [hold]
    async with started(coordinator) as producer:
        committing = asyncio.ensure_future(commit_one(producer, b"v"))
        await coordinator.broker.received(EndTxnRequest)
        committing.cancel()
        await asyncio.wait([committing])
        assert committing.cancelled()
        hold.set()
        await producer.commit_transaction()
        await commit_one(producer, b"next")
    assert ends(coordinator) == [True, True]
    assert coordinator.committed == {P0: [b"v", b"next"]}


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_s44_an_end_is_known_to_nobody_who_was_cancelled_when_it_came(
    coordinator: FakeCoordinator, end: str
) -> None:
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"v")
        call = producer.commit_transaction if end == "commit" else producer.abort_transaction
        ending = asyncio.ensure_future(call())
        await turns(1)
        (task,) = [task for task in asyncio.all_tasks() if f"Transactions._{end}" in repr(task.get_coro())]
        task.add_done_callback(lambda _: ending.cancel())
        await asyncio.wait([ending])
        assert ending.cancelled()
        await call()  # it is done, and that is told once
        with pytest.raises(InvalidTransactionState):
            await call()
    assert ends(coordinator) == [end == "commit"]


async def test_two_may_wait_for_the_same_commit(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await producer.send("topic", b"v")
        await asyncio.gather(producer.commit_transaction(), producer.commit_transaction())
    assert ends(coordinator) == [True]


async def test_close_aborts_what_is_open(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"v")
        future = await producer.send("topic", b"w")
    assert future.done()
    assert ends(coordinator) == [False]
    assert coordinator.committed == {}
    for call in (producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(ClientClosed):
            await call()


async def test_close_waits_for_a_commit(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()
    coordinator.script[EndTxnRequest] = [hold]
    async with started(coordinator) as producer:
        committing = asyncio.ensure_future(commit_one(producer, b"v"))
        await coordinator.broker.received(EndTxnRequest)
        closing = asyncio.ensure_future(producer.close())
        await turns()
        assert not closing.done()
        hold.set()
        await closing
        await committing
    assert coordinator.committed == {P0: [b"v"]}


async def test_close_aborts_what_a_commit_leaves(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()
    coordinator.broker.topics["topic"] = 2
    steps = iter([ErrorCode.INVALID_RECORD, None])

    async def handle(request: Any) -> Any:
        code = next(steps)
        if code is None:
            await hold.wait()
        return coordinator.answer(request, coordinator.broker.version, refusal=code)

    coordinator.broker.handlers[ProduceRequest] = handle
    async with started(coordinator, batch_size=1) as producer:
        producer.begin_transaction()
        refused = await producer.send("topic", b"refused", partition=0)
        await coordinator.broker.received(ProduceRequest)
        held = await producer.send("topic", b"held", partition=1)
        committing = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.wait([refused])
        closing = asyncio.ensure_future(producer.close())
        await turns()
        hold.set()
        await closing
        with pytest.raises(AbortableError):
            await committing
        assert held.done()
    assert ends(coordinator) == [False]


async def test_close_in_a_hurry_leaves_a_commit_to_its_timeout(coordinator: FakeCoordinator) -> None:
    coordinator.script[EndTxnRequest] = [asyncio.Event()]
    async with started(coordinator) as producer:
        committing = asyncio.ensure_future(commit_one(producer, b"v"))
        await coordinator.broker.received(EndTxnRequest)
        await producer.close(timeout_s=0.01)
        with pytest.raises(ClientClosed):
            await committing


async def test_close_in_a_hurry_leaves_an_open_transaction_to_its_timeout(coordinator: FakeCoordinator) -> None:
    coordinator.script[EndTxnRequest] = [asyncio.Event()]
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"v")
        await producer.close(timeout_s=0.01)
    assert coordinator.transaction().state == "Ongoing"


# several tasks


async def test_two_tasks_send_in_one_transaction(coordinator: FakeCoordinator) -> None:
    coordinator.broker.topics["topic"] = 2

    async def send(partition: int) -> None:
        for number in range(MANY):
            await producer.send("topic", b"%d" % number, partition=partition)

    async with started(coordinator, batch_size=100) as producer, producer.transaction():
        await asyncio.gather(send(0), send(1), producer.send_offsets(OFFSETS, GROUP))
    expected = [b"%d" % number for number in range(MANY)]
    assert coordinator.committed == {("topic", 0): expected, ("topic", 1): expected}
    assert coordinator.offsets == {("g", "in", 0): 42}


@pytest.mark.parametrize("waiters", [1, 3])
async def test_s45_a_record_that_waits_for_room_is_not_of_the_next_transaction(
    coordinator: FakeCoordinator, waiters: int
) -> None:
    leaderless = coordinator.broker.on_metadata

    def without_leader(request: Any) -> Any:
        response = leaderless(request)
        for topic in response.topics:
            for partition in topic.partitions:
                partition.leader_id = -1
        return response

    coordinator.broker.handlers[MetadataRequest] = without_leader
    async with started(coordinator, buffer_memory=200, batch_size=200) as producer:
        producer.begin_transaction()
        first = await producer.send("topic", b"x" * 80)
        waiting = [asyncio.ensure_future(producer.send("topic", b"y" * 80)) for _ in range(waiters)]
        await turns()
        await producer.abort_transaction()
        producer.begin_transaction()
        coordinator.broker.handlers[MetadataRequest] = leaderless
        future = await producer.send("topic", b"z" * 80)
        await asyncio.wait(waiting, timeout=5)
        for one in waiting:
            assert isinstance(one.exception(), InvalidTransactionState)
        assert first.exception() is not None
        await producer.commit_transaction()
        assert future.result().offset == 0
    assert coordinator.committed == {P0: [b"z" * 80]}


async def test_s45_a_record_that_waits_for_metadata_is_not_of_the_next_transaction(
    coordinator: FakeCoordinator,
) -> None:
    async with started(coordinator) as producer:
        producer.begin_transaction()
        waiting = asyncio.ensure_future(producer.send("later", b"of the first"))
        await coordinator.broker.received(MetadataRequest, 2)
        await producer.abort_transaction()
        producer.begin_transaction()
        coordinator.broker.topics["later"] = 1
        with pytest.raises(InvalidTransactionState):
            await waiting
        await producer.send("later", b"of the second")
        await producer.commit_transaction()
    assert coordinator.committed == {("later", 0): [b"of the second"]}


async def test_s38_a_record_that_is_too_late_for_the_commit_fails_it(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()
    coordinator.script[ProduceRequest] = [hold]
    async with started(coordinator, buffer_memory=200, batch_size=200) as producer:
        producer.begin_transaction()
        await producer.send("topic", b"x" * 80)
        waiting = asyncio.ensure_future(producer.send("topic", b"y" * 80))
        await coordinator.broker.received(ProduceRequest)
        committing = asyncio.ensure_future(producer.commit_transaction())
        await turns()
        hold.set()
        with pytest.raises(InvalidTransactionState):
            await waiting
        with pytest.raises(AbortableError):
            await committing
        await producer.abort_transaction()
    assert coordinator.committed == {}


async def test_a_cancelled_record_lets_the_next_one_have_its_room(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()
    coordinator.script[ProduceRequest] = [hold]
    async with started(coordinator, buffer_memory=200, batch_size=200) as producer:
        producer.begin_transaction()
        first = await producer.send("topic", b"x" * 80)
        cancelled, patient = (asyncio.ensure_future(producer.send("topic", value * 80)) for value in (b"y", b"z"))
        await coordinator.broker.received(ProduceRequest)
        first.add_done_callback(lambda _: asyncio.get_running_loop().call_soon(cancelled.cancel))
        hold.set()
        async with asyncio.timeout(5):
            await (await patient)
        await producer.commit_transaction()
    assert coordinator.committed[P0][-1] == b"z" * 80


# calls that do not fit


async def test_s45_calls_that_the_state_does_not_allow(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        for call in (
            producer.send("topic", b"v"),
            producer.send("nowhere", b"v"),  # without looking for the topic
            producer.send_offsets(OFFSETS, GROUP),
            producer.commit_transaction(),
            producer.abort_transaction(),
        ):
            with pytest.raises(InvalidTransactionState, match="'t' is READY"):
                await call
        producer.begin_transaction()
        with pytest.raises(InvalidTransactionState, match="'t' is IN_TRANSACTION"):
            producer.begin_transaction()
        with pytest.raises(InvalidTransactionState):
            async with producer.transaction():
                raise AssertionError("never begun")
        await producer.send("topic", b"v")
        await producer.commit_transaction()
    assert coordinator.committed == {P0: [b"v"]}


async def test_s45_transactions_need_a_transactional_id(fake_broker: Any) -> None:
    async with Producer(fake_broker.address) as producer:
        for call in (producer.begin_transaction, producer.transaction):
            with pytest.raises(InvalidTransactionState, match="transactions need a transactional_id"):
                call()
        with pytest.raises(InvalidTransactionState):
            await producer.commit_transaction()


async def test_s45_transactions_need_a_producer_that_has_started() -> None:
    producer = Producer("h:1", transactional_id="t")
    with pytest.raises(ClientClosed, match="the producer is not started"):
        producer.begin_transaction()
    await producer.close()
    with pytest.raises(ClientClosed, match="the producer is closed"):
        producer.transaction()


# the block


async def test_s60_an_error_of_the_body_aborts_and_goes_on(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait("topic", b"v")
                raise ZeroDivisionError
        await commit_one(producer, b"next")
    assert ends(coordinator) == [False, True]
    assert coordinator.committed == {P0: [b"next"]}


async def test_s60_a_body_that_is_cancelled_aborts(coordinator: FakeCoordinator) -> None:
    reached = asyncio.Event()

    async def body() -> None:
        async with producer.transaction():
            await producer.send_and_wait("topic", b"v")
            reached.set()
            await asyncio.Event().wait()

    async with started(coordinator) as producer:
        working = asyncio.ensure_future(body())
        await reached.wait()
        working.cancel()
        await asyncio.wait([working])
        assert working.cancelled()
        assert ends(coordinator) == [False]
        await commit_one(producer, b"next")
    assert coordinator.committed == {P0: [b"next"]}


async def test_s60_a_body_may_end_its_transaction_itself_if_it_fails(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait("topic", b"v")
                await producer.abort_transaction()
                raise ZeroDivisionError
    assert ends(coordinator) == [False]


@pytest.mark.parametrize("fails", ["body", "commit"])
async def test_s60_an_abort_that_takes_long_does_not_hide_the_error(coordinator: FakeCoordinator, fails: str) -> None:
    hold = asyncio.Event()
    coordinator.script[EndTxnRequest] = [hold] if fails == "body" else [ErrorCode.TRANSACTION_ABORTABLE, hold]
    async with started(coordinator) as producer, contextlib.AsyncExitStack() as stack:

        def end(request: Any) -> Any:
            if request.committed:
                stack.enter_context(impatient(producer))
            return coordinator._handle(request)

        async def body() -> None:
            async with producer.transaction():
                await producer.send_and_wait("topic", b"v")
                if fails == "body":
                    stack.enter_context(impatient(producer))
                    raise ZeroDivisionError

        coordinator.broker.handlers[EndTxnRequest] = end
        working = asyncio.ensure_future(body())
        await coordinator.broker.received(EndTxnRequest, 1 if fails == "body" else 2)
        _, pending = await asyncio.wait([working], timeout=0.02)
        await stack.aclose()
        hold.set()
        with pytest.raises(ZeroDivisionError if fails == "body" else AbortableError):
            await working
        assert pending, "the next transaction could not begin yet"
        coordinator.broker.handlers[EndTxnRequest] = coordinator._handle
        await commit_one(producer, b"next")
    assert coordinator.committed == {P0: [b"next"]}


# anything at all


class Chaos:
    """A third of the requests go wrong; what was never answered may be done late, in a later transaction too."""

    REFUSED = AddPartitionsToTxnRequest | AddOffsetsToTxnRequest | TxnOffsetCommitRequest | ProduceRequest

    def __init__(self, coordinator: FakeCoordinator, seed: int) -> None:
        self.coordinator = coordinator
        self.rng = random.Random(seed)
        self.late: list[tuple[Any, int]] = []
        for kind in coordinator.broker.handlers:
            coordinator.broker.handlers[kind] = self.handle

    async def handle(self, request: Any) -> Any:
        coordinator, rng = self.coordinator, self.rng
        if self.late and rng.random() < 0.3:
            coordinator.answer(*self.late.pop(rng.randrange(len(self.late))))
        outcome = rng.choice(["fine"] * 8 + ["lost", "dropped", "passes", "abortable"])
        step: Any = Step.PASS
        if outcome in ("lost", "dropped"):
            if isinstance(request, self.REFUSED | EndTxnRequest):
                self.late.append((request, coordinator.broker.version))
            step = Step.LOST if outcome == "lost" else Step.DROPPED
        elif outcome == "passes":
            step = rng.choice([ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS])
        elif outcome == "abortable" and isinstance(request, self.REFUSED):
            step = ErrorCode.TRANSACTION_ABORTABLE
        coordinator.script[type(request)] = [step]
        return await coordinator._handle(request)


@pytest.mark.parametrize("seed", range(8))
async def test_e1_e2_s38_all_of_a_transaction_or_nothing_whatever_goes_wrong(
    coordinator: FakeCoordinator, seed: int
) -> None:
    chaos = Chaos(coordinator, seed)
    coordinator.broker.topics["topic"] = 2
    expected: dict[tuple[str, int], list[bytes]] = {}
    offsets: dict[tuple[str, str, int], int] = {}
    async with started(coordinator, batch_size=100, retry_backoff_ms=0, retry_backoff_max_ms=1) as producer:
        for number in range(15):
            values = [b"%d.%d" % (number, index) for index in range(chaos.rng.randrange(6))]
            try:
                async with producer.transaction():
                    for index, value in enumerate(values):
                        await producer.send("topic", value, partition=index % 2)
                    if chaos.rng.random() < 0.5:
                        place = chaos.rng.randrange(3)
                        await producer.send_offsets({TopicPartition("in", place): number}, GROUP)
                    else:
                        place = -1
                    if chaos.rng.random() < 0.2:
                        raise ZeroDivisionError
            except (AbortableError, ZeroDivisionError):
                continue
            for index, value in enumerate(values):
                expected.setdefault(("topic", index % 2), []).append(value)
            if place >= 0:
                offsets["g", "in", place] = number
    assert coordinator.committed == expected
    assert coordinator.offsets == offsets


async def turns(count: int = TURNS) -> None:
    """What can happen without waiting happens."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until_abortable(producer: Producer) -> None:
    async with asyncio.timeout(5):
        while True:
            try:
                await producer.send("topic", b"v")
            except InvalidTransactionState:
                await asyncio.sleep(0)  # committing still
            except AbortableError:
                return
