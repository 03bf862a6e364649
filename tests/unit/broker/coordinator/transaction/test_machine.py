"""The rules of the transaction machine, one by one (S33-S44, E8, E12, E13, E17-E21)."""

from __future__ import annotations

from itertools import product

import pytest
from tests.support.transactions import (
    P0,
    P1,
    TIMEOUT_MS,
    TXN,
    V1,
    V2,
    TransactionDriver,
    begun,
    exhausted,
    legal_history,
)

from oncelog_broker.coordinator.effects import Encoded
from oncelog_broker.coordinator.transaction import records
from oncelog_broker.coordinator.transaction.metadata import EXHAUSTED_EPOCH, FENCING_EPOCH, TransactionMetadata
from oncelog_broker.coordinator.transaction.states import (
    LEGAL_PREVIOUS,
    IllegalTransition,
    TransactionState,
    check_transition,
)
from oncelog_protocol.coordinator_records.transaction_state import TransactionLogKey, TransactionLogValue
from oncelog_protocol.coordinator_records.versioned import encode_versioned
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch

S = TransactionState


# --- S32: the format of the records


def test_s32_key_and_value_are_kafkas(driver: TransactionDriver) -> None:
    begun(driver)
    key, value = driver.log[-1]
    assert key == b"\0\0\0\3txn"
    assert value is not None
    assert value[:2] == b"\0\1"  # version
    assert value[2:10] == (1000).to_bytes(8, "big")  # producer id
    assert value[10:12] == b"\0\0"  # epoch
    assert value[12:16] == TIMEOUT_MS.to_bytes(4, "big")
    assert value[16] == S.ONGOING
    assert value[17:27] == b"\2\7orders\3" + b"\0"  # one topic, two partitions


def test_s32_v0_is_read() -> None:
    schema = TransactionLogValue.PartitionsSchema
    value = TransactionLogValue(
        producer_id=5,
        producer_epoch=6,
        transaction_timeout_ms=7,
        transaction_status=2,
        transaction_partitions=[schema(topic="orders", partition_ids=[0, 1])],
        transaction_last_update_timestamp_ms=8,
        transaction_start_timestamp_ms=9,
    )
    found = records.decode(encode_versioned(TransactionLogKey(transactional_id="a"), 0), encode_versioned(value, 0))
    assert found is not None
    assert found.metadata == TransactionMetadata("a", 5, 6, 7, S.PREPARE_COMMIT, frozenset({P0, P1}), 9, 8)


def test_s32_tags_survive(driver: TransactionDriver) -> None:
    metadata = TransactionMetadata(
        "a", 1, 2, 3, S.PREPARE_ABORT, frozenset({P1}), 4, 5,
        previous_producer_id=6, next_producer_id=7, client_transaction_version=2,
    )  # fmt: skip
    encoded = records.encode(records.TransactionRecord("a", metadata))
    assert encoded.value is not None
    assert records.decode(encoded.key, encoded.value) == ("a", metadata)


def test_s32_a_tombstone_takes_the_id_away() -> None:
    encoded = records.encode(records.TransactionRecord("a", None))
    assert encoded == Encoded(b"\0\0\0\1a", None)
    assert records.decode(*encoded) == ("a", None)


# --- S33: the table of states


LEGAL = {
    S.EMPTY: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.ONGOING: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.PREPARE_COMMIT: {S.ONGOING},
    S.PREPARE_ABORT: {S.ONGOING, S.PREPARE_EPOCH_FENCE, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
    S.COMPLETE_ABORT: {S.PREPARE_ABORT},
    S.DEAD: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.PREPARE_EPOCH_FENCE: {S.ONGOING},
}
"""The legal state transitions that rule S33 lists, and the abort of an empty transaction, which KIP-890 added."""


@pytest.mark.parametrize(("before", "after"), list(product(S, S)), ids=lambda state: state.shown)
def test_s33_only_what_the_table_allows_follows(before: TransactionState, after: TransactionState) -> None:
    if before in LEGAL[after]:
        check_transition(TXN, before, after)
    else:
        with pytest.raises(IllegalTransition):
            check_transition(TXN, before, after)


def test_s33_numbers_are_those_of_the_log() -> None:
    assert [state.shown for state in sorted(S)] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    ]  # fmt: skip


def test_s33_a_fence_is_never_logged_as_such(driver: TransactionDriver) -> None:
    begun(driver)
    driver.init()
    assert driver.states == [S.EMPTY, S.ONGOING, S.PREPARE_ABORT]
    assert legal_history(driver.states, LEGAL_PREVIOUS)


# --- S34: InitProducerId


