"""A transactional producer that another producer has replaced, or whose transaction timed out (S41, S42)."""

from __future__ import annotations

import pytest
from tests.support.fake_transactions import FakeCoordinator
from tests.support.transactional_producers import (
    GROUP,
    OFFSETS,
    P0,
    commit_one,
    ends,
    started,
)

from oncelog.errors import (
    AbortableError,
    ClientClosed,
    FatalError,
    ProducerFenced,
)
from oncelog.producer.producer import Producer
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

# fencing


async def fenced(producer: Producer) -> None:
    """Check that every call fails with ProducerFenced."""
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
async def test_s41_a_fenced_producer_fails_at_its_start(coordinator: FakeCoordinator, code: ErrorCode) -> None:
    coordinator.script[InitProducerIdRequest] = [code]
    producer = Producer(coordinator.broker.address, transactional_id="t")
    with pytest.raises(ProducerFenced):
        await producer.start()
    with pytest.raises(ClientClosed):
        producer.begin_transaction()


@pytest.mark.parametrize("code", CODES)
async def test_s41_a_fenced_producer_fails_when_a_partition_is_added(
    coordinator_v1: FakeCoordinator, code: ErrorCode
) -> None:
    coordinator_v1.script[AddPartitionsToTxnRequest] = [code]
    async with started(coordinator_v1) as producer:
        producer.begin_transaction()
        with pytest.raises(ProducerFenced):
            await (await producer.send("topic", b"v"))
        await fenced(producer)
    assert ends(coordinator_v1) == []


@pytest.mark.parametrize("code", CODES)
async def test_s41_a_fenced_producer_fails_when_offsets_are_added(
    coordinator_v1: FakeCoordinator, code: ErrorCode
) -> None:
    coordinator_v1.script[AddOffsetsToTxnRequest] = [code]
    async with started(coordinator_v1) as producer:
        producer.begin_transaction()
        if code is ErrorCode.PRODUCER_FENCED:
            with pytest.raises(ProducerFenced):
                await producer.send_offsets(OFFSETS, GROUP)
            await fenced(producer)
        else:
            # The error may merely mean that the transaction timed out, as is the case for writes.
            with pytest.raises((AbortableError, ProducerFenced)):
                await producer.send_offsets(OFFSETS, GROUP)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_s41_a_fenced_producer_fails_at_the_end_of_its_transaction(
    coordinator: FakeCoordinator, code: ErrorCode, end: str
) -> None:
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
async def test_s41_a_fenced_producer_fails_when_it_writes(coordinator: FakeCoordinator, write: str) -> None:
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


async def test_s41_a_fenced_block_raises_a_fatal_error(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        with pytest.raises(ProducerFenced):
            async with producer.transaction():
                await producer.send_and_wait("topic", b"v")
                coordinator.take_over()
        with pytest.raises(ProducerFenced):
            async with producer.transaction():
                raise AssertionError("never begun")


async def test_s41_the_last_producer_to_start_wins(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as old:
        old.begin_transaction()
        await old.send_and_wait("topic", b"old")
        async with started(coordinator) as new:
            await commit_one(new, b"new")
            with pytest.raises(FatalError):
                await old.commit_transaction()
    assert coordinator.committed == {P0: [b"new"]}


@pytest.mark.parametrize("write", ["records", "offsets"])
async def test_s42_a_producer_that_was_too_slow_aborts_and_continues(coordinator: FakeCoordinator, write: str) -> None:
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
        with pytest.raises(AbortableError, match="after its timeout"):
            async with producer.transaction():
                await producer.send_and_wait("topic", b"slow")
                coordinator_v2.time_out()
        await commit_one(producer, b"next")
    assert coordinator_v2.committed == {P0: [b"next"]}
