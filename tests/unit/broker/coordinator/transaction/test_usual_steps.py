"""The usual steps of a transaction, which the lanes log, are those of the state machine's methods."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.transaction import usual_steps
from oncelog_broker.coordinator.transaction.config import TransactionConfig
from oncelog_broker.coordinator.transaction.machine import TransactionEnd, TransactionMachine
from oncelog_broker.coordinator.transaction.metadata import (
    EXHAUSTED_EPOCH,
    FENCING_EPOCH,
    NO_EPOCH,
    NeedsProducerId,
    TopicPartition,
    TransactionMetadata,
)
from oncelog_broker.coordinator.transaction.records import TransactionRecord
from oncelog_broker.coordinator.transaction.states import IDLE, IllegalTransition, TransactionState
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V1, TRANSACTIONS_V2
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.records.batch import NO_PRODUCER_ID

NAME = "a"
NOW_MS = 1000
WAITER = object()
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
places = st.frozensets(st.sampled_from([P0, P1]))
epochs = st.sampled_from([0, 3, 3, 3, 4, EXHAUSTED_EPOCH - 1, EXHAUSTED_EPOCH, FENCING_EPOCH])
versions = st.sampled_from([TRANSACTIONS_V1, TRANSACTIONS_V2])
states = st.builds(
    TransactionMetadata,
    transactional_id=st.just(NAME),
    producer_id=st.just(7),
    producer_epoch=epochs,
    timeout_ms=st.just(60_000),
    state=st.sampled_from([state for state in TransactionState if state.value < TransactionState.DEAD]),
    partitions=places,
    start_timestamp=st.just(5),
    last_update_timestamp=st.just(6),
    previous_producer_id=st.sampled_from([NO_PRODUCER_ID, 2]),
    next_producer_id=st.sampled_from([NO_PRODUCER_ID, NO_PRODUCER_ID, 8]),
    client_transaction_version=versions,
    last_epoch=st.sampled_from([NO_EPOCH, 2]),
    next_producer_epoch=st.sampled_from([NO_EPOCH, NO_EPOCH, 5]),
    next_timeout_ms=st.sampled_from([2**31 - 1, 30_000]),
)
ONGOING = TransactionMetadata(NAME, 7, 3, 60_000, TransactionState.ONGOING, frozenset({P0}))


def machine_in(metadata: TransactionMetadata) -> TransactionMachine:
    machine = TransactionMachine(TransactionConfig(), lambda: NOW_MS, lambda: 1.0)
    machine.replay(TransactionRecord(NAME, metadata), 0, -1)
    return machine


def logged(effects: Effects | None) -> Any:
    """Return the state that the state machine logs; None if it logs none."""
    return effects.records[0].metadata if effects is not None and effects.records else None


@given(states, epochs, st.sampled_from([7, 8]), places, versions)
@example(ONGOING, 3, 7, frozenset({P1}), TRANSACTIONS_V1)
def test_s36_added_partitions(
    before: TransactionMetadata, epoch: int, producer_id: int, places: frozenset[TopicPartition], version: int
) -> None:
    machine, effects = machine_in(before), None
    with suppress(KafkaError):
        effects = machine.add_partitions(NAME, ProducerIdAndEpoch(producer_id, epoch), places, version, WAITER)
    after = usual_steps.added(before, producer_id, epoch, places, version, lambda: NOW_MS)
    if after is not None:
        assert after == logged(effects)
        assert effects is not None
        assert effects.replies == [(WAITER, ErrorCode.NONE)]
    if before.state in IDLE | {TransactionState.ONGOING} and logged(effects) is not None:
        assert after is not None, "a usual request"


@given(states, epochs, st.booleans(), versions)
@example(ONGOING, 3, True, TRANSACTIONS_V1)
@example(ONGOING, 3, False, TRANSACTIONS_V2)
@example(ONGOING._replace(producer_epoch=EXHAUSTED_EPOCH - 1), EXHAUSTED_EPOCH - 1, True, TRANSACTIONS_V2)
def test_s38_decisions(before: TransactionMetadata, epoch: int, commits: bool, version: int) -> None:
    machine, effects = machine_in(before), None
    with suppress(KafkaError, NeedsProducerId, IllegalTransition):
        effects = machine.end_txn(NAME, ProducerIdAndEpoch(7, epoch), commits, version, None, WAITER)
    after = usual_steps.decided(before, 7, epoch, commits, version, lambda: NOW_MS)
    if after is not None:
        assert effects is not None
        end = TransactionEnd.of(after)
        assert (after, [end], end.producer) == (logged(effects), effects.ends, effects.replies[0][1])
    is_usual = before.state is TransactionState.ONGOING and before.next_producer_epoch == NO_EPOCH
    if is_usual and epoch < EXHAUSTED_EPOCH and logged(effects) is not None:
        assert after is not None


@given(states, epochs)
def test_e8_completions(before: TransactionMetadata, epoch: int) -> None:
    end = TransactionEnd(NAME, ProducerIdAndEpoch(7, epoch), True, before.partitions, 0)
    machine = machine_in(before)
    expected = logged(machine.complete(end))
    after = usual_steps.completed(before, end.producer, lambda: NOW_MS)
    assert after in (expected, None)
    if before.next_producer_epoch == NO_EPOCH and epoch <= EXHAUSTED_EPOCH:
        assert after == expected


@given(states, epochs, st.sampled_from([P0, P1]))
def test_verified_partitions(before: TransactionMetadata, epoch: int, where: TopicPartition) -> None:
    machine, verdict = machine_in(before), None
    with suppress(KafkaError):
        verdict = machine.verify(NAME, ProducerIdAndEpoch(7, epoch), [where])[where]
    is_open = usual_steps.has_open(before, 7, epoch, frozenset({where}))
    assert is_open == (verdict is ErrorCode.NONE and before.state is TransactionState.ONGOING)


def test_an_unknown_transactional_id_has_no_usual_step() -> None:
    assert usual_steps.added(None, 7, 3, frozenset({P0}), TRANSACTIONS_V1, lambda: NOW_MS) is None
    assert usual_steps.decided(None, 7, 3, True, TRANSACTIONS_V1, lambda: NOW_MS) is None
    assert usual_steps.completed(None, ProducerIdAndEpoch(7, 3), lambda: NOW_MS) is None
    assert not usual_steps.has_open(None, 7, 3, frozenset({P0}))
