"""Another process ends a prepared transaction, in transactions V1 and V2, with every possible response of a
coordinator.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.support.fake_transactions import FakeCoordinator, Step, impatient
from tests.support.loop_turns import turns
from tests.support.transactional_producers import P0, ends, started

from oncelog import Admin, PreparedTransaction
from oncelog.errors import (
    AbortableError,
    ErrorCode,
    InvalidTransactionState,
    KafkaError,
    RequestTimedOut,
    UnsupportedVersion,
)
from oncelog.prepared_transaction import Ended, outcome
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.produce import ProduceRequest


async def prepared_one(coordinator: FakeCoordinator, value: bytes = b"v") -> PreparedTransaction:
    """Prepare a transaction with a producer that is then closed; return the prepared transaction."""
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await producer.send("topic", value)
        prepared = await producer.prepare_transaction()
    assert prepared is not None
    return prepared


@pytest.mark.parametrize("commits", [True, False])
async def test_another_process_may_end_a_prepared_transaction_repeatedly(
    coordinator: FakeCoordinator, commits: bool
) -> None:
    prepared = await prepared_one(coordinator)
    held = coordinator.transaction()
    assert prepared == ("t", held.producer_id, held.epoch, coordinator.is_v2)
    assert held.state == "Ongoing"
    async with Admin(coordinator.broker.address) as admin:
        for _ in range(2):
            assert await admin.transactions.end(prepared, commits=commits)
        assert not await admin.transactions.end(prepared, commits=not commits)
    assert coordinator.committed == ({P0: [b"v"]} if commits else {})


async def test_a_transaction_not_handed_over_is_aborted_by_close(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"v")
    assert ends(coordinator) == [False]


async def test_a_lost_answer_is_asked_for_again(coordinator: FakeCoordinator) -> None:
    prepared = await prepared_one(coordinator)
    coordinator.script[EndTxnRequest] = [Step.LOST, Step.DROPPED, ErrorCode.CONCURRENT_TRANSACTIONS]
    async with Admin(coordinator.broker.address, retry_backoff_ms=1, reconnect_backoff_ms=1) as admin:
        assert await admin.transactions.end(prepared, commits=True)
    assert coordinator.committed == {P0: [b"v"]}


async def test_a_timed_out_or_fenced_transaction_cannot_be_committed(coordinator: FakeCoordinator) -> None:
    async with Admin(coordinator.broker.address) as admin:
        prepared = await prepared_one(coordinator)
        coordinator.time_out()
        assert not await admin.transactions.end(prepared, commits=True)
        assert await admin.transactions.end(prepared, commits=False)  # the transaction is aborted
        prepared = await prepared_one(coordinator, b"w")
        coordinator.take_over()
        assert not await admin.transactions.end(prepared, commits=True)
        assert await admin.transactions.end(prepared, commits=False)
    assert coordinator.committed == {}


async def test_the_outcome_of_an_expired_id_is_reported_as_unknown(coordinator: FakeCoordinator) -> None:
    prepared = await prepared_one(coordinator)
    del coordinator.transactions["t"]
    async with Admin(coordinator.broker.address) as admin:
        with pytest.raises(KafkaError) as caught:
            await admin.transactions.end(prepared, commits=True)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_t7_a_prepared_transaction_ends_in_the_version_of_its_begin(fake_broker: object) -> None:
    """For a transaction that began under V1, EndTxn has version 4 although a newer producer would use V2.

    For a transaction that began under V2, the version is at least 5.
    """
    coordinator = FakeCoordinator(fake_broker, is_v2=False)
    prepared = await prepared_one(coordinator)
    assert not prepared.is_v2
    coordinator.broker.finalized["transaction.version"] = 2
    async with Admin(coordinator.broker.address) as admin:
        assert await admin.transactions.end(prepared, commits=True)
        assert coordinator.transaction().epoch == prepared.epoch  # with transactions V2 the epoch would have risen
        coordinator.broker.max_versions[ApiKey.END_TXN] = 4
    async with Admin(coordinator.broker.address) as admin:
        with pytest.raises(UnsupportedVersion, match="begun under transactions V2"):
            await admin.transactions.end(prepared._replace(is_v2=True), commits=True)


async def test_an_empty_prepared_transaction_needs_no_end(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        producer.begin_transaction()
        assert await producer.prepare_transaction() is None
        producer.begin_transaction()  # the previous transaction has ended
        await producer.send("topic", b"v")
        await producer.commit_transaction()
    assert ends(coordinator) == [True]


async def test_the_producer_of_a_prepared_transaction_can_only_end_it(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        for value in (b"v", b"w"):
            producer.begin_transaction()
            await producer.send("topic", value)
            prepared = await producer.prepare_transaction()
            assert await producer.prepare_transaction() == prepared
            with pytest.raises(InvalidTransactionState, match="PREPARED_TRANSACTION"):
                await producer.send("topic", b"more")
            with pytest.raises(InvalidTransactionState, match="PREPARED_TRANSACTION"):
                producer.begin_transaction()
            await (producer.commit_transaction() if value == b"v" else producer.abort_transaction())
    assert ends(coordinator) == [True, False]
    assert coordinator.committed == {P0: [b"v"]}


async def test_a_failed_transaction_is_not_handed_over(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        coordinator.script[ProduceRequest] = [ErrorCode.MESSAGE_TOO_LARGE]
        producer.begin_transaction()
        await producer.send("topic", b"v")
        with pytest.raises(AbortableError):
            await producer.prepare_transaction()
        await producer.abort_transaction()
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"w")
        await producer.commit_transaction()
    assert coordinator.committed == {P0: [b"w"]}


async def test_a_slow_preparation_is_repeated_or_aborted_by_close(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        hold = asyncio.Event()
        coordinator.script[ProduceRequest] = [hold]
        producer.begin_transaction()
        await producer.send("topic", b"v")
        with pytest.raises(RequestTimedOut, match="call prepare_transaction again"), impatient(producer):
            await producer.prepare_transaction()
        again = asyncio.ensure_future(producer.prepare_transaction())
        await turns()
        assert not again.done()
        again.cancel()
        hold.set()
    assert coordinator.committed == {}
    assert coordinator.transaction().state == "CompleteAbort"


@pytest.mark.parametrize("code", list(ErrorCode))
@pytest.mark.parametrize("commits", [True, False])
def test_only_a_definite_answer_of_the_coordinator_is_an_outcome(code: ErrorCode, commits: bool) -> None:
    sure = {
        ErrorCode.NONE: Ended.AS_ASKED,
        ErrorCode.INVALID_TXN_STATE: Ended.OTHERWISE,
        ErrorCode.PRODUCER_FENCED: Ended.OTHERWISE if commits else Ended.AS_ASKED,
        ErrorCode.INVALID_PRODUCER_EPOCH: Ended.OTHERWISE if commits else Ended.AS_ASKED,
    }
    assert outcome(code, commits=commits) is sure.get(code, Ended.NOT_KNOWN)
