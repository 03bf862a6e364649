"""A producer with two_phase_commit=True ends an open transaction as the stored decision of its application says (S121,
KIP-939).
"""

from __future__ import annotations

import pytest
from tests.support.fake_transactions import FakeCoordinator, Step, impatient
from tests.support.transactional_producers import P0, ends, started

from oncelog import Admin, PreparedTransaction, Producer
from oncelog.errors import (
    ConfigError,
    EndNotKnown,
    ErrorCode,
    FatalError,
    InvalidTransactionState,
    KafkaError,
    ProducerFenced,
    UnsupportedVersion,
)
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.producer_id import ProducerIdAndEpoch


async def prepared_one(coordinator: FakeCoordinator, value: bytes = b"v") -> PreparedTransaction:
    """Prepare a transaction with a producer that is then closed; return the prepared transaction."""
    async with started(coordinator, two_phase_commit=True) as producer:
        producer.begin_transaction()
        await producer.send("topic", value)
        prepared = await producer.prepare_transaction()
    assert prepared is not None
    return prepared


async def test_s121_a_two_phase_producer_asks_for_transactions_without_timeout(coordinator_v2: FakeCoordinator) -> None:
    async with started(coordinator_v2, two_phase_commit=True):
        (request,) = coordinator_v2.broker.requests_of(InitProducerIdRequest)
        assert (request.enable2_pc, request.keep_prepared_txn) == (True, True)
    async with started(coordinator_v2):
        request = coordinator_v2.broker.requests_of(InitProducerIdRequest)[-1]
        assert (request.enable2_pc, request.keep_prepared_txn) == (False, False)


@pytest.mark.parametrize("is_stored", [True, False])
async def test_s121_the_next_producer_ends_a_prepared_transaction_as_stored(
    coordinator_v2: FakeCoordinator, is_stored: bool
) -> None:
    prepared = await prepared_one(coordinator_v2)
    async with started(coordinator_v2, two_phase_commit=True) as producer:
        assert ends(coordinator_v2) == []
        assert await producer.complete_transaction(prepared if is_stored else None) is is_stored
        assert await producer.complete_transaction(prepared) is None  # the transaction has ended
        async with producer.transaction():
            await producer.send("topic", b"next")
    assert ends(coordinator_v2) == [is_stored, True]
    assert coordinator_v2.committed == {P0: [b"v", b"next"] if is_stored else [b"next"]}


async def test_s121_a_stored_outcome_of_an_earlier_transaction_aborts(coordinator_v2: FakeCoordinator) -> None:
    earlier = await prepared_one(coordinator_v2)
    async with started(coordinator_v2, two_phase_commit=True) as producer:
        assert await producer.complete_transaction(earlier)
    await prepared_one(coordinator_v2, b"w")
    async with started(coordinator_v2, two_phase_commit=True) as producer:
        assert await producer.complete_transaction(earlier) is False
    assert coordinator_v2.committed == {P0: [b"v"]}


async def test_s121_before_transactions_v2_two_transactions_look_alike(coordinator_v1: FakeCoordinator) -> None:
    """With transactions V1, the application's stored decision about the previous transaction would commit the next
    transaction, which was never prepared.
    """
    with pytest.raises(FatalError, match=r"transaction\.version") as refused:
        async with started(coordinator_v1, two_phase_commit=True) as producer:
            producer.begin_transaction()
            await producer.send("topic", b"v")
            earlier = await producer.prepare_transaction()
            assert await producer.complete_transaction(earlier)
            producer.begin_transaction()
            await producer.send("topic", b"half of it")
            half = await producer.prepare_transaction()
            assert half != earlier
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert coordinator_v1.broker.requests_of(InitProducerIdRequest) == [], "nobody is fenced for it"


async def test_s121_a_producer_completes_its_own_prepared_transaction(coordinator_v2: FakeCoordinator) -> None:
    async with started(coordinator_v2, two_phase_commit=True) as producer:
        producer.begin_transaction()
        await producer.send("topic", b"v")
        with pytest.raises(InvalidTransactionState, match="prepare"):
            await producer.complete_transaction(None)
        assert await producer.complete_transaction(await producer.prepare_transaction()) is True
        producer.begin_transaction()
        assert await producer.complete_transaction(await producer.prepare_transaction()) is None  # no record was sent
    assert coordinator_v2.committed == {P0: [b"v"]}


