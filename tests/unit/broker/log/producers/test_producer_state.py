"""The rules of a log's producer state, one by one."""

import sys

import pytest
from tests.support.producers import open_transactions

from oncelog_broker.log.config import KAFKA, LEGACY_2_0, LogConfig
from oncelog_broker.log.producers.ended_transaction import EndedTransaction
from oncelog_broker.log.producers.state import (
    EXPIRY_SLICE,
    MAX_STREAKS,
    NOTHING_UNSTABLE,
    DuplicateBatch,
    ProducerState,
)
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V2
from oncelog_protocol.records.batch import TRANSACTIONAL_BIT
from oncelog_protocol.records.control import ControlType, EndTransactionMarker

MAX = 2**31 - 1
PID = 7


class Log:
    """Counts offsets and updates a producer state as a PartitionLog would."""

    def __init__(self, **config):
        self.state = ProducerState(LogConfig(**config))
        self.end = 0

    def append(self, sequence, count=1, *, epoch=0, pid=PID, transactional=False, timestamp=0, version=0):
        """Append a batch. Returns the base offset of the batch, or DuplicateBatch if the batch is a duplicate."""
        base = self.end
        attributes = TRANSACTIONAL_BIT if transactional else 0
        header = (base, 100, 0, 2, 0, attributes, count - 1, timestamp, timestamp, pid, epoch, sequence, count)
        entry = self.state.prepare_append(header, base, timestamp, version)
        if isinstance(entry, DuplicateBatch):
            return entry
        self.state.adopt(entry, header, base, timestamp)
        self.end += count
        return base

    def mark(self, kind=ControlType.ABORT, *, epoch=0, coordinator_epoch=0, pid=PID, timestamp=0, version=0):
        marker = EndTransactionMarker(kind, coordinator_epoch)
        entry = self.state.prepare_marker(pid, epoch, marker, timestamp, version)
        self.end += 1
        return self.state.complete(pid, entry, marker, self.end - 1)

    def expire(self, now_ms, expiration_ms):
        return list(self.state.expire(now_ms, expiration_ms))


@pytest.fixture
def log():
    return Log()


def raises(code):
    return pytest.raises(KafkaError, match=f"^{code.name}")


def test_s7_state_is_kept_per_producer_id(log):
    log.append(0, 3, pid=1, epoch=4, timestamp=50)
    log.append(0, 1, pid=2, transactional=True)
    entry = log.state.get(1)
    assert entry == (1, 4, 2, 2, 2, 50, -1, -1)
    assert entry.first_sequence == 0
    assert log.state.get(2).transaction_first_offset == 3
    assert log.state.get(3) is None
    assert [producer.producer_id for producer in log.state.producers()] == [1, 2]


@pytest.mark.parametrize("again", range(5))
def test_s8_each_of_the_last_five_batches_is_known_as_a_duplicate(log, again):
    counts = [1, 3, 2, 5, 1, 4, 2]
    sequences = [sum(counts[:n]) for n in range(7)]
    for sequence, count in zip(sequences, counts, strict=True):
        log.append(sequence, count, timestamp=sequence + 1000)
    number = 2 + again
    before, end = log.state.image(), log.end
    assert log.append(sequences[number], counts[number]) == DuplicateBatch(sequences[number], sequences[number] + 1000)
    assert (log.state.image(), log.end) == (before, end)
    assert log.state.counters.duplicates == 1


def test_s8_only_the_exact_range_is_a_duplicate(log):
    log.append(0, 5)
    log.append(5, 5)
    for sequence, count in ((5, 4), (6, 4), (0, 10), (4, 5)):
        with pytest.raises(KafkaError):
            log.append(sequence, count)