def test_s34_the_first_producer_gets_epoch_0(driver: TransactionDriver) -> None:
    assert driver.init() == ProducerIdAndEpoch(1000, 0)
    assert driver.states == [S.EMPTY]


def test_s34_each_init_bumps_the_epoch(driver: TransactionDriver) -> None:
    producer = driver.init()
    assert driver.init() == ProducerIdAndEpoch(1000, 1)
    driver.run(ProducerIdAndEpoch(1000, 1))
    assert driver.init() == ProducerIdAndEpoch(1000, 2)
    assert driver.add(producer) is ErrorCode.PRODUCER_FENCED


def test_s34_an_open_transaction_is_aborted_first(driver: TransactionDriver) -> None:
    old = begun(driver)
    assert driver.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.state is S.PREPARE_ABORT
    assert driver.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    (end,) = driver.complete()
    assert (end.producer, end.commits, end.partitions) == (ProducerIdAndEpoch(1000, 1), False, {P0, P1})
    assert driver.init() == ProducerIdAndEpoch(1000, 2)
    assert driver.end(old) is ErrorCode.PRODUCER_FENCED


def test_s34_e12_a_failed_fence_bumps_nothing(driver: TransactionDriver) -> None:
    old = begun(driver)
    driver.fail_appends = True
    for _ in range(5):
        assert driver.init() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.fail_appends = False
    assert (driver.metadata.producer, driver.state) == (old, S.ONGOING)
    assert driver.end(old) == old


def test_s34_e17_kip_360_current_previous_other(driver: TransactionDriver) -> None:
    first = driver.init()
    second = driver.init(first)
    assert second == ProducerIdAndEpoch(1000, 1)
    logged = len(driver.log)
    assert driver.init(first) == second  # the repeated request gets the same response, and nothing is logged
    assert len(driver.log) == logged
    assert driver.init(second) == ProducerIdAndEpoch(1000, 2)
    assert driver.init(first) is ErrorCode.PRODUCER_FENCED
    assert driver.init(ProducerIdAndEpoch(999, 2)) is ErrorCode.PRODUCER_FENCED


def test_s34_e17_a_fenced_producer_cannot_continue(driver: TransactionDriver) -> None:
    old = driver.init()
    driver.init()
    assert driver.init(old) is ErrorCode.PRODUCER_FENCED


def test_s34_e17_a_late_duplicate_aborts_no_transaction(driver: TransactionDriver) -> None:
    first = driver.init()
    second = driver.init(first)
    driver.add(second)
    assert driver.init(first) is ErrorCode.PRODUCER_FENCED
    assert driver.state is S.ONGOING


