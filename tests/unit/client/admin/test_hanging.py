"""The admin client derives from given responses which transactions hang, which will end without help, and which
transaction holds back a partition.
"""

from dataclasses import replace

import pytest

from oncelog.admin.hanging import (
    DescribedTransaction,
    Hang,
    OpenTransaction,
    PartitionEnds,
    ProducerState,
    TransactionLimits,
    explanation,
)
from oncelog.cluster import TopicPartition

HERE, ELSEWHERE = TopicPartition("orders", 0), TopicPartition("orders", 1)
START_MS = 1_700_000_000_000
LIMITS = TransactionLimits(max_timeout_ms=900_000, abort_interval_ms=10_000)
HELD = DescribedTransaction("billing", "Ongoing", 7, 2, 60_000, START_MS, frozenset({HERE, ELSEWHERE}), 1)
ENDS = PartitionEnds(log_start_offset=0, last_stable_offset=5, high_watermark=9)


def opened(start_offset: int = 5, held: DescribedTransaction | None = HELD, epoch: int = 2) -> OpenTransaction:
    state = ProducerState(7, epoch, 0, START_MS, -1, start_offset)
    return OpenTransaction(HERE, state, start_offset, held)


@pytest.mark.parametrize(
    ("held", "now_ms", "hang"),
    [
        (HELD, START_MS, None),
        (HELD, START_MS + 910_000, None),
        (HELD, START_MS + 910_001, Hang.OVERDUE),
        (replace(HELD, state="PrepareCommit", producer_epoch=3), START_MS, None),
        (replace(HELD, partitions=frozenset({ELSEWHERE})), START_MS, Hang.NOT_HELD),
        (replace(HELD, state="CompleteAbort", start_time_ms=None, partitions=frozenset()), START_MS, Hang.NOT_HELD),
        (None, START_MS, Hang.UNKNOWN),
    ],
)
def test_e32_a_transaction_that_no_coordinator_will_end_hangs(
    held: DescribedTransaction | None, now_ms: int, hang: Hang | None
) -> None:
    assert opened(held=held).hang(now_ms, LIMITS) is hang


@pytest.mark.parametrize(
    ("state", "coordinator_epoch", "in_the_log", "hang"),
    [
        ("PrepareCommit", 3, 4, Hang.FENCED),
        ("PrepareAbort", 3, 2**31 - 1, Hang.FENCED),
        ("PrepareAbort", 3, 3, None),
        ("PrepareAbort", 3, -1, None),
        ("PrepareAbort", -1, 4, None),
        ("Ongoing", 3, 4, None),
    ],
)
def test_s40_a_decision_that_a_log_refuses_hangs(
    state: str, coordinator_epoch: int, in_the_log: int, hang: Hang | None
) -> None:
    known = opened(held=replace(HELD, state=state))
    producer = replace(known.producer, coordinator_epoch=in_the_log)
    fenced = replace(known, producer=producer, coordinator_epoch=coordinator_epoch)
    assert fenced.hang(START_MS, LIMITS) is hang
    assert fenced.may_be_aborted_here is (hang is Hang.FENCED and state == "PrepareAbort"), "a commit would be torn"


def test_e32_a_marker_of_a_later_epoch_ends_a_transaction() -> None:
    assert opened(epoch=1).hang(START_MS, LIMITS) is None


@pytest.mark.parametrize(("age_ms", "is_late"), [(1_200_000, False), (1_200_001, True)])
def test_e32_a_late_transaction_is_one_that_kafkas_metric_counts(age_ms: int, is_late: bool) -> None:
    assert opened().is_late(START_MS + age_ms, LIMITS) is is_late


def test_s42_a_transaction_ends_when_its_timeout_and_the_abort_interval_have_passed() -> None:
    assert opened().ends_by_ms(LIMITS) == START_MS + 60_000 + 10_000
    for held in (
        None,
        replace(HELD, state="PrepareAbort"),
        replace(HELD, start_time_ms=None),
        replace(HELD, partitions=frozenset({ELSEWHERE})),
    ):
        assert opened(held=held).ends_by_ms(LIMITS) is None


def test_s120_a_transaction_without_timeout_neither_hangs_nor_ends_by_itself() -> None:
    held = replace(HELD, timeout_ms=2**31 - 1)
    year_ms = 365 * 24 * 3600 * 1000
    assert (HELD.has_timeout, held.has_timeout) == (True, False)
    assert opened(held=held).hang(START_MS + year_ms, LIMITS) is None
    assert opened(held=held).ends_by_ms(LIMITS) is None


def test_s50_the_oldest_open_transaction_pins_the_last_stable_offset() -> None:
    explained = explanation(HERE, ENDS, [opened(7), opened(5)], START_MS, LIMITS, 11)
    assert explained.pinned_by == opened(5)
    assert explained.later == (opened(7),)
    assert (explained.held_back, explained.hang, explained.first_timestamp_ms) == (4, None, 11)
    assert explained.ends_by_ms == START_MS + 70_000


def test_a_partition_without_open_transactions_is_not_pinned() -> None:
    explained = explanation(HERE, PartitionEnds(0, 9, 9), [], START_MS, LIMITS)
    assert (explained.pinned_by, explained.is_held_back, explained.held_back) == (None, False, 0)


def test_a_transaction_that_has_ended_meanwhile_pins_nothing() -> None:
    explained = explanation(HERE, PartitionEnds(0, 8, 9), [opened(5), opened(8)], START_MS, LIMITS)
    assert explained.is_held_back
    assert explained.pinned_by is None
    assert explained.later == (opened(8),)


def test_a_transaction_pins_even_when_its_first_records_are_deleted() -> None:
    explained = explanation(HERE, PartitionEnds(9, 9, 9), [opened(5)], START_MS, LIMITS)
    assert explained.pinned_by == opened(5)
    assert explained.held_back == 0


def test_the_explanation_says_why_a_transaction_hangs() -> None:
    explained = explanation(HERE, ENDS, [opened(held=None)], START_MS, LIMITS)
    assert (explained.hang, explained.ends_by_ms) == (Hang.UNKNOWN, None)