def test_s8_a_batch_of_another_epoch_is_no_duplicate(log):
    log.append(0, 2, epoch=1)
    with raises(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.append(0, 2, epoch=0)
    assert log.append(0, 2, epoch=2) == 2


def test_s9_the_next_sequence_follows_the_last(log):
    assert log.append(0, 3) == 0
    assert log.append(3) == 3
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append(5)
    assert log.append(4) == 4
    assert log.state.counters.gaps == 1


def test_s9_a_higher_epoch_begins_at_zero(log):
    log.append(0, 3)
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append(3, epoch=1)
    assert log.append(0, epoch=1) == 3
    assert log.append(1, epoch=1) == 4


def test_s9_after_a_marker_of_a_higher_epoch_the_next_is_zero(log):
    log.append(0, 3, transactional=True)
    log.mark(epoch=1)
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append(3, epoch=1, transactional=True)
    assert log.append(0, epoch=1, transactional=True) == 4


def test_s9_after_a_marker_of_the_same_epoch_sequences_continue(log):
    log.append(0, 3, transactional=True)
    assert log.append(0, 3, transactional=True) == DuplicateBatch(0, 0)
    log.mark()
    assert log.append(3, transactional=True) == 4


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
@pytest.mark.parametrize("count", [3, 2])
def test_e33_sequences_of_a_transaction_that_has_ended_are_no_duplicates_in_the_next(log, kind, count):
    """The producer gave up batches, not knowing that the broker had written these batches, and then uses their sequence
    numbers for other batches.
    """
    log.append(0, 3, transactional=True)
    log.mark(kind)
    with raises(ErrorCode.UNKNOWN_PRODUCER_ID):
        log.append(0, count, transactional=True)
    assert log.append(3, 2, transactional=True) == 4, "what it sent behind that"
    with raises(ErrorCode.UNKNOWN_PRODUCER_ID):
        log.append(0, count, transactional=True)
    assert log.append(3, 2, transactional=True) == DuplicateBatch(4, 0)
    log.mark(kind, epoch=1)
    assert log.append(0, epoch=1, transactional=True) == 7


def test_e33_forgotten_sequences_of_an_ended_transaction_are_not_surely_in_the_log(log):
    log.append(0, 3, transactional=True)
    log.mark()
    for sequence in range(3, 9):
        log.append(sequence, transactional=True)
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append(0, 3, transactional=True)
    with raises(ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        log.append(3, transactional=True)


def test_s10_sequences_count_records(log):
    log.append(0, 10)
    assert log.state.get(PID).last_sequence == 9
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append(1, epoch=0, pid=PID, count=20)


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_s11_e14_sequences_wrap_to_zero_also_inside_a_batch(log, count):
    assert log.append(MAX - 1, count) == 0
    following = (MAX - 1 + count) & MAX
    assert log.append(following, 2) == count
    assert log.append(MAX - 1, count) == DuplicateBatch(0, 0)
    assert log.append(following, 2) == DuplicateBatch(count, 0)
    assert log.state.get(PID).first_sequence == following


def test_s12_e15_a_duplicate_older_than_the_window_is_no_gap(log):
    for sequence in range(0, 16, 2):
        log.append(sequence, 2)
    for sequence in (0, 2, 4):
        with raises(ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            log.append(sequence, 2)
    with raises(ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        # A retry divides the same records into other batches than the first attempt, whose records are all in the log.
        log.append(1, 12)
    assert log.state.counters.old_duplicates == 4
    assert log.append(16) == 16


def test_s12_a_batch_that_straddles_the_end_is_never_called_a_duplicate(log):
    log.append(0, 10)
    for sequence, count in ((5, 6), (9, 2), (0, 11), (5, 100)):
        with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            log.append(sequence, count)


def test_s12_the_duplicate_window_works_across_the_wrap(log):
    log.append(MAX - 9, 10)
    for sequence in range(0, 12, 2):
        log.append(sequence, 2)
    with raises(ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        log.append(MAX - 9, 5)
    with raises(ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        log.append(MAX - 1, 4)
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append(MAX - 10, 1)  # this batch was never in this log


def test_s12_a_batch_that_was_perhaps_never_written_is_no_duplicate(log):
    """After the state had expired, two batches were in flight; the second one arrived first and was accepted.

    The first batch was not written.
    """
    log.append(10, 5)
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append(5, 5)
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append(9, 2)


def test_s12_the_sequences_of_another_epoch_say_nothing(log):
    log.append(0, 10)
    log.append(0, 1, epoch=1)
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append(5, 1, epoch=1)
    log.mark(epoch=2)
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append(MAX, 1, epoch=2)


def test_s12_after_two_billion_records_a_gap_is_still_a_gap(log):
    log.append(0, 2**30)
    log.append(2**30, 2**30)
    log.append(0, 10)
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append(11)
    with raises(ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        log.append(MAX - 100)


def test_s12_the_answer_for_old_duplicates_can_be_switched_off():
    log = Log(idempotence_duplicate_classification=KAFKA)
    for sequence in range(7):
        log.append(sequence)
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append(0)
    assert log.append(6) == DuplicateBatch(6, 0)


def test_s13_an_open_transaction_takes_transactional_batches_only(log):
    log.append(0, transactional=True)
    for epoch, sequence in ((0, 1), (1, 0)):
        with raises(ErrorCode.INVALID_TXN_STATE):
            log.append(sequence, epoch=epoch)
    assert log.append(1, transactional=True) == 1
    log.mark()
    assert log.append(2) == 3


def test_a_later_epoch_adds_no_records_to_the_transaction_of_an_earlier_one(log):
    """The coordinator that let the later epoch write does not know of the open transaction; otherwise its commit would
    also commit the records of the earlier epoch.
    """
    log.append(0, transactional=True)
    with raises(ErrorCode.TRANSACTION_ABORTABLE):
        log.append(0, epoch=1, transactional=True)
    assert log.state.has_open_transaction(PID, 0)
    assert log.mark(ControlType.ABORT, epoch=1) is not None, "the marker of the aborted later epoch ends both"
    assert log.append(0, epoch=1, transactional=True) == 2


def test_s39_a_marker_ends_the_transaction_and_sets_the_coordinator_epoch(log):
    log.append(0, 2, transactional=True)
    assert log.mark(coordinator_epoch=5, timestamp=99) == EndedTransaction(PID, 0, 2, 3)
    entry = log.state.get(PID)
    assert (entry.coordinator_epoch, entry.transaction_first_offset, entry.timestamp) == (5, -1, 99)


def test_s39_a_commit_ends_the_transaction_and_has_nothing_for_the_index_of_aborted_ones(log):
    log.append(0, 2, transactional=True)
    assert log.state.first_unstable_offset == 0
    assert log.mark(ControlType.COMMIT) is None
    assert log.state.get(PID).transaction_first_offset == -1
    assert log.state.first_unstable_offset == 0, "until the marker is replicated"
    log.state.on_high_watermark(log.end)
    assert log.state.first_unstable_offset == NOTHING_UNSTABLE


def test_s39_a_marker_without_a_transaction_or_a_repeated_one_ends_nothing(log):
    assert log.mark(epoch=3) is None
    assert log.state.get(PID) == (PID, 3, -1, -1, 0, 0, 0, -1)
    log.append(0, 2, epoch=3, transactional=True)
    assert log.mark(epoch=3) is not None
    assert log.mark(epoch=3) is None


@pytest.mark.parametrize("first", [0, 5])
def test_e16_any_sequence_follows_a_producer_known_only_by_a_marker(log, first):
    """The producer's batches expired or were deleted with their segments, and under transactions V1 the producer
    continues in its epoch.
    """
    log.mark(epoch=3)
    assert log.append(first, 2, epoch=3, transactional=True) == 1
    assert log.append(first, 2, epoch=3, transactional=True).base_offset == 1
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append(first + 3, epoch=3, transactional=True)
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append(
            first - 1 if first else MAX, epoch=3, transactional=True
        )  # the producer does not know that its batch is in the log


def test_e16_only_sequence_zero_follows_a_marker_of_v2_or_of_a_new_epoch(log):
    log.mark(epoch=3)
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append(5, epoch=3, transactional=True, version=TRANSACTIONS_V2)
    log.append(0, epoch=3, transactional=True)
    log.mark(epoch=4)
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append(5, epoch=4, transactional=True)


def test_s39_under_transactions_v2_a_marker_has_the_next_epoch(log):
    log.append(0, transactional=True)
    with raises(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.mark(version=TRANSACTIONS_V2)
    assert log.mark(epoch=1, version=TRANSACTIONS_V2) == EndedTransaction(PID, 0, 1, 2)
    with raises(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.mark(epoch=1, version=TRANSACTIONS_V2)  # a repeated marker, for which the coordinator need not wait
    with raises(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.append(1, transactional=True)  # a late batch of the ended transaction


def test_s39_a_marker_of_a_lower_epoch_is_refused(log):
    log.append(0, epoch=2, transactional=True)
    with raises(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.mark(epoch=1)
    assert open_transactions(log.state) == [(0, PID)]


def test_s40_a_marker_of_an_older_coordinator_is_fenced(log):
    log.append(0, transactional=True)
    log.mark(coordinator_epoch=3)
    log.append(1, transactional=True)
    with raises(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        log.mark(coordinator_epoch=2)
    assert open_transactions(log.state) == [(2, PID)]
    assert log.mark(coordinator_epoch=3) is not None
    assert log.mark(coordinator_epoch=4) is None


def test_s40_data_does_not_forget_the_coordinator_epoch(log):
    log.mark(coordinator_epoch=3)
    log.append(0, epoch=1)
    assert log.state.get(PID).coordinator_epoch == 3


def test_s50_the_oldest_open_transaction_is_the_first_unstable(log):
    state = log.state
    assert state.first_unstable_offset == NOTHING_UNSTABLE
    log.append(0, 2, pid=1, transactional=True)
    log.append(0, 2, pid=2, transactional=True)
    log.append(2, 2, pid=1, transactional=True)
    assert state.first_unstable_offset == 0
    assert open_transactions(state) == [(0, 1), (2, 2)]
    assert log.mark(pid=2) == EndedTransaction(2, 2, 6, 0)
    assert state.first_unstable_offset == 0
    assert log.mark(pid=1) == EndedTransaction(1, 0, 7, 8)


def test_s50_a_completed_transaction_is_unstable_until_its_marker_is_replicated(log):
    state = log.state
    log.append(0, 2, pid=1, transactional=True)
    log.append(0, 2, pid=2, transactional=True)
    log.mark(pid=1)  # offset 4
    log.mark(pid=2)  # offset 5
    for high_watermark, unstable in ((3, 0), (4, 0), (5, 2), (6, NOTHING_UNSTABLE)):
        state.on_high_watermark(high_watermark)
        assert state.first_unstable_offset == unstable


def test_s50_e19_an_open_transaction_is_found_by_producer_and_epoch(log):
    log.append(0, transactional=True, epoch=3)
    assert log.state.has_open_transaction(PID, 3)
    assert not log.state.has_open_transaction(PID, 2)
    log.mark(epoch=3)
    assert not log.state.has_open_transaction(PID, 3)


def test_s56_silent_producers_expire_by_their_timestamps(log):
    log.append(0, pid=1, timestamp=1000)
    log.append(0, pid=2, timestamp=2000)
    assert log.expire(1999, 1000) == [0]
    assert log.expire(2000, 1000) == [1]
    assert [entry.producer_id for entry in log.state.producers()] == [2]
    assert log.append(55, pid=1) == 2


def test_s56_e6_a_producer_with_an_open_transaction_never_expires(log):
    """In Kafka, a transaction timed out and was aborted when all of its records were already older than the producer id
    expiration (KAFKA-9144).
    """
    log.append(0, transactional=True, timestamp=1000)
    assert log.expire(10_000, 1000) == [0]
    log.mark(ControlType.ABORT, coordinator_epoch=9, timestamp=10_000)
    assert log.expire(10_500, 1000) == [0]
    assert log.state.get(PID).coordinator_epoch == 9
    with raises(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        log.mark(coordinator_epoch=8)
    assert log.expire(11_000, 1000) == [1]


def test_s56_batches_may_come_while_producers_expire(log):
    for pid in range(EXPIRY_SLICE + 10):
        log.append(0, pid=pid, timestamp=1)
    sweep = log.state.expire(100, 50)
    assert next(sweep) == EXPIRY_SLICE
    log.append(1, pid=EXPIRY_SLICE + 5, timestamp=90)
    log.append(0, pid=10**6, timestamp=1)
    assert list(sweep) == [EXPIRY_SLICE + 9]
    assert [entry.producer_id for entry in log.state.producers()] == [EXPIRY_SLICE + 5, 10**6]


def test_s9_e16_any_sequence_is_accepted_from_an_unknown_producer(log):
    assert log.append(77, 3) == 0
    assert log.append(80) == 3


def test_s9_t7_under_transactions_v2_an_unknown_producer_begins_at_zero(log):
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append(77, transactional=True, version=TRANSACTIONS_V2)
    assert log.append(77, pid=8, version=TRANSACTIONS_V2) == 0
    assert log.append(0, transactional=True, version=TRANSACTIONS_V2) == 1


def test_s9_e16_the_legacy_error_code_is_given_to_an_unknown_producer():
    log = Log(idempotence_unknown_producer=LEGACY_2_0)
    with raises(ErrorCode.UNKNOWN_PRODUCER_ID):
        log.append(77)
    assert log.append(0) == 0


def test_e26_preparing_changes_nothing(log):
    log.append(0, transactional=True)
    before = log.state.image(), open_transactions(log.state), log.state.first_unstable_offset
    header = (1, 100, 0, 2, 0, TRANSACTIONAL_BIT, 0, 0, 0, PID, 0, 1, 1)
    log.state.prepare_append(header, 1, 0)
    log.state.prepare_append((*header[:9], 8, 0, 0, 1), 1, 0)
    log.state.prepare_marker(PID, 0, EndTransactionMarker(ControlType.ABORT, 0), 0)
    assert (log.state.image(), open_transactions(log.state), log.state.first_unstable_offset) == before


def test_e26_preparing_changes_nothing_for_a_producer_that_keeps_writing(log):
    for n in range(4):
        log.append(n, transactional=True)
    before = log.state.image()
    header = (4, 100, 0, 2, 0, TRANSACTIONAL_BIT, 0, 0, 0, PID, 0, 4, 1)
    log.state.prepare_append(header, 4, 0)
    assert log.state.image() == before
    assert log.append(4, transactional=True) == 4


def test_e27_a_follower_accepts_every_batch_of_its_leader(log):
    def follow(base_offset, sequence, epoch=0, attributes=0):
        log.state.follow((base_offset, 100, 0, 2, 0, attributes, 0, 5, 5, PID, epoch, sequence, 1))

    follow(10, 100)
    follow(11, 500)
    assert log.state.get(PID).last_sequence == 500
    follow(12, 3, epoch=9)
    follow(13, 0, epoch=4, attributes=TRANSACTIONAL_BIT)
    follow(14, 1, epoch=4)  # a leader would have refused this non-transactional batch, but a follower accepts it
    assert log.state.get(PID) == (PID, 4, 1, 14, 0, 5, -1, 13)
    assert open_transactions(log.state) == [(13, PID)]
    marker = EndTransactionMarker(ControlType.ABORT, 2)
    assert log.state.follow_marker(PID, 4, marker, 6, 15) == EndedTransaction(PID, 13, 15, 16)
    log.state.follow_marker(PID, 4, EndTransactionMarker(ControlType.COMMIT, 1), 7, 16)
    assert log.state.get(PID).coordinator_epoch == 1


def test_e27_a_follower_knows_duplicates_when_it_becomes_the_leader(log):
    for n in range(7):
        log.state.follow((n, 100, 0, 2, 0, 0, 0, n, n, PID, 0, n, 1))
    log.end = 7
    assert log.append(3) == DuplicateBatch(3, 3)
    with raises(ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        log.append(0)
    assert log.append(7) == 7


@pytest.mark.parametrize("count", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("start", [0, MAX - 9])
def test_s8_a_producer_that_keeps_writing_is_known_as_one_that_pauses(count, start):
    """Reading the producer state between the batches, in any way, does not change the result."""
    looks = {
        "never": lambda state: None,
        "image": lambda state: state.image(),
        "get": lambda state: state.get(PID),
        "producers": lambda state: list(state.producers()),
        "restore": lambda state: state.restore(state.image()),
        "expire": lambda state: list(state.expire(0, 1000)),
    }
    images = {}
    for name, look in looks.items():
        log = Log()
        for n in range(count):
            log.append((start + 2 * n) % (MAX + 1), 2, timestamp=n)
            look(log.state)
        images[name] = log.state.image()
        for again in range(max(0, count - 5), count):
            assert log.append((start + 2 * again) % (MAX + 1), 2) == DuplicateBatch(2 * again, again)
        if count > 5:
            with raises(ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                log.append(start, 2)
    assert all(image == images["never"] for image in images.values())


def test_s9_a_batch_of_another_epoch_continues_no_sequence(log):
    for n in range(3):
        log.append(n, epoch=1)
    with raises(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.append(3, epoch=0)
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append(3, epoch=2)
    assert log.append(3, epoch=1) == 3
    assert log.append(0, epoch=2) == 4


def test_s56_a_producer_that_keeps_writing_does_not_expire(log):
    for n in range(5):
        log.append(n, timestamp=n * 100)
    assert log.expire(now_ms=1350, expiration_ms=1000) == [0]
    assert log.expire(now_ms=1400, expiration_ms=1000) == [1]
    assert log.append(0) == 5


def test_s56_a_batch_that_comes_during_an_expiry_counts(log):
    for n in range(3):
        log.append(n)
        log.append(n, pid=PID + 1)
    sweep = log.state.expire(now_ms=2000, expiration_ms=1000)
    log.append(3, timestamp=1500)
    assert list(sweep) == [1]
    assert log.state.get(PID).last_sequence == 3


def test_producers_beyond_the_fast_path_limit_are_checked_too(log):
    producers = range(MAX_STREAKS + 20)
    for n in range(4):
        for pid in producers:
            log.append(n, pid=pid)
    assert all(log.state.get(pid).last_sequence == 3 for pid in producers)


def test_batches_of_a_coordinator_have_no_sequence(log):
    assert log.append(-1, 3, transactional=True) == 0
    assert log.append(-1, 3, transactional=True) == 3
    with raises(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.append(-1, 3, transactional=True, epoch=-1)
    assert log.mark() is not None


def test_an_image_restores_the_whole_producer_state(log):
    for pid in range(5):
        for n in range(pid + 2):
            log.append(n, pid=pid, transactional=pid % 2 == 1)
    log.mark(pid=1, epoch=1)
    other = Log()
    other.state.restore(log.state.image())
    assert other.state.image() == log.state.image()
    assert open_transactions(other.state) == open_transactions(log.state) != []
    assert other.state.first_unstable_offset == open_transactions(log.state)[0][0]


def test_p14_a_producer_takes_less_than_400_bytes(log):
    for pid in range(2000):
        for n in range(6):
            log.append(n, pid=10**9 + pid)
    entries = log.state._entries
    used = sys.getsizeof(entries) + sum(sys.getsizeof(pid) + sys.getsizeof(entry) for pid, entry in entries.items())
    assert used / 2000 < 400


def test_the_oldest_open_transaction_is_the_one_that_began_first_in_the_log(log):
    assert log.state.oldest_open is None
    log.append(0, pid=8, transactional=True, timestamp=500)
    log.append(0, transactional=True, timestamp=100)
    log.append(1, pid=8, transactional=True, timestamp=900)
    oldest = log.state.oldest_open
    assert (oldest.producer_id, oldest.timestamp) == (8, 900)
    log.mark(pid=8)
    assert log.state.oldest_open.producer_id == PID