def test_s34_e17_the_owner_of_an_open_transaction_continues_after_its_abort(driver: TransactionDriver) -> None:
    producer = begun(driver)
    assert driver.init(producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.complete()
    assert driver.init(producer) == ProducerIdAndEpoch(1000, 1)


@pytest.mark.parametrize("version", [V1, V2])
def test_s34_e17_a_late_duplicate_does_not_hide_the_outcome_of_a_transaction(
    driver: TransactionDriver, version: int
) -> None:
    first = driver.init()
    second = driver.init(first)
    driver.run(second, version=version)
    assert driver.init(first) is ErrorCode.PRODUCER_FENCED
    assert driver.end(second, version=version) in (second, second._replace(epoch=second.epoch + 1))


@pytest.mark.parametrize("version", [V1, V2])
def test_s34_e17_the_request_that_aborted_the_owners_transaction_is_complete_when_repeated(
    driver: TransactionDriver, version: int
) -> None:
    """The owner learns its next epoch only from the repeated request, so the state and the timeout must then be those
    after any other InitProducerId: EndTxn with the previous epoch must not be taken for a retry, which would return
    the next epoch to a zombie.
    """
    producer = begun(driver, version)
    assert driver.init(producer, TIMEOUT_MS * 2) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.complete()
    after = producer._replace(epoch=producer.epoch + 1)
    assert driver.init(producer, TIMEOUT_MS * 2) == after
    assert (driver.state, driver.metadata.timeout_ms) == (S.EMPTY, TIMEOUT_MS * 2)
    logged = len(driver.log)
    assert driver.init(producer, TIMEOUT_MS * 2) == after  # the repeated request changes nothing
    assert len(driver.log) == logged
    for commits in (True, False):
        assert driver.end(producer, commits, version=V2) is ErrorCode.PRODUCER_FENCED
    assert driver.run(after, version=version) in (after, after._replace(epoch=after.epoch + 1))


def test_s34_kip_360_for_an_id_that_has_expired(driver: TransactionDriver) -> None:
    assert driver.init(ProducerIdAndEpoch(5, 5)) == ProducerIdAndEpoch(1000, 0)


# --- S35: exhausted epochs


def test_s35_used_up_epochs_give_a_new_producer_id(driver: TransactionDriver) -> None:
    old = exhausted(driver)
    assert driver.init() == ProducerIdAndEpoch(1000, 0)
    assert driver.init(old) is ErrorCode.PRODUCER_FENCED  # another producer took over the transactional id


def test_s35_the_last_but_one_epoch_is_not_yet_exhausted(driver: TransactionDriver) -> None:
    exhausted(driver, epoch=EXHAUSTED_EPOCH - 1)
    assert driver.init() == ProducerIdAndEpoch(7, EXHAUSTED_EPOCH)


def test_s35_a_retry_with_the_old_id_is_recognised(driver: TransactionDriver) -> None:
    old = exhausted(driver)
    new = driver.init(old)
    assert new == ProducerIdAndEpoch(1000, 0)
    assert driver.init(old) == new


def test_s35_the_last_epoch_can_be_fenced(driver: TransactionDriver) -> None:
    exhausted(driver, S.ONGOING)
    assert driver.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.metadata.producer == ProducerIdAndEpoch(7, FENCING_EPOCH)
    driver.complete()
    assert driver.init() == ProducerIdAndEpoch(1000, 1)


def test_s35_no_producer_writes_with_the_fencing_epoch(driver: TransactionDriver) -> None:
    old = exhausted(driver, S.ONGOING)
    driver.init(old)
    driver.complete()
    assert driver.init(old) == ProducerIdAndEpoch(1000, 0)
    assert driver.init(old) == ProducerIdAndEpoch(1000, 0)


def test_s35_s39_v2_end_at_the_last_epoch_changes_the_producer_id(driver: TransactionDriver) -> None:
    old = exhausted(driver, S.ONGOING)
    new = driver.end(old, version=V2)
    assert new == ProducerIdAndEpoch(1000, 0)
    assert driver.metadata.next_producer_id == 1000
    assert driver.add(new, version=V2) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.reload()  # the next producer id is already in the log
    assert driver.end(old, version=V2) is ErrorCode.CONCURRENT_TRANSACTIONS
    (end,) = driver.complete()
    assert end.producer == ProducerIdAndEpoch(7, 32767)
    assert driver.end(old, version=V2) == new  # the producer repeats the request, because the response was lost
    assert driver.run(new, version=V2) == ProducerIdAndEpoch(1000, 1)


@pytest.mark.parametrize("version", [V1, V2])
def test_s35_s42_a_timeout_at_the_last_epoch_changes_the_producer_id(driver: TransactionDriver, version: int) -> None:
    old = exhausted(driver)._replace(epoch=EXHAUSTED_EPOCH)
    assert driver.add(old, version=version) is ErrorCode.NONE
    driver.advance(TIMEOUT_MS / 1000 + 1)
    assert driver.abort_timed_out() == [TXN]
    (end,) = driver.complete()
    assert end.producer == ProducerIdAndEpoch(7, FENCING_EPOCH)
    assert driver.metadata.producer == ProducerIdAndEpoch(1000, 0)
    assert driver.init(old) == ProducerIdAndEpoch(1000, 0)


def test_s35_an_abort_after_the_timeout_at_the_last_epoch_continues_as_another_producer(
    driver: TransactionDriver,
) -> None:
    old = exhausted(driver)
    assert driver.add(old, version=V2) is ErrorCode.NONE
    driver.advance(TIMEOUT_MS / 1000 + 1)
    driver.abort_timed_out()
    assert driver.end(old, commits=False, version=V2) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.complete()
    new = driver.end(old, commits=False, version=V2)
    assert new == ProducerIdAndEpoch(1000, 0)
    assert driver.run(new, version=V2) == ProducerIdAndEpoch(1000, 1)


@pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING, S.COMPLETE_ABORT])
def test_s35_no_producer_owns_the_fencing_epoch(driver: TransactionDriver, state: TransactionState) -> None:
    """Kafka once logged the fencing epoch, which is the last possible one, as the transactional id's epoch, and even
    returned that epoch to a producer.
    """
    claimed = exhausted(driver, state, FENCING_EPOCH)
    driver.put(driver.metadata._replace(client_transaction_version=V2))
    for version in (V1, V2):
        assert driver.add(claimed, version=version) is ErrorCode.PRODUCER_FENCED
        for asking in (claimed, claimed._replace(epoch=EXHAUSTED_EPOCH)):
            assert driver.end(asking, commits=False, version=version) is ErrorCode.PRODUCER_FENCED
    assert driver.init(claimed) is ErrorCode.PRODUCER_FENCED
    assert driver.verify(claimed) is ErrorCode.PRODUCER_FENCED


