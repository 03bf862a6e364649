"""The sequence numbers of one partition (S21-S27): stamping batches, permission to send, and the reuse of unused
numbers.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from oncelog.config import MAX_IDEMPOTENT_IN_FLIGHT
from oncelog.producer.batch import ProducerBatch
from oncelog.producer.sequences import REMEMBERED_SECONDS, PartitionSequences
from oncelog_protocol.producer_id import NO_IDENTITY, ProducerIdAndEpoch
from oncelog_protocol.records.batch import NO_SEQUENCE, RecordBatch
from oncelog_protocol.records.builder import RecordBatchBuilder
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.sequence import MAX_SEQUENCE

FIRST, SECOND = ProducerIdAndEpoch(7, 0), ProducerIdAndEpoch(7, 1)
NUMBERS = itertools.count(1)


def batch(records: int = 1) -> ProducerBatch:
    made = ProducerBatch("t", 0, (next(NUMBERS),), RecordBatchBuilder(10_000), 0.0, 1000.0)
    waiter: Any = None
    for _ in range(records):
        assert made.append(0, None, b"v", (), waiter)
    made.close(Compression.NONE)
    return made


def sequences(identity: ProducerIdAndEpoch = FIRST, *, start: int = 0) -> PartitionSequences:
    """Return the sequence numbers of a running session: one record was sent and acknowledged, and `start` is the next
    number.
    """
    made = PartitionSequences()
    made.restart(identity)
    made.next_sequence = (start - 1) & MAX_SEQUENCE
    (known,) = stamped(made, 1)
    made.acknowledged(known, 100)
    return made


def stamped(of: PartitionSequences, *records: int) -> list[ProducerBatch]:
    made = [batch(count) for count in records]
    for one in made:
        assert of.may_drain(one)
        of.stamp(one)
    return made


def numbers(*made: ProducerBatch) -> list[int]:
    return [one.base_sequence for one in made]


def test_s21_a_batch_is_stamped_once() -> None:
    of = sequences()
    first, second = stamped(of, 3, 2)
    assert (first.identity, second.identity) == (FIRST, FIRST)
    assert numbers(first, second) == [0, 3]
    with pytest.raises(RuntimeError, match="S21"):
        of.stamp(first)
    assert of.next_sequence == 5


def test_s21_the_stamp_is_what_goes_on_the_wire() -> None:
    of = sequences(ProducerIdAndEpoch(2**40, 32767), start=9)
    (first,) = stamped(of, 2)
    sent = RecordBatch(first.build(transactional=True))
    assert (sent.producer_id, sent.producer_epoch, sent.base_sequence, sent.is_transactional) == (2**40, 32767, 9, True)
    assert not RecordBatch(first.build()).is_transactional


def test_s22_batches_stay_until_their_last_answer() -> None:
    of = sequences()
    first, second, third = stamped(of, 1, 1, 1)
    of.acknowledged(first, 101)
    of.given_up(second)
    assert list(of.unacknowledged) == [third]
    of.acknowledged(first, 101)  # a second response changes nothing
    of.given_up(first)
    assert not of.is_unresolved
    assert list(of.unacknowledged) == [third]


def test_s14_no_more_batches_are_in_flight_than_a_broker_remembers() -> None:
    of = sequences()
    first, *_ = stamped(of, *[1] * MAX_IDEMPOTENT_IN_FLIGHT)
    assert not of.may_drain(batch())
    of.acknowledged(first, 101)
    assert of.may_drain(batch())


def test_e15_no_more_batches_follow_an_unanswered_one_than_a_broker_remembers() -> None:
    # The leader has moved. The first attempt of a batch gets no response on the connection to the old leader. Later
    # batches go to the new leader and are acknowledged. The new leader recognises the retry as long as at most four
    # batches came after it.
    of = sequences()
    hanging, *others = stamped(of, 1, 1, 1, 1, 1)
    for other in others:
        of.acknowledged(other, 200)
        assert not of.may_drain(batch())
    of.acknowledged(hanging, -1)
    (following,) = stamped(of, 1)
    assert following.base_sequence == 5


def test_e15_answers_that_change_places_do_not_move_the_end_back() -> None:
    of = sequences()
    first, second, third, fourth = stamped(of, 1, 1, 1, 1)
    of.acknowledged(third, 200)
    of.acknowledged(first, -1)
    assert not of.may_drain(batch())
    second.is_maybe_written = True
    of.given_up(second)
    of.acknowledged(fourth, 201)
    of.settle()
    assert not of.needs_settling  # the broker has appended the batches after the second one
    assert of.may_drain(batch())
    assert of.next_sequence == 4


def test_s23_only_tracked_batches_are_sent_again() -> None:
    of = sequences()
    (first,) = stamped(of, 1)
    of.check_tracked(first)
    with pytest.raises(RuntimeError, match="S23"):
        of.check_tracked(batch())
    of.acknowledged(first, 101)
    with pytest.raises(RuntimeError, match="S23"):
        of.check_tracked(first)


def test_s24_only_the_first_in_flight_is_sent_again() -> None:
    of = sequences()
    first, second = stamped(of, 1, 1)
    assert of.may_drain(first)
    assert not of.may_drain(second)
    of.acknowledged(first, 101)
    assert of.may_drain(second)


def test_s26_refused_sequences_are_reused_by_later_batches() -> None:
    of = sequences()
    before, failed, second, third = stamped(of, 5, 3, 2, 1)
    of.acknowledged(before, 101)
    of.given_up(failed)
    assert of.needs_settling
    assert not of.may_drain(batch())  # the next number is uncertain until the other responses have arrived
    of.refused(second)
    of.settle()
    assert numbers(second, third) == [5, 7]
    assert of.next_sequence == 8
    assert not of.needs_settling
    assert (second.identity, of.identity) == (FIRST, FIRST)  # the producer epoch has not changed


def test_s26_no_batch_that_may_be_in_the_log_is_renumbered() -> None:
    of = sequences()
    failed, second, third = stamped(of, 3, 2, 1)
    of.given_up(failed)
    third.is_maybe_written = True
    of.settle()
    assert numbers(second, third) == [3, 5]
    assert not of.may_drain(batch())
    assert of.may_drain(second)  # the response to this batch decides about the next number
    of.refused(second)
    of.settle()
    assert of.needs_restart


def test_s26_a_gap_with_nothing_behind_it_closes() -> None:
    of = sequences()
    (failed,) = stamped(of, 3)
    of.given_up(failed)
    of.settle()
    (following,) = stamped(of, 1)
    assert following.base_sequence == 0


def test_s26_a_gap_that_the_broker_let_pass_stays_closed() -> None:
    # From an unknown producer, a broker accepts any sequence number, so the broker accepts the second batch after it
    # refused the first.
    of = sequences()
    failed, second = stamped(of, 3, 2)
    of.given_up(failed)
    of.acknowledged(second, 0)
    of.settle()
    (following,) = stamped(of, 1)
    assert following.base_sequence == 5


def test_s27_an_unresolved_batch_stops_new_ones() -> None:
    of = sequences()
    (lost,) = stamped(of, 3)
    lost.is_maybe_written = True
    of.given_up(lost)
    assert of.is_unresolved
    assert not of.may_drain(batch())
    of.settle()
    assert of.needs_restart
    assert not of.may_drain(batch())


def test_s27_an_unresolved_batch_is_in_the_log_if_the_next_one_is() -> None:
    of = sequences()
    lost, second = stamped(of, 3, 2)
    lost.is_maybe_written = True
    of.given_up(lost)
    of.settle()
    assert of.may_drain(second)
    of.acknowledged(second, 200)
    of.settle()
    assert not of.needs_settling
    (following,) = stamped(of, 1)
    assert following.base_sequence == 5


def test_s27_an_unresolved_batch_is_missing_if_the_next_one_is_out_of_order() -> None:
    of = sequences()
    lost, second, third = stamped(of, 3, 2, 1)
    lost.is_maybe_written = second.is_maybe_written = third.is_maybe_written = True
    of.given_up(lost)
    of.refused(second)
    of.settle()
    assert of.needs_restart
    of.restart(SECOND)
    assert numbers(second, third) == [0, 2]
    assert (second.identity, third.identity) == (SECOND, SECOND)
    assert not second.is_maybe_written
    assert not of.needs_settling
    assert of.may_drain(second)
    for one in (second, third):
        of.acknowledged(one, 200)
    (following,) = stamped(of, 1)
    assert (following.base_sequence, following.identity) == (3, SECOND)


def test_s9_the_first_batch_of_a_session_goes_alone() -> None:
    # From an unknown producer, a broker accepts any sequence number, so the broker accepts the second batch after it
    # refused the first.
    of = PartitionSequences()
    of.restart(FIRST)
    (first,) = stamped(of, 2)
    assert not of.may_drain(batch())
    assert of.may_drain(batch(), is_start_checked=True)
    of.acknowledged(first, 0)
    stamped(of, 1, 1)
    of.restart(SECOND)
    assert not of.may_drain(batch())


def test_s9_after_a_pause_the_broker_may_have_forgotten_the_producer() -> None:
    of = sequences()
    stamped(of, 1)
    late = batch()
    late.created = REMEMBERED_SECONDS
    assert of.may_drain(batch())
    assert not of.may_drain(late)
    assert of.may_drain(late, is_start_checked=True)


def test_s28_out_of_order_says_nothing_of_a_later_batch() -> None:
    of = sequences()
    _, second = stamped(of, 1, 1)
    of.refused(second)
    assert not of.needs_settling


def test_s28_the_first_that_is_out_of_order_needs_a_new_epoch() -> None:
    of = sequences()
    first, second = stamped(of, 1, 1)
    of.refused(first)
    of.settle()
    assert of.needs_restart
    of.restart(SECOND)
    assert numbers(first, second) == [0, 1]


def test_s28_a_batch_refused_and_then_accepted_is_no_trouble() -> None:
    of = sequences()
    (first,) = stamped(of, 1)
    of.refused(first)
    of.acknowledged(first, 101)
    assert not of.needs_settling


@pytest.mark.parametrize("before", range(4))
def test_s11_numbers_wrap_to_zero(before: int) -> None:
    of = sequences(start=MAX_SEQUENCE - before)
    first, second, third = stamped(of, 2, 2, 1)
    expected = [MAX_SEQUENCE - before, (MAX_SEQUENCE - before + 2) % 2**31, (MAX_SEQUENCE - before + 4) % 2**31]
    assert numbers(first, second, third) == expected
    assert min(expected) >= 0
    of.given_up(first)
    of.settle()
    assert numbers(second, third) == expected[:2]


def test_s11_s27_an_unresolved_batch_over_the_wrap() -> None:
    of = sequences(start=MAX_SEQUENCE)
    lost, second = stamped(of, 2, 2)
    lost.is_maybe_written = True
    of.given_up(lost)
    of.acknowledged(second, 200)
    of.settle()
    assert not of.needs_settling
    assert of.next_sequence == 3


def test_pieces_of_a_batch_share_its_numbers() -> None:
    of = sequences(start=MAX_SEQUENCE - 1)
    before, large, after = stamped(of, 1, 5, 2)
    pieces = large.split(75)
    assert len(pieces) > 1
    of.split(large, pieces)
    assert list(of.unacknowledged) == [before, *pieces, after]
    ends = [piece.end_sequence for piece in pieces]
    assert numbers(*pieces, after) == [MAX_SEQUENCE, *ends]
    assert {piece.identity for piece in pieces} == {FIRST}
    assert all(piece.base_sequence != NO_SEQUENCE for piece in pieces)


def test_pieces_of_a_batch_that_is_not_tracked_stay_without_numbers() -> None:
    of = sequences()
    large = batch(3)
    pieces = large.split(75)
    of.split(large, pieces)
    assert not of.unacknowledged
    assert not any(piece.is_stamped for piece in pieces)


def test_a_restart_forgets_all_trouble() -> None:
    of = sequences()
    lost, refused = stamped(of, 1, 1)
    lost.is_maybe_written = True
    of.given_up(lost)
    of.refused(refused)
    of.needs_restart = True
    of.restart(SECOND)
    assert not of.needs_settling
    assert of.last_acknowledged_offset == -1
    assert of.identity is SECOND


def test_the_last_acknowledged_offset_is_that_of_the_last_record() -> None:
    of = sequences()
    first, second, third = stamped(of, 5, 2, 1)
    of.acknowledged(first, 200)
    of.acknowledged(second, -1)  # a duplicate whose offset the broker did not return
    assert of.last_acknowledged_offset == 204
    of.acknowledged(third, 210)
    assert of.last_acknowledged_offset == 210


def test_s27_the_last_epoch_has_no_successor() -> None:
    assert ProducerIdAndEpoch(7, 32766).bumped() == (7, 32767)
    assert not ProducerIdAndEpoch(7, 32766).is_last
    assert ProducerIdAndEpoch(7, 32767).is_last
    with pytest.raises(AssertionError):
        ProducerIdAndEpoch(7, 32767).bumped()
    assert not NO_IDENTITY.is_last
