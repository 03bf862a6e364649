"""Which records a share partition delivers, and how many of them together."""

from __future__ import annotations

import pytest

from oncelog_broker.coordinator.share.state_batches import DeliveryState, StateBatch
from oncelog_broker.sharing.acquisition import Acquired, LogBatch, Terms, acquire
from oncelog_broker.sharing.share_partition import SharePartition

TERMS = Terms("a", deadline=30.0, max_records=100, batch_size=100, is_exact=False, delivery_limit=5, max_locks=2_000)
TENS = [LogBatch(first, first + 9) for first in range(0, 100, 10)]


def take(
    share: SharePartition, terms: Terms = TERMS, batches: list[LogBatch] | None = None
) -> list[tuple[int, int, int]]:
    """Acquire records from the first available offset on."""
    offset = share.next_offset(terms.max_locks)
    if offset is None:
        return []
    return [tuple(acquired) for acquired in acquire(share, offset, TENS if batches is None else batches, terms)]  # type: ignore[misc]


def delivered(share: SharePartition, times: int, terms: Terms = TERMS) -> SharePartition:
    """Deliver all available records this many times, and release them each time."""
    for _ in range(times):
        while take(share, terms):
            pass
        share.release("a", terms.delivery_limit)
    return share


def test_whole_batches_are_handed_out_up_to_the_limit() -> None:
    share = SharePartition(0)
    assert take(share, TERMS._replace(max_records=15)) == [(0, 19, 1)]
    assert take(share, TERMS._replace(max_records=10)) == [(20, 29, 1)]


def test_an_exact_limit_divides_a_batch() -> None:
    share = SharePartition(0)
    exact = TERMS._replace(max_records=15, is_exact=True)
    assert take(share, exact) == [(0, 14, 1)]
    assert take(share, exact) == [(15, 29, 1)]


def test_acquired_batches_have_about_the_asked_size() -> None:
    assert take(SharePartition(0), TERMS._replace(batch_size=20, max_records=50)) == [
        (0, 19, 1),
        (20, 39, 1),
        (40, 49, 1),
    ]


def test_a_share_partition_that_begins_within_a_batch_hands_out_the_rest_of_it() -> None:
    assert take(SharePartition(4), TERMS._replace(max_records=1)) == [(4, 9, 1)]


def test_records_that_were_given_back_come_first_and_records_of_others_are_skipped() -> None:
    share = SharePartition(0)
    take(share, TERMS._replace(max_records=10))
    take(share, TERMS._replace(owner="b", max_records=10))
    share.release("a", 5)
    assert take(share, TERMS._replace(max_records=20)) == [(0, 9, 2), (20, 29, 1)]


def test_q9_nothing_new_is_handed_out_while_too_many_are_in_flight_but_what_was_given_back_is() -> None:
    share, few = SharePartition(0), TERMS._replace(max_locks=20)
    assert take(share, few._replace(max_records=10)) == [(0, 9, 1)]
    assert take(share, few._replace(owner="b")) == [(10, 19, 1)]
    assert take(share, few) == []
    share.release("b", 5)
    assert take(share, few) == [(10, 19, 2)]


def test_offsets_without_records_are_archived_so_that_the_start_moves() -> None:
    """The log was compacted, so only some offsets still have records."""
    share = SharePartition(0)
    assert take(share, batches=[LogBatch(5, 6), LogBatch(12, 14)]) == [(5, 6, 1), (12, 14, 1)]
    assert share.start_offset == 5
    assert share.take_outbox() == [StateBatch(7, 11, DeliveryState.ARCHIVED, 0)], (
        "what is below the start offset goes without saying"
    )


def test_markers_and_aborted_records_are_archived_and_not_handed_out() -> None:
    share = SharePartition(0)
    batches = [LogBatch(0, 4), LogBatch(5, 5, is_delivered=False), LogBatch(6, 9)]
    assert take(share, batches=batches) == [(0, 4, 1), (6, 9, 1)]
    assert take(SharePartition(0), batches=[LogBatch(0, 7, is_delivered=False)]) == []


def test_a_log_of_markers_alone_is_done() -> None:
    share = SharePartition(0)
    take(share, batches=[LogBatch(0, 7, is_delivered=False)])
    assert (share.start_offset, share.kept_start_offset, share.take_outbox()) == (8, 8, [])


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (1, [(0, 15, 2)]),
        (2, [(0, 15, 3)]),
        (3, [(0, 7, 4)]),
        (4, [(0, 0, 5)]),
    ],
)
def test_q10_a_run_that_was_delivered_often_is_handed_out_alone_and_in_halves(
    times: int, expected: list[tuple[int, int, int]]
) -> None:
    """With a delivery limit of 5, a run of records that was delivered three times is next delivered in halves, and the
    last time record by record.
    """
    share = SharePartition(0, [StateBatch(0, 15, DeliveryState.AVAILABLE, times)])
    assert take(share, batches=[LogBatch(0, 15), LogBatch(16, 31)])[:1] == expected


def test_q10_neighbours_of_a_record_that_is_never_accepted_survive() -> None:
    """The member fails whenever it gets offset 5, and accepts all records when it gets others without offset 5."""
    share, accepted = SharePartition(0), set[int]()
    batch = [LogBatch(0, 15)]
    for _ in range(200):
        got = take(share, batches=batch)
        if not got:
            break
        offsets = {offset for first, last, _ in got for offset in range(first, last + 1)}
        if 5 in offsets:
            share.release("a", 5)
            continue
        accepted |= offsets
        for run in share.runs.runs:
            if run.owner == "a":
                run.settle(DeliveryState.ACKNOWLEDGED)
        share.runs.advance()
    assert accepted == set(range(16)) - {5}
    assert share.start_offset == 16


def test_a_batch_of_the_log_that_is_handed_out_in_part_continues_where_it_was_left() -> None:
    share = SharePartition(0)
    exact = TERMS._replace(max_records=3, is_exact=True)
    taken = [take(share, exact) for _ in range(4)]
    assert taken == [[(0, 2, 1)], [(3, 5, 1)], [(6, 8, 1)], [(9, 11, 1)]]
    assert Acquired(*taken[0][0]).deliveries == 1
