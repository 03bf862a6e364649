"""A transactional producer against a fake coordinator, with transactions V1 and V2 (KIP-890). The tests check the
requests, discarded records, the effects of a failed send, and calls that the state does not permit (S36-S38, S45).
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.fake_transactions import FakeCoordinator, impatient
from tests.support.loop_turns import turns
from tests.support.transactional_producers import (
    GROUP,
    MANY,
    OFFSETS,
    P0,
    batches_of,
    commit_one,
    ends,
    identities,
    started,
)

from oncelog.cluster import TopicPartition
from oncelog.errors import (
    AbortableError,
    BufferExhausted,
    ClientClosed,
    InvalidTransactionState,
    KafkaError,
    MessageTooLarge,
    RequestTimedOut,
)
from oncelog.group_offsets import OffsetAndMetadata
from oncelog.producer.producer import Producer
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

# --- requests over the wire


async def test_s36_s37_s38_before_v2_partitions_and_groups_are_added_first(coordinator_v1: FakeCoordinator) -> None:
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


async def test_kip890_under_v2_no_partition_is_added_explicitly(coordinator_v2: FakeCoordinator) -> None:
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


async def test_s21_before_v2_epoch_and_numbers_continue(coordinator_v1: FakeCoordinator) -> None:
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
        broker.hang_up()  # a broker reports the cluster's features on each new connection
        await producer.send("topic", b"1")
        await producer.commit_transaction()
        assert broker.versions[EndTxnRequest] == [4, 4]  # a transaction ends with the version with which it began
        await commit_one(producer, b"2")
    assert broker.versions[EndTxnRequest] == [4, 4, 5]
    assert coordinator_v1.committed == {P0: [b"0", b"1", b"2"]}


# --- empty transactions, and discarded records


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_s38_an_empty_transaction_sends_no_request(coordinator: FakeCoordinator, end: str) -> None:
    async with started(coordinator) as producer:
        for _ in range(2):
            producer.begin_transaction()
            await producer.send_offsets({}, GROUP)
            await (producer.commit_transaction() if end == "commit" else producer.abort_transaction())
    assert coordinator.kinds() == ["InitProducerId"]


async def test_s45_abort_drops_unsent_records(coordinator: FakeCoordinator) -> None:
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


async def test_s45_abort_drops_records_waiting_for_their_partition(coordinator_v1: FakeCoordinator) -> None:
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
    assert ends(coordinator_v1) == [False, True]  # the partition was added although no record was sent
    assert [record.value for record in coordinator_v1.broker.records()] == [b"v"]


async def test_s45_no_record_joins_a_batch_during_the_commit(coordinator_v1: FakeCoordinator) -> None:
    hold = asyncio.Event()
    coordinator_v1.script[AddPartitionsToTxnRequest] = [hold]
    async with started(coordinator_v1) as producer:
        producer.begin_transaction()
        await producer.send("topic", b"v")
        await coordinator_v1.broker.received(AddPartitionsToTxnRequest)
        committing = asyncio.ensure_future(producer.commit_transaction())
        await turns()
        with pytest.raises(InvalidTransactionState, match="COMMITTING"):
            await producer.send("topic", b"w")
        hold.set()
        await committing
    assert coordinator_v1.committed == {P0: [b"v"]}


async def test_s38_abort_waits_for_requests_in_flight(coordinator: FakeCoordinator) -> None:
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


# --- the effects of a failed send


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


async def test_s38_waiting_records_are_dropped_when_one_fails(coordinator: FakeCoordinator) -> None:
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


async def test_a_record_of_a_wrong_type_raises_and_does_not_fail_the_transaction(coordinator: FakeCoordinator) -> None:
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


async def test_only_an_abort_is_allowed_after_a_cancelled_send(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()
    coordinator.script[ProduceRequest] = [hold]
    async with started(coordinator, buffer_memory=200, batch_size=200) as producer:
        producer.begin_transaction()
        await producer.send("topic", b"x" * 80)
        cancelled, patient = (asyncio.ensure_future(producer.send("topic", value * 80)) for value in (b"y", b"z"))
        await coordinator.broker.received(ProduceRequest)
        cancelled.cancel()
        hold.set()
        with pytest.raises(AbortableError, match="a send was cancelled"):
            await patient
        with pytest.raises(AbortableError, match="a send was cancelled"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("topic", b"again")
    assert coordinator.committed[P0] == [b"again"]


async def test_a_send_that_was_cancelled_behind_a_full_batch_has_handed_over_nothing(
    coordinator: FakeCoordinator,
) -> None:
    async with started(coordinator, batch_size=200, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        producer.begin_transaction()
        await producer.send("topic", b"x" * 80)
        cancelled = asyncio.ensure_future(producer.send("topic", b"y" * 80))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        with pytest.raises(AbortableError, match="a send was cancelled"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("topic", b"y" * 80)
    assert coordinator.committed[P0] == [b"y" * 80]


# --- calls that the state does not permit


async def test_s45_calls_in_a_wrong_state_are_refused(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        for call in (
            producer.send("topic", b"v"),
            producer.send("nowhere", b"v"),  # the call fails before it looks the topic up
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
