"""Busy and absent coordinators, lost responses, and partitions that must not be added (S36, S37, S44, E1, E2)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.fake_transactions import FakeCoordinator, Step, impatient
from tests.support.loop_turns import turns
from tests.support.transactional_producers import (
    GROUP,
    OFFSETS,
    P0,
    commit_one,
    ends,
    identities,
    started,
)

from oncelog.cluster import TopicPartition
from oncelog.errors import (
    AbortableError,
    FatalError,
    KafkaError,
    RequestTimedOut,
)
from oncelog.producer.producer import Producer
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

# --- coordinators that are busy, move, or close the connection


CONCURRENT = [ErrorCode.CONCURRENT_TRANSACTIONS] * 3


async def test_s36_adding_a_partition_waits_for_the_previous_transaction(coordinator: FakeCoordinator) -> None:
    for request in (InitProducerIdRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, EndTxnRequest):
        coordinator.script[request] = list(CONCURRENT)
    coordinator.script[ProduceRequest] = list(CONCURRENT)  # in V2, as the leader relays it
    async with started(coordinator) as producer, producer.transaction():
        await producer.send("topic", b"v")
        await producer.send_offsets(OFFSETS, GROUP)
    assert coordinator.committed == {P0: [b"v"]}
    assert len(ends(coordinator)) == 4
    assert coordinator.broker.requests_of(ProduceRequest)[-1] is not None
    assert len(coordinator.broker.requests_of(ProduceRequest)) == 4
    assert len(coordinator.broker.requests_of(FindCoordinatorRequest)) == 2  # no coordinator has moved


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
async def test_s44_a_commit_survives_a_moving_or_loading_coordinator(
    coordinator: FakeCoordinator, trouble: Any
) -> None:
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


async def test_s44_a_coordinator_that_is_gone_is_not_waited_for(coordinator: FakeCoordinator) -> None:
    broker = coordinator.broker
    gone = type(broker)()
    await gone.start()
    is_up = True

    def find(request: Any) -> Any:
        found = coordinator.answer(request, broker.version)
        if is_up:
            found.coordinators[0].node_id, found.coordinators[0].port = 2, gone.port
        return found

    broker.others[2] = gone.port
    broker.handlers[FindCoordinatorRequest] = gone.handlers[FindCoordinatorRequest] = find
    gone.finalized = broker.finalized
    gone.handlers[MetadataRequest] = broker.on_metadata  # the former coordinator still responds to other requests
    for kind in (InitProducerIdRequest, EndTxnRequest, AddPartitionsToTxnRequest):
        gone.handlers[kind] = lambda request: coordinator.answer(request, gone.version)
    async with started(coordinator) as producer:
        await commit_one(producer, b"0")
        await gone.stop()
        is_up = False
        await turns()
        async with asyncio.timeout(5):
            await commit_one(producer, b"1")
    assert coordinator.committed == {P0: [b"0", b"1"]}
    assert len(ends(coordinator)) == 1


async def test_s30_a_transaction_that_nobody_coordinates_times_out(coordinator: FakeCoordinator) -> None:
    coordinator.script[FindCoordinatorRequest] = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 1000
    with pytest.raises(RequestTimedOut, match=r"could not be initialised \(max\.block\.ms=30 has passed\)"):
        async with started(coordinator, max_block_ms=30):
            raise AssertionError("never started")


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_s44_an_empty_transaction_ends_without_its_coordinator(coordinator: FakeCoordinator, end: str) -> None:
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await coordinator.broker.stop()
        await turns()  # this request lets the producer learn of the change
        await (producer.commit_transaction() if end == "commit" else producer.abort_transaction())
        await coordinator.broker.start()
        await commit_one(producer, b"v")
    assert coordinator.committed == {P0: [b"v"]}


@pytest.mark.virtual_time
async def test_s44_a_broker_away_longer_than_the_delivery_timeout_aborts_the_transaction(
    coordinator: FakeCoordinator,
) -> None:
    async with started(coordinator, request_timeout_ms=150, delivery_timeout_ms=400) as producer:
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


# --- lost responses, and requests that arrive late


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
    # A late copy of the request may arrive during the next transaction. The copy would commit old offsets with that
    # transaction, or begin a transaction that hangs.
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
    # The producer requests a new epoch once, and not again for the next transaction.
    assert len(coordinator_v1.broker.requests_of(InitProducerIdRequest)) == 2
    assert coordinator_v1.committed == {P0: [b"1", b"2", b"3"]}


async def test_e1_before_v2_an_unanswered_commit_refused_later_is_fatal(coordinator_v1: FakeCoordinator) -> None:
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


@pytest.mark.virtual_time
async def test_e2_before_v2_a_batch_whose_outcome_is_unknown_costs_an_epoch(coordinator_v1: FakeCoordinator) -> None:
    async with started(coordinator_v1, request_timeout_ms=150, delivery_timeout_ms=400) as producer:
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


@pytest.mark.virtual_time
async def test_e2_under_v2_the_abort_brings_the_epoch(coordinator_v2: FakeCoordinator) -> None:
    async with started(coordinator_v2, request_timeout_ms=150, delivery_timeout_ms=400) as producer:
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
        await commit_one(producer, b"v")  # this transaction commits, whatever happens later
        with pytest.raises(FatalError, match=r"older than Kafka 2\.5"):
            producer.begin_transaction()
    assert coordinator_v1.committed == {P0: [b"v"]}


# --- partitions that must not be added


async def test_s36_a_topic_that_may_not_be_written_leaves_nothing_to_end(coordinator_v1: FakeCoordinator) -> None:
    async with started(coordinator_v1) as producer:
        await commit_one(producer, b"0")
        coordinator_v1.script[AddPartitionsToTxnRequest] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        with pytest.raises(AbortableError) as caught:
            await commit_one(producer, b"refused")
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await commit_one(producer, b"1")
    assert ends(coordinator_v1) == [True, True]  # Kafka responds to the abort of an unknown transaction with an error
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
async def test_e2_a_request_refused_after_a_lost_answer_may_have_begun_a_transaction(
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


async def test_s38_a_leader_that_refuses_all_records_fails_the_commit(coordinator_v2: FakeCoordinator) -> None:
    broker = coordinator_v2.broker
    broker.topics["topic"] = 2
    other = type(broker)()
    other.max_versions[ApiKey.PRODUCE] = 2
    other.handlers[FindCoordinatorRequest] = broker.handlers[FindCoordinatorRequest]
    await other.start()

    def metadata(request: Any) -> Any:
        response = broker.on_metadata(request)
        for topic in response.topics:
            topic.partitions[0].leader_id = 2
        return response

    broker.others[2] = other.port
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
            await producer.send_offsets({TopicPartition("in", 2**31): 1}, GROUP)
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


async def test_s37_an_impossible_offset_is_refused_and_nothing_has_happened(
    coordinator: FakeCoordinator,
) -> None:
    async with started(coordinator) as producer, producer.transaction():
        for offset in (-1, 2**63):
            with pytest.raises(ValueError, match=f"offset {offset}: must be from 0 to"):
                await producer.send_offsets({TopicPartition("in", 0): offset}, GROUP)
    assert coordinator.kinds() == ["InitProducerId"]
