"""Each state transition of transactions without a timeout, and of open transactions that a new producer keeps (S120,
KIP-939).
"""

from __future__ import annotations

import pytest
from tests.support.transactions import P0, P1, TIMEOUT_MS, TXN, V1, V2, TransactionDriver, begun, exhausted

from oncelog_broker.coordinator.transaction import records
from oncelog_broker.coordinator.transaction.config import TransactionConfig
from oncelog_broker.coordinator.transaction.machine import Granted
from oncelog_broker.coordinator.transaction.metadata import (
    EXHAUSTED_EPOCH,
    FENCING_EPOCH,
    NO_EPOCH,
    NO_TIMEOUT_MS,
    TopicPartition,
    TransactionMetadata,
)
from oncelog_broker.coordinator.transaction.states import TransactionState
from oncelog_protocol.coordinator_records.transaction_state import TransactionLogValue
from oncelog_protocol.coordinator_records.versioned import decode_versioned
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch

S = TransactionState
LONGER_THAN_ANY_TIMEOUT_SECONDS = 30 * 24 * 3600
"""A timeout has at most 2^31 - 1 ms, which are less than 25 days."""


def producer(epoch: int, producer_id: int = 1000) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(producer_id, epoch)


def kept(driver: TransactionDriver, version: int = V2) -> tuple[ProducerIdAndEpoch, ProducerIdAndEpoch]:
    """Keep an open transaction; return the producer id and epoch of its records, and those of the new owner."""
    wrote = begun(driver, version)
    granted = driver.init_two_phase()
    assert granted.kept_open == wrote
    return wrote, granted.producer


# --- the permitted owners


def test_s120_without_the_setting_enable_2pc_is_refused_as_in_kafka() -> None:
    driver = TransactionDriver(TransactionConfig())
    assert driver.init_two_phase() is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert driver.init_two_phase(two_phase=False) is ErrorCode.UNSUPPORTED_VERSION
    assert driver.log == []
    assert driver.init() == producer(0)


# --- transactions without a timeout


def test_s120_a_two_phase_transaction_never_times_out(driver: TransactionDriver) -> None:
    granted = driver.init_two_phase()
    assert granted == Granted(producer(0))
    assert driver.metadata.timeout_ms == NO_TIMEOUT_MS
    driver.add(granted.producer, P0, version=V2)
    assert (driver.machine.open_transactions, driver.machine.open_without_timeout) == (1, 1)
    driver.advance(LONGER_THAN_ANY_TIMEOUT_SECONDS)
    assert driver.abort_timed_out() == []
    driver.reload()
    assert driver.abort_timed_out() == []
    assert driver.expire() == 0
    assert driver.end(granted.producer, version=V2) == producer(1)


def test_s120_the_log_of_a_two_phase_transaction_has_kafkas_largest_timeout(driver: TransactionDriver) -> None:
    driver.init_two_phase()
    value = driver.log[-1][1]
    assert value is not None
    assert decode_versioned(TransactionLogValue, value).transaction_timeout_ms == 2**31 - 1


def test_s120_the_next_plain_owner_has_a_timeout_again(driver: TransactionDriver) -> None:
    driver.init_two_phase()
    new = driver.init()
    assert driver.metadata.timeout_ms == TIMEOUT_MS
    driver.add(new)
    assert (driver.machine.open_transactions, driver.machine.open_without_timeout) == (1, 0)
    driver.advance(TIMEOUT_MS / 1000 + 1)
    assert driver.abort_timed_out() == [TXN]


@pytest.mark.parametrize("two_phase", [True, False])
def test_s120_an_owner_that_aborts_its_transaction_gets_the_timeout_that_it_requests(
    driver: TransactionDriver, two_phase: bool
) -> None:
    """The owner continues with its next epoch (KIP-360), with two-phase commit if it had a timeout, and the reverse."""
    old = driver.init(two_phase=not two_phase)
    driver.add(old, P0, version=V2)
    assert driver.init(old, two_phase=two_phase) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.complete()
    new = driver.init(old, two_phase=two_phase)
    assert new == producer(1)
    driver.add(new, P0, version=V2)
    driver.advance(LONGER_THAN_ANY_TIMEOUT_SECONDS)
    assert driver.abort_timed_out() == ([] if two_phase else [TXN])


def test_s120_keeping_takes_a_timeout_away_and_never_makes_it_shorter(driver: TransactionDriver) -> None:
    begun(driver, V2)
    driver.advance(TIMEOUT_MS / 1000 - 1)
    driver.init_two_phase()
    driver.advance(TIMEOUT_MS / 1000)
    assert driver.abort_timed_out() == []
    driver.init_two_phase(two_phase=False)  # the new owner is an operator, or a producer with a timeout of its own
    driver.advance(LONGER_THAN_ANY_TIMEOUT_SECONDS)
    assert driver.abort_timed_out() == []