async def test_s121_no_transaction_begins_before_the_prepared_one_is_completed(coordinator_v2: FakeCoordinator) -> None:
    prepared = await prepared_one(coordinator_v2)
    async with started(coordinator_v2, two_phase_commit=True) as producer:
        with pytest.raises(InvalidTransactionState, match="complete"):
            producer.begin_transaction()
        with pytest.raises(ValueError, match="transactional id 'other'"):
            await producer.complete_transaction(prepared._replace(transactional_id="other"))
    assert ends(coordinator_v2) == []  # the producer is closed, and its transaction stays open for the next producer
    async with started(coordinator_v2, two_phase_commit=True) as producer:
        assert await producer.complete_transaction(prepared)


async def test_s121_a_replaced_producer_is_fenced(coordinator_v2: FakeCoordinator) -> None:
    async with started(coordinator_v2, two_phase_commit=True) as zombie:
        zombie.begin_transaction()
        await zombie.send("topic", b"v")
        prepared = await zombie.prepare_transaction()
        async with started(coordinator_v2, two_phase_commit=True) as producer:
            with pytest.raises(ProducerFenced):
                await zombie.complete_transaction(None)
            assert await producer.complete_transaction(prepared)
    assert coordinator_v2.committed == {P0: [b"v"]}


async def test_s121_a_lost_answer_is_asked_for_again(coordinator_v2: FakeCoordinator) -> None:
    prepared = await prepared_one(coordinator_v2)
    coordinator_v2.script[InitProducerIdRequest] = [Step.LOST, Step.DROPPED]
    coordinator_v2.script[EndTxnRequest] = [Step.LOST, Step.DROPPED]
    async with started(coordinator_v2, two_phase_commit=True) as producer:
        assert await producer.complete_transaction(prepared)
    assert coordinator_v2.committed == {P0: [b"v"]}


async def test_s121_completing_a_transaction_can_be_awaited_again(coordinator_v2: FakeCoordinator) -> None:
    prepared = await prepared_one(coordinator_v2)
    async with started(coordinator_v2, two_phase_commit=True) as producer:
        coordinator_v2.script[EndTxnRequest] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 20
        with impatient(producer), pytest.raises(EndNotKnown):
            await producer.complete_transaction(prepared)
        assert await producer.complete_transaction(prepared)


async def test_s121_after_an_error_the_next_transaction_has_no_timeout_either(coordinator_v2: FakeCoordinator) -> None:
    async with started(coordinator_v2, two_phase_commit=True) as producer:
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"v")
        coordinator_v2.script[EndTxnRequest] = [Step.LOST]
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("topic", b"w")
    assert all(request.enable2_pc for request in coordinator_v2.broker.requests_of(InitProducerIdRequest))
    assert not coordinator_v2.transaction().has_timeout


async def test_s121_a_broker_without_two_phase_commit_says_what_to_set(coordinator_v2: FakeCoordinator) -> None:
    coordinator_v2.broker.max_versions[ApiKey.INIT_PRODUCER_ID] = 5
    with pytest.raises(UnsupportedVersion, match=r"version 5, not 6: set transaction\.two\.phase\.commit"):
        async with started(coordinator_v2, two_phase_commit=True):
            pass
    assert coordinator_v2.transactions == {}
    async with started(coordinator_v2) as producer, producer.transaction():
        await producer.send("topic", b"v")


async def test_s121_a_user_without_the_right_is_told_which(coordinator_v2: FakeCoordinator) -> None:
    coordinator_v2.script[InitProducerIdRequest] = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    with pytest.raises(FatalError, match="Write and TwoPhaseCommit"):
        async with started(coordinator_v2, two_phase_commit=True):
            pass


def test_s121_settings_that_contradict_two_phase_commit_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs a transactional_id"):
        Producer("127.0.0.1:9092", two_phase_commit=True)
    with pytest.raises(ConfigError, match="have no timeout"):
        Producer("127.0.0.1:9092", transactional_id="t", two_phase_commit=True, transaction_timeout_ms=1000)


# --- an admin client


async def test_s121_an_admin_keeps_a_transaction_without_timeout(coordinator_v2: FakeCoordinator) -> None:
    async with started(coordinator_v2) as producer:
        producer.begin_transaction()
        await producer.send("topic", b"v")
        prepared = await producer.prepare_transaction()
    assert prepared is not None
    assert coordinator_v2.transaction().has_timeout
    async with Admin(coordinator_v2.broker.address) as admin:
        kept = await admin.transactions.keep(prepared)
        assert kept == prepared._replace(epoch=prepared.epoch + 1)
        assert not coordinator_v2.transaction().has_timeout
        for commits in (True, False):
            with pytest.raises(ProducerFenced, match="is open, and another process has taken it over"):
                await admin.transactions.end(prepared, commits=commits)
        for _ in range(2):
            assert await admin.transactions.end(kept, commits=True)
        assert not await admin.transactions.end(kept, commits=False)
    assert coordinator_v2.committed == {P0: [b"v"]}