def test_s35_a_transaction_open_at_the_fencing_epoch_can_be_aborted(driver: TransactionDriver) -> None:
    exhausted(driver, S.ONGOING, FENCING_EPOCH)
    driver.put(driver.metadata._replace(client_transaction_version=V2))
    assert driver.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    (end,) = driver.complete()
    assert end.producer == ProducerIdAndEpoch(7, FENCING_EPOCH)
    # Under transactions V2 a partition accepts only a marker above the producer's epoch, and none is above
    # FENCING_EPOCH.
    assert end.transaction_version == V1
    assert driver.init() == ProducerIdAndEpoch(1000, 1)


# --- S36: partitions of a transaction


def test_s36_the_first_partition_begins_the_transaction(driver: TransactionDriver) -> None:
    producer = driver.init()
    driver.advance(5)
    assert driver.add(producer, P0) is ErrorCode.NONE
    started = driver.metadata.start_timestamp
    assert started == driver.now_ms()
    driver.advance(5)
    assert driver.add(producer, P1) is ErrorCode.NONE
    assert (driver.metadata.partitions, driver.metadata.start_timestamp) == ({P0, P1}, started)


def test_s36_partitions_that_are_in_it_are_not_logged_again(driver: TransactionDriver) -> None:
    producer = begun(driver)
    logged = len(driver.log)
    assert driver.add(producer, P0) is ErrorCode.NONE
    assert len(driver.log) == logged