def test_s120_a_plain_owner_begins_no_transaction_without_timeout(driver: TransactionDriver) -> None:
    """Only the right TwoPhaseCommit may permit a transaction that blocks readers for ever. The right Write must not
    suffice for a transaction without a timeout.
    """
    old = driver.init_two_phase().producer
    driver.add(old, P0, version=V2)
    owner = driver.init_two_phase(two_phase=False).producer
    driver.advance(LONGER_THAN_ANY_TIMEOUT_SECONDS)
    assert driver.abort_timed_out() == [], "what is kept has no timeout"
    after = driver.end(owner, version=V2)
    driver.complete()
    driver.add(after, P0, version=V2)
    assert (driver.machine.open_transactions, driver.machine.open_without_timeout) == (1, 0)
    driver.reload()
    driver.advance(TIMEOUT_MS / 1000 + 1)
    assert driver.abort_timed_out() == [TXN]


def test_s120_a_kept_transaction_without_two_phase_commit_times_out(driver: TransactionDriver) -> None:
    wrote = begun(driver, V2)
    granted = driver.init_two_phase(two_phase=False)
    driver.advance(TIMEOUT_MS / 1000 + 1)
    assert driver.abort_timed_out() == [TXN]
    (end,) = driver.complete()
    assert (end.producer, end.commits) == (producer(1), False)
    for late in (wrote, granted.producer):
        assert driver.end(late, commits=True, version=V2) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
    assert driver.init(granted.producer) == producer(2)


# --- keeping an open transaction


