"""Which calls of a transactional producer are permitted in each state (S36, S38, S41, S45), tested without a broker."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from oncelog.cluster import TopicPartition
from oncelog.errors import AbortableError, ErrorCode, FatalError, InvalidTransactionState, KafkaError, ProducerFenced
from oncelog.producer.session import ProducerSession
from oncelog.producer.transaction_manager import TransactionManager
from oncelog.producer.transaction_states import TransactionState
from oncelog_protocol.producer_id import ProducerIdAndEpoch

FIRST, SECOND = ProducerIdAndEpoch(7, 0), ProducerIdAndEpoch(7, 1)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOO_LARGE = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
FENCED = ProducerFenced(ErrorCode.PRODUCER_FENCED, "fenced")


def manager(state: TransactionState = TransactionState.IN_TRANSACTION, *, is_v2: bool = False) -> TransactionManager:
    """Return a transaction manager that reached `state` through permitted calls."""
    made = TransactionManager("t", ProducerSession(is_transactional=True))
    steps: list[Callable[[], object]] = [
        made.begin_initialising,
        lambda: made.initialised(FIRST),
        lambda: made.begin(is_v2=is_v2),
        {
            TransactionState.PREPARED_TRANSACTION: made.begin_prepare,
            TransactionState.COMMITTING: made.begin_commit,
            TransactionState.ABORTING: made.begin_abort,
            TransactionState.ABORTABLE_ERROR: lambda: made.failed(TOO_LARGE),
            TransactionState.FATAL_ERROR: lambda: made.failed(FENCED),
        }.get(state, lambda: None),
    ]
    for step in steps:
        if made.state is state:
            break
        step()
    assert made.state is state
    return made


ALL = list(TransactionState)
IN, COMMITTING, ABORTING = TransactionState.IN_TRANSACTION, TransactionState.COMMITTING, TransactionState.ABORTING
PREPARED = TransactionState.PREPARED_TRANSACTION
ABORTABLE, FATAL, READY = TransactionState.ABORTABLE_ERROR, TransactionState.FATAL_ERROR, TransactionState.READY


@pytest.mark.parametrize("state", ALL)
@pytest.mark.parametrize(
    ("call", "allowed"),
    [
        ("begin", {READY}),
        ("sending_to", {IN}),
        ("check_in_transaction", {IN}),
        ("begin_prepare", {IN, PREPARED}),
        ("begin_commit", {IN, PREPARED}),
        ("begin_abort", {IN, PREPARED, ABORTABLE}),
    ],
)
def test_s45_each_state_allows_its_calls(state: TransactionState, call: str, allowed: set[TransactionState]) -> None:
    made = manager(state)
    arguments = {"begin": {"is_v2": False}, "sending_to": {"partition": P0}}.get(call, {})
    if state in allowed:
        getattr(made, call)(**arguments)
        return
    with pytest.raises(KafkaError) as caught:
        getattr(made, call)(**arguments)
    assert made.state is state  # a refused call changes nothing
    if state is FATAL:
        assert caught.value is FENCED
    elif state is ABORTABLE and call != "begin":
        assert isinstance(caught.value, AbortableError)
    else:
        assert isinstance(caught.value, InvalidTransactionState)
        assert f"'t' is {state.name}" in caught.value.message


@pytest.mark.parametrize("state", ALL)
def test_s45_batches_leave_only_in_a_transaction(state: TransactionState) -> None:
    made = manager(state)
    made.added.add(P0)
    assert made.may_send(P0) is (state in (IN, PREPARED, COMMITTING))
    assert made.is_sending is (state in (IN, PREPARED, COMMITTING))
    assert not made.may_send(P1)


def test_s36_before_v2_a_partition_waits_for_its_coordinator() -> None:
    made = manager()
    made.sending_to(P0)
    made.sending_to(P0)
    assert made.pending == {P0}
    assert not made.may_send(P0)
    assert not made.must_be_ended
    made.were_added({P0})
    made.sending_to(P0)
    assert (made.pending, made.added) == (set(), {P0})
    assert made.may_send(P0)
    assert made.must_be_ended


def test_kip890_under_v2_the_first_write_adds_a_partition() -> None:
    made = manager(is_v2=True)
    made.sending_to(P0)
    assert (made.pending, made.added) == (set(), {P0})
    assert made.may_send(P0)
    assert not made.must_be_ended  # the producer has sent no request for this transaction yet
    made.sent()
    assert made.must_be_ended


def test_kip890_the_way_of_a_transaction_is_settled_when_it_begins() -> None:
    made = manager(is_v2=True)
    assert made.is_v2
    made.begin_commit()
    made.ended(SECOND)
    made.begin(is_v2=False)
    assert not made.is_v2


@pytest.mark.parametrize("state", [ABORTING, ABORTABLE, FATAL])
def test_s36_partitions_added_too_late_fail(state: TransactionState) -> None:
    made = manager()
    made.sending_to(P0)
    {ABORTING: made.begin_abort, ABORTABLE: lambda: made.failed(TOO_LARGE), FATAL: lambda: made.failed(FENCED)}[state]()
    made.were_added({P0})
    assert P0 not in made.added
    assert not made.may_send(P0)
    assert made.must_be_ended  # the coordinator knows the transaction by now


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_s38_no_state_of_an_ended_transaction_is_left(ends: str) -> None:
    made = manager()
    made.sending_to(P0)
    made.were_added({P0})
    made.sending_to(P1)
    {"commit": made.begin_commit, "abort": made.begin_abort}[ends]()
    made.ended(None)
    assert made.state is READY
    assert (made.added, made.pending, made.must_be_ended, made.error) == (set(), set(), False, None)
    assert made.session.identity is FIRST
    made.begin(is_v2=False)
    assert not made.may_send(P0)


def test_kip890_the_end_of_a_transaction_brings_the_next_epoch() -> None:
    made = manager(is_v2=True)
    made.session.needs_new_epoch = True
    made.begin_abort()
    made.ended(SECOND)
    assert made.session.identity is SECOND
    assert not made.session.needs_new_epoch


@pytest.mark.parametrize("state", [COMMITTING, ABORTING])
def test_kip360_the_next_epoch_may_have_to_be_asked_for(state: TransactionState) -> None:
    made = manager(state)
    made.session.needs_new_epoch = True
    made.begin_initialising()
    assert made.state is TransactionState.INITIALIZING
    made.initialised(SECOND)
    assert made.state is READY
    assert made.session.identity is SECOND
    assert not made.session.needs_new_epoch


def test_each_transaction_has_its_own_number() -> None:
    made = manager()
    before = made.number
    made.begin_commit()
    made.ended(None)
    made.begin(is_v2=False)
    assert made.number == before + 1


@pytest.mark.parametrize("state", [IN, COMMITTING])
def test_s38_an_error_leaves_only_the_abort(state: TransactionState) -> None:
    made = manager(state)
    made.pending.add(P1)
    told = made.failed(TOO_LARGE)
    assert isinstance(told, AbortableError)
    assert (told.code, told.__cause__) == (ErrorCode.MESSAGE_TOO_LARGE, TOO_LARGE)
    assert made.state is ABORTABLE
    assert made.pending == set()
    assert made.failed(KafkaError(ErrorCode.INVALID_RECORD, "later")) is told  # the first error remains
    with pytest.raises(AbortableError) as caught:
        made.begin_commit()
    assert caught.value is told
    made.begin_abort()
    made.ended(None)
    assert made.error is None
    made.begin(is_v2=False)


def test_an_abortable_error_is_told_as_it_is() -> None:
    made = manager()
    error = AbortableError(ErrorCode.TRANSACTION_ABORTABLE, "abort")
    assert made.failed(error) is error
    assert made.error is error


def test_errors_while_aborting_change_nothing() -> None:
    made = manager(ABORTING)
    assert made.failed(TOO_LARGE) is TOO_LARGE
    assert (made.state, made.error) == (ABORTING, None)


@pytest.mark.parametrize("state", [TransactionState.UNINITIALIZED, READY])
def test_s45_only_fatal_errors_count_outside_a_transaction(state: TransactionState) -> None:
    made = manager(state)
    with pytest.raises(InvalidTransactionState):
        made.failed(TOO_LARGE)
    assert (made.state, made.error) == (state, None)
    assert made.failed(FENCED) is FENCED


@pytest.mark.parametrize("state", [state for state in ALL if state is not FATAL])
def test_s41_a_fatal_error_ends_every_state(state: TransactionState) -> None:
    made = manager(state)
    assert made.failed(FENCED) is FENCED
    assert made.state is FATAL
    other = FatalError(ErrorCode.INVALID_TXN_STATE, "later")
    assert made.failed(other) is FENCED
    assert made.failed(TOO_LARGE) is FENCED
    with pytest.raises(ProducerFenced):
        made.check_usable()
    with pytest.raises(InvalidTransactionState):
        made.initialised(SECOND)
    assert made.state is FATAL


@pytest.mark.parametrize("code", list(ErrorCode))
def test_kip588_after_some_errors_only_the_next_epoch_ends_the_transaction(code: ErrorCode) -> None:
    made = manager()
    made.failed(AbortableError(code, "why"))
    assert made.may_send_end is (code not in {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID})


def test_s90_an_id_that_may_have_had_another_owner_is_fatal() -> None:
    made = manager()
    told = made.failed(AbortableError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "forgotten"))
    assert isinstance(told, FatalError)
    assert made.state is FATAL
    with pytest.raises(FatalError, match="forgotten"):
        made.begin_abort()


def test_s45_whatever_happens_in_whatever_order_the_invariants_hold() -> None:
    # every sequence of four events that starts with a new transaction
    events: list[Callable[[TransactionManager], object]] = [
        lambda made: made.sending_to(P0),
        lambda made: made.were_added({P0}),
        lambda made: made.begin_commit(),
        lambda made: made.begin_abort(),
        lambda made: made.failed(TOO_LARGE),
        lambda made: made.failed(FENCED),
        lambda made: made.ended(None),
        lambda made: made.begin(is_v2=False),
    ]
    for order in itertools.product(events, repeat=4):
        made = manager()
        for event in order:
            try:
                event(made)
            except KafkaError:
                pass
            assert not made.added & made.pending
            assert (made.error is not None) is (made.state in (ABORTABLE, FATAL)) or made.state is ABORTING
            if made.state is READY:
                assert not made.added
                assert not made.pending