async def test_s121_an_ended_transaction_is_not_kept(coordinator_v2: FakeCoordinator) -> None:
    prepared = await prepared_one(coordinator_v2)
    async with Admin(coordinator_v2.broker.address) as admin:
        assert await admin.transactions.end(prepared, commits=True)
        assert await admin.transactions.keep(prepared) is None


async def test_s121_a_later_transaction_does_not_stay_open_without_an_owner(coordinator_v2: FakeCoordinator) -> None:
    """Keeping a transaction removes its timeout and fences its producer, so no process would ever end it."""
    earlier = await prepared_one(coordinator_v2)
    async with (
        Admin(coordinator_v2.broker.address) as admin,
        started(coordinator_v2, two_phase_commit=True) as producer,
    ):
        assert await producer.complete_transaction(earlier)
        producer.begin_transaction()
        await producer.send("topic", b"w")
        await producer.prepare_transaction()
        assert await admin.transactions.keep(earlier) is None
        assert coordinator_v2.transaction().state != "Ongoing"
    assert coordinator_v2.committed == {P0: [b"v"]}


@pytest.mark.parametrize("commits", [True, False])
async def test_s121_a_former_keeper_learns_of_the_new_owner(coordinator_v2: FakeCoordinator, commits: bool) -> None:
    """After this client kept the transaction, another client has kept it. The former keeper must get an error, because
    otherwise its abort
    would be reported as done although the transaction stays open without a timeout.
    """
    prepared = await prepared_one(coordinator_v2)
    async with Admin(coordinator_v2.broker.address) as admin:
        first, second = [await admin.transactions.keep(prepared) for _ in range(2)]
        assert first is not None
        assert second is not None
        with pytest.raises(ProducerFenced, match="is open, and another process has taken it over"):
            await admin.transactions.end(first, commits=commits)
        assert await admin.transactions.end(second, commits=commits)
        assert await admin.transactions.end(first, commits=commits) is not commits, "it is over: nobody has it"
    assert coordinator_v2.committed == ({P0: [b"v"]} if commits else {})


async def test_s121_an_operator_commits_an_abandoned_transaction(coordinator_v2: FakeCoordinator) -> None:
    prepared = await prepared_one(coordinator_v2)
    async with Admin(coordinator_v2.broker.address) as admin:
        await admin.transactions.commit("t")
        with pytest.raises(KafkaError, match="no open transaction: CompleteCommit"):
            await admin.transactions.commit("t")
    assert coordinator_v2.committed == {P0: [b"v"]}
    async with started(coordinator_v2, two_phase_commit=True) as producer:
        assert await producer.complete_transaction(prepared) is None


async def test_s121_an_operator_aborts_a_kept_transaction_by_fencing(coordinator_v2: FakeCoordinator) -> None:
    await prepared_one(coordinator_v2)
    async with Admin(coordinator_v2.broker.address) as admin:
        await admin.transactions.fence(["t"])
    request = coordinator_v2.broker.requests_of(InitProducerIdRequest)[-1]
    assert request.transaction_timeout_ms <= 60_000  # the coordinator would refuse a timeout of 2^31 - 1 ms
    assert coordinator_v2.committed == {}


async def test_s121_an_admin_needs_a_broker_with_two_phase_commit(coordinator_v2: FakeCoordinator) -> None:
    prepared = await prepared_one(coordinator_v2)
    coordinator_v2.broker.max_versions[ApiKey.INIT_PRODUCER_ID] = 5
    async with Admin(coordinator_v2.broker.address) as admin:
        with pytest.raises(UnsupportedVersion, match=r"transaction\.two\.phase\.commit\.enable"):
            await admin.transactions.keep(prepared)
        with pytest.raises(UnsupportedVersion):
            await admin.transactions.commit("t")
        assert await admin.transactions.end(prepared, commits=True)


def test_s121_a_prepared_transaction_is_known_by_the_pair_of_its_records() -> None:
    assert PreparedTransaction("t", 5, 6, True).producer == ProducerIdAndEpoch(5, 6)