@pytest.mark.parametrize("state", [None, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_s120_keeping_without_an_open_transaction_is_a_plain_init(
    driver: TransactionDriver, state: TransactionState | None
) -> None:
    if state is not None:
        first = driver.init()
        if state is not S.EMPTY:
            driver.run(first, commits=state is S.COMPLETE_COMMIT, version=V2)
        assert driver.state is state
    before = driver.machine.transactions.get(TXN)
    granted = driver.init_two_phase()
    assert granted == Granted(producer(0 if before is None else before.producer_epoch + 1))
    assert driver.state is S.EMPTY


def test_s120_an_open_transaction_is_kept_as_it_is(driver: TransactionDriver) -> None:
    wrote = begun(driver, V2)
    before = driver.metadata
    assert driver.init_two_phase() == Granted(producer(1), kept_open=wrote)
    after = driver.metadata
    assert (after.state, after.producer, after.partitions) == (S.ONGOING, wrote, {P0, P1})
    assert after.start_timestamp == before.start_timestamp
    assert after.client == producer(1)
    assert driver.ends == []


def test_s120_each_owner_fences_its_predecessor(driver: TransactionDriver) -> None:
    wrote = begun(driver, V2)
    owners = [driver.init_two_phase() for _ in range(3)]
    assert owners == [Granted(producer(epoch), kept_open=wrote) for epoch in (1, 2, 3)]
    for fenced in (wrote, producer(1), producer(2)):
        assert driver.end(fenced, version=V2) is ErrorCode.PRODUCER_FENCED
        assert driver.end(fenced, commits=False, version=V1) is ErrorCode.PRODUCER_FENCED
        assert driver.init(fenced) is ErrorCode.PRODUCER_FENCED
        assert driver.init_two_phase(fenced) is ErrorCode.PRODUCER_FENCED
        assert driver.add(fenced, P0, version=V2) is ErrorCode.PRODUCER_FENCED
        assert driver.verify(fenced) is ErrorCode.PRODUCER_FENCED
    assert driver.state is S.ONGOING
    assert driver.end(producer(3), version=V2) == producer(4)


def test_s120_the_new_owner_can_only_end_the_kept_transaction(driver: TransactionDriver) -> None:
    """The partitions know only the producer id and epoch of the records, so no partition can be added with another
    producer id and epoch.
    """
    _, owner = kept(driver)
    assert driver.add(owner, TopicPartition("other", 0), version=V2) is ErrorCode.INVALID_TXN_STATE
    assert driver.verify(owner, P0) is ErrorCode.INVALID_TXN_STATE
    assert driver.metadata.partitions == {P0, P1}


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("reloads", [False, True])
def test_s120_a_kept_transaction_is_ended_once_by_the_recorded_pair(
    driver: TransactionDriver, commits: bool, reloads: bool
) -> None:
    wrote, owner = kept(driver)
    if reloads:
        driver.reload()
    assert driver.end(owner, commits, version=V2) == producer(2)
    assert driver.end(owner, commits, version=V2) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.add(producer(2), version=V2) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.init_two_phase() is ErrorCode.CONCURRENT_TRANSACTIONS
    if reloads:
        driver.reload()
    (end,) = driver.complete()
    assert (end.producer, end.commits, end.partitions) == (producer(1), commits, {P0, P1})
    assert end.transaction_version == V2
    if reloads:
        driver.reload()
    assert driver.end(owner, commits, version=V2) == producer(2)  # the response was lost
    assert driver.end(owner, not commits, version=V2) is ErrorCode.INVALID_TXN_STATE
    assert driver.end(wrote, commits, version=V2) is ErrorCode.PRODUCER_FENCED
    assert driver.complete() == []
    assert driver.run(producer(2), version=V2) == producer(3)


def test_s120_a_late_end_does_not_end_the_owners_next_transaction(driver: TransactionDriver) -> None:
    """The owner gets a second producer epoch, because otherwise it would continue with the same id and epoch that ended
    the kept transaction.
    """
    _, owner = kept(driver)
    after = driver.end(owner, commits=True, version=V2)
    driver.complete()
    driver.add(after, P0, version=V2)
    assert driver.end(owner, commits=True, version=V2) is ErrorCode.PRODUCER_FENCED
    assert driver.state is S.ONGOING


def test_s120_a_plain_init_aborts_the_kept_transaction(driver: TransactionDriver) -> None:
    _, owner = kept(driver)
    assert driver.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.end(owner, commits=True, version=V2) is not ErrorCode.NONE
    (end,) = driver.complete()
    assert (end.producer, end.commits) == (producer(1), False)
    assert driver.init() == producer(3)


def test_s120_the_owner_of_a_kept_transaction_may_continue_by_kip_360(driver: TransactionDriver) -> None:
    _, owner = kept(driver)
    assert driver.init(owner) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.complete()
    assert driver.init(owner) == producer(2)
    assert driver.init(owner) == producer(2)


def test_s120_transactions_of_before_v2_are_kept_too(driver: TransactionDriver) -> None:
    wrote, owner = kept(driver, V1)
    assert driver.end(wrote, version=V1) is ErrorCode.PRODUCER_FENCED
    assert driver.end(owner, version=V1) == owner
    (end,) = driver.complete()
    assert (end.producer, end.transaction_version) == (wrote, V1)
    assert driver.run(owner, version=V1) == owner


def test_s120_a_transaction_of_before_v2_may_be_ended_under_v2(driver: TransactionDriver) -> None:
    """The methods `admin.transactions.keep` and `commit` end a transaction under V2, whichever client began it."""
    _, owner = kept(driver, V1)
    assert driver.end(owner, version=V2) == producer(2)
    (end,) = driver.complete()
    assert (end.producer, end.transaction_version) == (producer(1), V2)
    assert driver.end(owner, version=V2) == producer(2)


# --- the logged records


def test_s120_s32_the_second_pair_is_in_tags_1_and_3(driver: TransactionDriver) -> None:
    kept(driver)
    value = driver.log[-1][1]
    assert value is not None
    logged = decode_versioned(TransactionLogValue, value)
    assert (logged.producer_id, logged.producer_epoch) == (1000, 0)
    assert (logged.next_producer_id, logged.next_producer_epoch) == (1000, 1)


def test_s120_s32_the_second_pair_survives() -> None:
    metadata = TransactionMetadata(
        "a", 1, 2, NO_TIMEOUT_MS, S.PREPARE_COMMIT, frozenset({P1}), 4, 5, previous_producer_id=6, next_producer_id=7,
        client_transaction_version=2, next_producer_epoch=8,
    )  # fmt: skip
    encoded = records.encode(records.TransactionRecord("a", metadata))
    assert encoded.value is not None
    assert records.decode(encoded.key, encoded.value) == ("a", metadata)


def test_s120_a_failed_append_takes_nothing_over(driver: TransactionDriver) -> None:
    wrote = begun(driver, V2)
    driver.fail_appends = True
    assert driver.init_two_phase() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.fail_appends = False
    assert driver.metadata.client == wrote
    assert driver.end(wrote, version=V2) == producer(1)


# --- exhausted epochs


def test_s120_s35_an_exhausted_owner_gets_another_producer_id(driver: TransactionDriver) -> None:
    wrote = exhausted(driver, S.ONGOING)
    granted = driver.init_two_phase()
    assert granted == Granted(producer(0), kept_open=wrote)
    assert driver.end(wrote, version=V2) is ErrorCode.PRODUCER_FENCED
    assert driver.end(granted.producer, version=V2) == producer(1)
    driver.reload()
    (end,) = driver.complete()
    assert end.producer == ProducerIdAndEpoch(7, FENCING_EPOCH)
    assert driver.metadata.producer == producer(1)
    assert driver.end(granted.producer, version=V2) == producer(1)


def test_s120_s35_an_owner_exhausted_by_take_overs_ends_with_a_third_producer_id(driver: TransactionDriver) -> None:
    wrote = begun(driver, V2)
    driver.put(driver.metadata._replace(next_producer_id=2000, next_producer_epoch=EXHAUSTED_EPOCH))
    owner = producer(EXHAUSTED_EPOCH, 2000)
    after = driver.end(owner, version=V2)
    assert after == producer(0, 1001)
    driver.reload()
    assert driver.end(owner, version=V2) is ErrorCode.CONCURRENT_TRANSACTIONS
    (end,) = driver.complete()
    assert end.producer == wrote._replace(epoch=1)
    assert driver.end(owner, version=V2) == after  # the producer repeats the request, because the response was lost
    assert driver.run(after, version=V2) == producer(1, 1001)


def test_s120_no_two_phase_state_stays_after_the_end(driver: TransactionDriver) -> None:
    _, owner = kept(driver)
    driver.end(owner, version=V2)
    driver.complete()
    assert driver.metadata.next_producer_epoch == NO_EPOCH
    assert not driver.metadata.is_taken_over
