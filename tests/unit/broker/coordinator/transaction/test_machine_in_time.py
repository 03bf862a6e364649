"""The behaviour of the transaction machine over time: timeouts, expiry, restarts (S42-S44, E13, E18, E20)."""

from __future__ import annotations

import pytest
from tests.support.transactions import (
    TIMEOUT_MS,
    TXN,
    V1,
    V2,
    TransactionDriver,
    begun,
)

from oncelog_broker.coordinator.transaction.config import TransactionConfig
from oncelog_broker.coordinator.transaction.machine import MAX_EXPIRED_PER_STEP
from oncelog_broker.coordinator.transaction.metadata import TransactionMetadata
from oncelog_broker.coordinator.transaction.states import (
    TransactionState,
)
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch

S = TransactionState
DAY_SECONDS = 24 * 3600


@pytest.mark.parametrize("timeout_ms", [900_001, 0, -1])
def test_s42_e31_a_timeout_over_the_brokers_is_refused(driver: TransactionDriver, timeout_ms: int) -> None:
    assert driver.init(timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert not driver.log


# --- S42: transaction timeouts


@pytest.mark.parametrize("version", [V1, V2])
def test_s42_e18_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    driver: TransactionDriver, version: int
) -> None:
    producer = begun(driver, version)
    driver.advance(TIMEOUT_MS / 1000)
    assert driver.abort_timed_out() == []
    driver.advance(0.01)
    assert driver.abort_timed_out() == [TXN]
    assert driver.add(producer, version=version) is not ErrorCode.NONE
    (end,) = driver.complete()
    assert (end.producer, end.commits) == (producer._replace(epoch=1), False)  # the epoch rises by one in V1 and V2
    assert driver.add(producer, version=version) is ErrorCode.PRODUCER_FENCED
    assert driver.end(producer, version=V1) is ErrorCode.PRODUCER_FENCED
    assert driver.abort_timed_out() == []


@pytest.mark.parametrize("version", [V1, V2])
def test_s42_a_timed_out_producer_continues_if_no_other_took_over(driver: TransactionDriver, version: int) -> None:
    producer = begun(driver, version)
    driver.advance(TIMEOUT_MS)
    driver.abort_timed_out()
    assert driver.init(producer) is ErrorCode.CONCURRENT_TRANSACTIONS  # refused, because the abort must complete first
    driver.complete()
    after = driver.init(producer)
    assert after == producer._replace(epoch=1)
    assert driver.run(after) == after


def test_s42_a_timed_out_producer_is_fenced_if_another_took_over(driver: TransactionDriver) -> None:
    producer = begun(driver)
    driver.advance(TIMEOUT_MS)
    driver.abort_timed_out()
    driver.complete()
    new = driver.init()
    assert driver.init(producer) is ErrorCode.PRODUCER_FENCED
    assert driver.run(new) == new


def test_s42_a_transaction_ended_in_time_is_not_aborted(driver: TransactionDriver) -> None:
    driver.end(begun(driver))
    driver.advance(TIMEOUT_MS)
    assert driver.abort_timed_out() == []


def test_s42_a_leap_of_the_wall_clock_aborts_nothing(driver: TransactionDriver) -> None:
    begun(driver)
    driver.wall_offset_ms = 3_600_000
    assert driver.abort_timed_out() == []


def test_s42_the_time_before_a_reload_counts(driver: TransactionDriver) -> None:
    begun(driver)
    driver.advance(TIMEOUT_MS / 1000 - 1)
    driver.reload()
    assert driver.abort_timed_out() == []
    driver.advance(2)
    assert driver.abort_timed_out() == [TXN]


# --- S43: expiry of transactional ids


def test_s43_idle_ids_are_forgotten(driver: TransactionDriver) -> None:
    producer = driver.run(driver.init())
    driver.advance(7 * DAY_SECONDS - 1)
    assert driver.expire() == 0
    driver.advance(1)
    assert driver.expire() == 1
    assert driver.log[-1][1] is None
    assert TXN not in driver.machine.transactions
    assert driver.add(producer) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.init() == ProducerIdAndEpoch(1001, 0)


@pytest.mark.parametrize("ends", [False, True])
def test_s43_an_id_with_an_unfinished_transaction_does_not_expire(driver: TransactionDriver, ends: bool) -> None:
    producer = begun(driver)
    if ends:
        driver.end(producer)
    driver.advance(30 * DAY_SECONDS)
    assert driver.expire() == 0


def test_s43_e13_many_ids_expire_in_batches() -> None:
    driver = TransactionDriver(TransactionConfig(id_expiration_ms=1000))
    for number in range(MAX_EXPIRED_PER_STEP + 10):
        driver.init(name=f"id-{number}")
    driver.advance(2)
    assert [driver.expire(), driver.expire(), driver.expire()] == [MAX_EXPIRED_PER_STEP, 10, 0]


def test_s43_e13_an_epoch_of_minus_one_expires() -> None:
    """A failed first InitProducerId left an id with epoch -1 in Kafka's log (KAFKA-14880); such an id expires like any
    other.
    """
    driver = TransactionDriver()
    driver.put(TransactionMetadata(TXN, 7, -1, TIMEOUT_MS, last_update_timestamp=driver.now_ms()))
    driver.advance(8 * DAY_SECONDS)
    assert driver.expire() == 1


# --- S44: recovery from the log


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("commits", [True, False])
def test_s44_e20_a_decided_transaction_is_finished_after_a_reload(
    driver: TransactionDriver, version: int, commits: bool
) -> None:
    producer = begun(driver, version)
    after = driver.end(producer, commits, version)
    before = driver.ends.copy()
    driver.reload()
    assert driver.ends == before
    driver.complete()
    assert driver.end(producer, commits, version) == after


def test_s44_an_open_transaction_stays_open(driver: TransactionDriver) -> None:
    producer = begun(driver)
    driver.reload()
    assert (driver.state, driver.ends) == (S.ONGOING, [])
    assert driver.end(producer) == producer


def test_s44_a_retry_of_init_is_unknown_after_a_reload(driver: TransactionDriver) -> None:
    first = driver.init()
    driver.init(first)
    driver.reload()
    # The producer is fenced, as in Kafka, because the log does not show that the producer's request is a retry.
    assert driver.init(first) is ErrorCode.PRODUCER_FENCED