@pytest.mark.parametrize("version", [V1, V2])
def test_s36_bad_requests_to_add_partitions_are_refused(driver: TransactionDriver, version: int) -> None:
    assert driver.add(ProducerIdAndEpoch(1, 0), version=version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer = driver.init()
    assert driver.add(ProducerIdAndEpoch(1, 0), version=version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.add(producer._replace(epoch=1), version=version) is ErrorCode.PRODUCER_FENCED
    driver.add(producer, version=version)
    after = driver.end(producer, version=version)
    assert driver.add(after, version=version) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.complete()
    assert driver.add(after, version=version) is ErrorCode.NONE


def test_s36_a_verify_only_request_adds_nothing(driver: TransactionDriver) -> None:
    producer = driver.init()
    driver.add(producer, P0)
    logged = len(driver.log)
    assert driver.verify(producer, P0, P1) == {P0: ErrorCode.NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}
    assert driver.verify(producer._replace(epoch=4)) is ErrorCode.PRODUCER_FENCED
    assert driver.verify(ProducerIdAndEpoch(4, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    driver.end(producer)
    assert driver.verify(producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.complete()
    assert driver.verify(producer) == {P0: ErrorCode.TRANSACTION_ABORTABLE}
    assert len(driver.log) == logged + 2


# --- S38: EndTxn requests


@pytest.mark.parametrize("commits", [True, False])
def test_s38_the_answer_comes_with_the_decision(driver: TransactionDriver, commits: bool) -> None:
    producer = begun(driver)
    assert driver.end(producer, commits) == producer
    assert driver.state is (S.PREPARE_COMMIT if commits else S.PREPARE_ABORT)
    (end,) = driver.complete()
    assert (end.commits, end.partitions) == (commits, {P0, P1})
    assert driver.state is (S.COMPLETE_COMMIT if commits else S.COMPLETE_ABORT)
    assert not driver.metadata.partitions


@pytest.mark.parametrize("commits", [True, False])
def test_s38_e20_e21_retries_of_v1(driver: TransactionDriver, commits: bool) -> None:
    producer = begun(driver)
    driver.end(producer, commits)
    assert driver.end(producer, commits) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.end(producer, not commits) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.reload()
    driver.complete()
    assert driver.end(producer, commits) == producer
    assert driver.end(producer, not commits) is ErrorCode.INVALID_TXN_STATE


def test_s38_ending_without_a_transaction_is_refused_in_v1(driver: TransactionDriver) -> None:
    assert driver.end(ProducerIdAndEpoch(1, 1)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer = driver.init()
    assert driver.end(producer, True) is ErrorCode.INVALID_TXN_STATE
    assert driver.end(producer, False) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [V1, V2])
def test_s38_e19_only_the_current_epoch_ends(driver: TransactionDriver, version: int) -> None:
    producer = begun(driver, version)
    for epoch in (producer.epoch + 1, producer.epoch - 1):
        assert driver.end(producer._replace(epoch=epoch), version=version) is ErrorCode.PRODUCER_FENCED
    assert driver.end(ProducerIdAndEpoch(1, 0), version=version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.state is S.ONGOING


def test_s38_e26_a_decision_that_is_not_logged_is_none(driver: TransactionDriver) -> None:
    producer = begun(driver)
    driver.fail_appends = True
    assert driver.end(producer) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.fail_appends = False
    assert (driver.state, driver.ends) == (S.ONGOING, [])
    assert driver.end(producer, False) == producer


def test_e8_markers_written_twice_complete_once(driver: TransactionDriver) -> None:
    driver.end(begun(driver))
    (end,) = driver.ends
    assert driver.carry_out(driver.machine.complete(end)) == 1
    assert driver.carry_out(driver.machine.complete(end)) == 0


def test_e8_the_markers_of_a_previous_transaction_complete_nothing(driver: TransactionDriver) -> None:
    after = driver.end(begun(driver, V2), version=V2)
    (before,) = driver.complete()
    driver.add(after, version=V2)
    driver.end(after, version=V2)
    assert driver.carry_out(driver.machine.complete(before)) == 0
    assert driver.metadata.state is TransactionState.PREPARE_COMMIT


# --- S39, T7: transactions V2 use the next epoch


def test_s39_v2_every_transaction_has_its_epoch(driver: TransactionDriver) -> None:
    producer = begun(driver, V2)
    after = driver.end(producer, version=V2)
    assert after == producer._replace(epoch=1)
    (end,) = driver.complete()
    assert (end.producer, end.transaction_version) == (after, V2)  # the marker fences late batches
    assert driver.metadata.producer == after
    assert driver.run(after, version=V2) == producer._replace(epoch=2)


def test_s39_v1_markers_carry_the_epoch_of_the_transaction(driver: TransactionDriver) -> None:
    producer = begun(driver)
    driver.end(producer)
    assert driver.ends[0].producer == producer


@pytest.mark.parametrize("commits", [True, False])
def test_t7_v2_retries_are_known_by_the_epoch_before(driver: TransactionDriver, commits: bool) -> None:
    producer = begun(driver, V2)
    after = driver.end(producer, commits, V2)
    assert driver.end(producer, commits, V2) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.complete()
    logged = len(driver.log)
    assert driver.end(producer, commits, V2) == after
    assert driver.end(producer, not commits, V2) is ErrorCode.INVALID_TXN_STATE
    assert len(driver.log) == logged


def test_t7_e1_v2_an_old_end_does_not_end_the_next_transaction(driver: TransactionDriver) -> None:
    first = begun(driver, V2)
    second = driver.end(first, version=V2)
    driver.complete()
    driver.add(second, P1, version=V2)
    assert driver.end(first, True, V2) is ErrorCode.PRODUCER_FENCED
    assert driver.end(first, False, V2) is ErrorCode.PRODUCER_FENCED
    assert (driver.state, driver.metadata.partitions) == (S.ONGOING, {P1})


@pytest.mark.parametrize("before", [None, True, False])
def test_t7_v2_an_abort_may_be_empty_a_commit_not(driver: TransactionDriver, before: bool | None) -> None:
    producer = driver.init()
    if before is not None:
        producer = driver.run(producer, before, V2)
    assert driver.end(producer, True, V2) is ErrorCode.INVALID_TXN_STATE
    after = driver.end(producer, False, V2)
    assert after == producer._replace(epoch=producer.epoch + 1)
    (end,) = driver.complete()
    assert (end.commits, end.partitions) == (False, frozenset())
    assert legal_history(driver.states, LEGAL_PREVIOUS)


def test_e21_v2_the_next_end_waits_for_the_one_before(driver: TransactionDriver) -> None:
    after = driver.end(begun(driver, V2), version=V2)
    assert driver.end(after, False, V2) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.complete()
    assert driver.end(after, False, V2) == after._replace(epoch=after.epoch + 1)


# --- S41: fencing of producers


def test_s41_the_last_to_init_wins(driver: TransactionDriver) -> None:
    old, new = driver.init(), driver.init()
    for refused in (driver.add(old), driver.end(old), driver.verify(old)):
        assert refused is ErrorCode.PRODUCER_FENCED
    assert driver.run(new) == new


def test_the_metadata_value_of_a_transaction_is_immutable(driver: TransactionDriver) -> None:
    driver.init()
    before = driver.metadata
    copy = before._replace()
    driver.add(before.producer)
    assert before == copy
    assert driver.metadata is not before
