"""One producer identity and many partitions: S20-S28 from the view of the session and its accumulator."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.cluster import Broker, Cluster, Partition, Topic
from oncelog.config import ProducerConfig
from oncelog.producer.accumulator import Accumulator, PartitionQueue
from oncelog.producer.batch import ProducerBatch
from oncelog.producer.session import NOT_APPENDED, ProducerSession, Verdict
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import NO_IDENTITY, ProducerIdAndEpoch

FIRST, SECOND = ProducerIdAndEpoch(7, 0), ProducerIdAndEpoch(7, 1)
LAST = ProducerIdAndEpoch(7, 32767)
LOG_START = 0


class NoWaiter:
    def done(self) -> bool:
        return True


class Wire:
    """The accumulator of one topic with two partitions; the test sends its batches and responds to them."""

    def __init__(self, *, is_transactional: bool = False, identity: ProducerIdAndEpoch = FIRST) -> None:
        self.session = ProducerSession(is_transactional=is_transactional)
        self.session.is_start_checked = True  # otherwise the first batch of a partition would be sent alone
        config = ProducerConfig(bootstrap_servers="h:1", linger_ms=0, batch_size=100).validate()
        self.records = Accumulator(config, self.session)
        self.queues = [self.queue(0), self.queue(1)]
        self.now = 0.0
        if identity is not NO_IDENTITY:
            self.session.identify(identity)

    def queue(self, partition: int) -> PartitionQueue:
        made = self.records.queue("t", partition)
        partitions = {index: Partition(index, 1, 1) for index in range(2)}
        self.records.set_leaders(Cluster("c", -1, {1: Broker(1, "h", 1)}, {"t": Topic("t", partitions=partitions)}))
        return made

    def put(self, partition: int = 0, count: int = 1, value: bytes = b"x" * 100) -> None:
        """Add this many batches of one record each; the last batch may accept more records."""
        waiter: Any = NoWaiter()
        for _ in range(count):
            assert self.records.open(self.queues[partition], self.now, 0, None, value, (), waiter)

    def send(self) -> list[ProducerBatch]:
        """Send all batches that may be sent; return them."""
        sent: list[ProducerBatch] = []
        while True:
            ready = self.records.ready(self.now).nodes
            if not ready:
                return sent
            sent += [batch for queues in ready.values() for batch in self.records.drain(queues)]

    def sent(self, partition: int = 0, count: int = 1) -> list[ProducerBatch]:
        self.put(partition, count)
        batches = self.send()
        assert len(batches) == count
        return batches

    def judge(self, batch: ProducerBatch, code: ErrorCode, log_start_offset: int = -1) -> Verdict:
        """Respond with an error to the batch; the session then decides whether the batch is retried or fails."""
        verdict = self.session.judge(self.queues[batch.partition].sequences, batch, code, log_start_offset)
        if verdict is Verdict.RETRY:
            self.records.requeue(batch, self.now)
        elif verdict is Verdict.DUPLICATE:
            self.records.complete(batch)
        else:
            self.records.give_up(batch)
        return verdict

    def lose(self, *batches: ProducerBatch) -> None:
        """Simulate that the connection breaks while these batches are in flight."""
        for batch in batches:
            batch.is_maybe_written = True
            self.records.requeue(batch, self.now)

    def expire(self, *batches: ProducerBatch) -> None:
        for batch in batches:
            batch.deadline = self.now
        assert self.records.expire(self.now) == list(batches)


def numbers(*batches: ProducerBatch) -> list[int]:
    return [batch.base_sequence for batch in batches]


def epochs(*batches: ProducerBatch) -> list[int]:
    return [batch.identity.epoch for batch in batches]


def test_s20_no_batch_is_sent_without_a_producer_id() -> None:
    wire = Wire(identity=NO_IDENTITY)
    wire.put(count=2)
    assert wire.send() == []
    wire.session.identify(FIRST)
    batches = wire.send()
    assert numbers(*batches) == [0, 1]
    assert {batch.identity for batch in batches} == {FIRST}


def test_s22_each_partition_has_its_own_numbers() -> None:
    wire = Wire()
    wire.put(0, 2)
    wire.put(1, 1)
    batches = wire.send()
    assert sorted((batch.partition, batch.base_sequence) for batch in batches) == [(0, 0), (0, 1), (1, 0)]


def test_s24_batches_are_sent_one_by_one_and_in_order_after_a_failure() -> None:
    wire = Wire()
    first, second, third = wire.sent(count=3)
    wire.lose(first)
    wire.put()
    assert wire.send() == []  # not yet, because the other responses must arrive first
    assert wire.judge(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
    assert wire.judge(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
    for expected in (first, second, third):
        assert wire.send() == [expected]
        wire.records.complete(expected, 0)
    (fourth,) = wire.send()
    assert numbers(first, second, third, fourth) == [0, 1, 2, 3]
    assert epochs(first, second, third, fourth) == [0, 0, 0, 0]


def test_s26_the_batches_behind_a_refused_one_close_up() -> None:
    wire = Wire()
    first, second, third = wire.sent(count=3)
    assert wire.judge(first, ErrorCode.INVALID_RECORD) is Verdict.BY_ERROR
    assert wire.judge(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
    assert numbers(second, third) == [1, 2]  # the third batch is in flight with that number
    assert wire.judge(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
    assert numbers(second, third) == [0, 1]
    assert wire.session.identity is FIRST
    assert wire.send() == [second]


def test_s27_an_expired_sent_batch_delays_new_ones() -> None:
    wire = Wire()
    lost, second = wire.sent(count=2)
    wire.lose(lost)
    wire.expire(lost)
    wire.put()
    assert wire.send() == []
    wire.records.complete(second, 7)  # the batch before this one is in the log, too
    (third,) = wire.send()
    assert (third.base_sequence, third.identity) == (2, FIRST)


def test_s27_an_expired_batch_that_was_never_sent_leaves_no_trace() -> None:
    wire = Wire(identity=NO_IDENTITY)
    wire.put()
    wire.expire(wire.queues[0].batches[0])
    wire.session.identify(FIRST)
    (batch,) = wire.sent()
    assert (batch.base_sequence, batch.identity) == (0, FIRST)


def test_s27_an_idempotent_producer_takes_the_next_epoch_by_itself() -> None:
    wire = Wire()
    (lost,) = wire.sent()
    wire.lose(lost)
    wire.expire(lost)
    assert wire.session.identity == SECOND
    (following,) = wire.sent()
    assert (following.base_sequence, following.identity) == (0, SECOND)


def test_s27_a_batch_that_may_still_arrive_is_not_sent_under_the_next_epoch() -> None:
    wire = Wire()
    lost, second, third = wire.sent(count=3)
    wire.lose(lost, second)
    wire.expire(lost)
    assert wire.judge(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
    assert wire.send() == [second]
    assert wire.judge(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
    assert [batch for batch, _ in wire.records.abandoned] == [second]
    assert wire.send() == [third]
    assert (third.base_sequence, third.identity) == (0, SECOND)


def test_s27_other_partitions_change_over_when_the_old_epoch_has_its_answers() -> None:
    wire = Wire()
    (lost,) = wire.sent(0)
    old, older = wire.sent(1, 2)
    wire.lose(lost)
    wire.expire(lost)
    assert wire.session.identity == SECOND
    wire.put(0)
    wire.put(1)
    (new,) = wire.send()
    assert (new.partition, new.identity) == (0, SECOND)
    wire.lose(old)
    assert wire.judge(older, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
    for batch in (old, older):
        assert wire.send() == [batch]
        assert batch.identity is FIRST
        wire.records.complete(batch, 0)
    (changed,) = wire.send()
    assert (changed.partition, changed.base_sequence, changed.identity) == (1, 0, SECOND)


def test_s27_two_partitions_in_trouble_spend_one_epoch() -> None:
    wire = Wire()
    (first,) = wire.sent(0)
    (second,) = wire.sent(1)
    wire.lose(first, second)
    wire.expire(first)
    assert wire.session.identity == SECOND
    assert wire.judge(wire.send()[0], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
    assert wire.session.identity == SECOND
    assert [batch for batch, _ in wire.records.abandoned] == [second]
    wire.put(0)
    wire.put(1)
    assert {(batch.base_sequence, batch.identity) for batch in wire.send()} == {(0, SECOND)}


def test_s27_behind_the_last_epoch_comes_a_new_producer_id() -> None:
    wire = Wire(identity=LAST)
    (lost,) = wire.sent(0)
    (other,) = wire.sent(1)
    wire.lose(lost)
    wire.expire(lost)
    assert not wire.session.has_identity
    wire.lose(other)
    wire.put(0)
    assert wire.send() == []
    fresh = ProducerIdAndEpoch(8, 0)
    wire.session.identify(fresh)
    new, again = sorted(wire.send(), key=lambda batch: batch.partition)
    assert (new.base_sequence, new.identity) == (0, fresh)
    assert (again, again.identity) == (other, LAST)
    wire.records.complete(other, 0)
    (changed,) = wire.sent(1)
    assert (changed.base_sequence, changed.identity) == (0, fresh)


def test_s27_a_transactional_producer_leaves_the_next_epoch_to_its_coordinator() -> None:
    wire = Wire(is_transactional=True)
    (lost,) = wire.sent()
    wire.lose(lost)
    wire.expire(lost)
    assert wire.session.identity is FIRST
    assert wire.session.needs_new_epoch
    wire.put()
    assert wire.send() == []
    wire.session.identify(SECOND)
    assert wire.records.expire(wire.now) == []  # this call also settles the sequence numbers
    assert not wire.session.needs_new_epoch
    (following,) = wire.send()
    assert (following.base_sequence, following.identity) == (0, SECOND)
    assert not wire.session.needs_new_epoch


def test_kip890_every_transaction_begins_at_zero_under_its_own_epoch() -> None:
    wire = Wire(is_transactional=True)
    first, second = wire.sent(count=2)
    for batch in (first, second):
        wire.records.complete(batch, 0)
    wire.session.identify(SECOND)
    (third,) = wire.sent()
    assert numbers(first, second, third) == [0, 1, 0]
    assert epochs(first, second, third) == [0, 0, 1]


def test_s21_before_v2_the_numbers_go_on_from_one_transaction_to_the_next() -> None:
    wire = Wire(is_transactional=True)
    (first,) = wire.sent()
    wire.records.complete(first, 0)
    (second,) = wire.sent()
    assert (second.base_sequence, second.identity) == (1, FIRST)


def test_s28_a_duplicate_is_in_the_log() -> None:
    wire = Wire()
    first, second = wire.sent(count=2)
    assert wire.judge(first, ErrorCode.DUPLICATE_SEQUENCE_NUMBER) is Verdict.DUPLICATE
    assert list(wire.queues[0].sequences.unacknowledged) == [second]


def test_s28_an_out_of_order_batch_behind_another_is_sent_again_unchanged() -> None:
    wire = Wire()
    first, second = wire.sent(count=2)
    wire.lose(first)
    assert wire.judge(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
    assert wire.session.identity is FIRST
    assert numbers(first, second) == [0, 1]


def test_s28_the_first_out_of_order_batch_is_sent_again_under_the_next_epoch() -> None:
    wire = Wire()
    first, second = wire.sent(count=2)
    assert wire.judge(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
    assert wire.session.identity is FIRST  # the other batch is in flight
    assert wire.judge(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
    assert wire.session.identity == SECOND
    assert wire.send() == [first]
    assert (numbers(first, second), epochs(first, second)) == ([0, 1], [1, 1])


def test_s28_the_first_out_of_order_batch_ends_a_transaction() -> None:
    wire = Wire(is_transactional=True)
    first, second = wire.sent(count=2)
    wire.lose(first)
    assert wire.judge(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
    (again,) = wire.send()
    assert wire.judge(again, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.FAIL


def test_s28_a_forgotten_producer_whose_records_are_deleted_begins_anew() -> None:
    wire = Wire()
    (first,) = wire.sent()
    wire.records.complete(first, 41)
    second, third = wire.sent(count=2)
    assert wire.judge(second, ErrorCode.UNKNOWN_PRODUCER_ID, log_start_offset=42) is Verdict.RETRY
    assert wire.send() == []  # the third batch is in flight with its old number
    assert wire.judge(third, ErrorCode.UNKNOWN_PRODUCER_ID, log_start_offset=42) is Verdict.RETRY
    assert wire.session.identity == SECOND
    assert wire.send() == [second]
    assert (numbers(second, third), epochs(second, third)) == ([0, 1], [1, 1])


def test_s28_a_forgotten_producer_without_a_reason_is_an_error() -> None:
    wire = Wire()
    (first,) = wire.sent()
    wire.records.complete(first, 41)
    (second,) = wire.sent()
    assert wire.judge(second, ErrorCode.UNKNOWN_PRODUCER_ID, log_start_offset=41) is Verdict.FAIL
    # Only the refused batch fails, because in the next epoch the broker accepts sequence number 0.
    (third,) = wire.sent()
    assert (third.base_sequence, third.identity) == (0, SECOND)


def test_s28_a_forgotten_producer_without_the_start_of_the_log_asks_again() -> None:
    wire = Wire()
    (first,) = wire.sent()
    assert wire.judge(first, ErrorCode.UNKNOWN_PRODUCER_ID, log_start_offset=-1) is Verdict.RETRY
    assert wire.send() == [first]
    assert (first.base_sequence, first.identity) == (0, FIRST)


@pytest.mark.parametrize("log_start_offset", [41, 42])
def test_s28_a_forgotten_producer_ends_a_transaction(log_start_offset: int) -> None:
    wire = Wire(is_transactional=True)
    (first,) = wire.sent()
    wire.records.complete(first, 41)
    (second,) = wire.sent()
    assert wire.judge(second, ErrorCode.UNKNOWN_PRODUCER_ID, log_start_offset) is Verdict.FAIL
    assert wire.session.needs_new_epoch


def test_an_idempotent_producer_that_is_fenced_asks_for_a_new_id() -> None:
    wire = Wire()
    first, second = wire.sent(count=2)
    assert wire.judge(first, ErrorCode.INVALID_PRODUCER_EPOCH) is Verdict.RETRY
    assert not wire.session.has_identity
    fresh = ProducerIdAndEpoch(8, 0)
    wire.session.identify(fresh)
    assert wire.send() == []  # the second batch is in flight with the old producer id
    assert wire.judge(second, ErrorCode.INVALID_PRODUCER_EPOCH) is Verdict.RETRY
    assert wire.session.identity is fresh
    assert wire.send() == [first]
    assert (numbers(first, second), {first.identity, second.identity}) == ([0, 1], {fresh})


def test_no_batch_on_the_wire_is_renumbered() -> None:
    wire = Wire()
    first, second = wire.sent(count=2)
    sequences = wire.queues[0].sequences
    assert wire.session.judge(sequences, first, ErrorCode.INVALID_PRODUCER_EPOCH, LOG_START) is Verdict.RETRY
    wire.records.give_up(first)  # no retry is left
    wire.session.identify(ProducerIdAndEpoch(8, 0))
    wire.put()
    assert wire.send() == []
    assert (second.identity, second.base_sequence) == (FIRST, 1)


def test_a_fence_of_an_older_epoch_leaves_the_identity_alone() -> None:
    wire = Wire()
    (lost,) = wire.sent(0)
    (other,) = wire.sent(1)
    wire.lose(lost)
    wire.expire(lost)
    assert wire.judge(other, ErrorCode.INVALID_PRODUCER_EPOCH) is Verdict.RETRY
    assert wire.session.identity == SECOND
    assert wire.send() == [other]
    assert (other.base_sequence, other.identity) == (0, SECOND)


def test_s41_a_transactional_producer_does_not_judge_a_fence_itself() -> None:
    wire = Wire(is_transactional=True)
    (first,) = wire.sent()
    assert wire.judge(first, ErrorCode.INVALID_PRODUCER_EPOCH) is Verdict.BY_ERROR
    assert wire.session.identity is FIRST


MAY_BE_APPENDED = {
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


@pytest.mark.parametrize("code", sorted(MAY_BE_APPENDED))
def test_s27_after_such_an_error_a_batch_may_be_in_the_log(code: ErrorCode) -> None:
    wire = Wire()
    (first,) = wire.sent()
    assert wire.judge(first, code) is Verdict.BY_ERROR
    assert first.is_maybe_written


@pytest.mark.parametrize("code", sorted(NOT_APPENDED))
def test_s26_after_such_an_error_a_batch_is_surely_not_in_the_log(code: ErrorCode) -> None:
    wire = Wire()
    _, second = wire.sent(count=2)
    wire.judge(second, code)
    assert not second.is_maybe_written


def test_an_earlier_try_without_an_answer_is_not_forgotten() -> None:
    wire = Wire()
    (first,) = wire.sent()
    wire.lose(first)
    wire.judge(wire.send()[0], ErrorCode.NOT_ENOUGH_REPLICAS)
    assert first.is_maybe_written
    assert wire.session.identity == SECOND


def test_pieces_go_one_after_the_other_before_what_came_after() -> None:
    wire = Wire()
    wire.put(value=b"")
    waiter: Any = NoWaiter()
    tail = wire.queues[0].tail
    assert tail is not None
    while tail.append(0, None, b"", (), waiter):
        pass
    wire.put()
    large, after = wire.send()
    count = large.records_count
    wire.records.split(large)
    assert wire.send() == []  # the other batch is in flight
    assert wire.judge(after, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
    order = []
    while batches := wire.send():
        (batch,) = batches
        order.append(batch)
        wire.records.complete(batch, 0)
    assert order[-1] is after
    assert len(order) > 2
    ends = [0, *(batch.end_sequence for batch in order)]
    assert numbers(*order) == ends[:-1]
    assert after.base_sequence == count
