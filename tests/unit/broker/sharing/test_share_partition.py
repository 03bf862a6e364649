"""One share partition: its initial state, expiring locks, ended sessions, and the moving log start."""

from __future__ import annotations

from oncelog_broker.coordinator.share.state_batches import DeliveryState, StateBatch
from oncelog_broker.sharing.acquisition import LogBatch, Terms, acquire
from oncelog_broker.sharing.share_partition import NO_DEADLINE, SharePartition

AVAILABLE, ACKNOWLEDGED, ARCHIVED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED


def give(share: SharePartition, count: int, owner: str, deadline: float = 30.0) -> None:
    terms = Terms(owner, deadline, count, 100, is_exact=True, delivery_limit=5, max_locks=2_000)
    acquire(share, share.next_offset(2_000) or 0, [LogBatch(0, 999)], terms)


def shown(share: SharePartition) -> list[tuple[int, int, str, int]]:
    return [(run.first, run.last, run.state.name, run.deliveries) for run in share.runs.runs]


def test_q2_records_that_were_in_flight_elsewhere_are_available_again() -> None:
    """Records between the stored batches, and below the first one, are available."""
    share = SharePartition(10, [StateBatch(15, 19, ACKNOWLEDGED, 1), StateBatch(22, 24, AVAILABLE, 2)])
    assert shown(share) == [
        (10, 14, "AVAILABLE", 0),
        (15, 19, "ACKNOWLEDGED", 1),
        (20, 21, "AVAILABLE", 0),
        (22, 24, "AVAILABLE", 2),
    ]
    assert share.next_offset(2_000) == 10


def test_q2_records_that_are_kept_as_acquired_are_available_again() -> None:
    """No member has locked the acquired records, so no lock would ever expire and release these records."""
    share = SharePartition(0, [StateBatch(0, 4, DeliveryState.ACQUIRED, 2)])
    assert shown(share) == [(0, 4, "AVAILABLE", 2)]
    assert share.next_offset(2_000) == 0


def test_batches_that_overlap_are_cut() -> None:
    share = SharePartition(10, [StateBatch(5, 12, ACKNOWLEDGED, 1), StateBatch(11, 14, AVAILABLE, 1)])
    assert share.start_offset == 13
    assert shown(share) == [(13, 14, "AVAILABLE", 1)]


def test_the_start_moves_beyond_what_was_done_before() -> None:
    assert SharePartition(10, [StateBatch(10, 19, ARCHIVED, 1)]).start_offset == 20


def test_a_lock_that_runs_out_gives_records_back_and_that_is_kept() -> None:
    share = SharePartition(0)
    give(share, 5, "a", deadline=30.0)
    give(share, 5, "b", deadline=40.0)
    assert share.next_deadline == 30.0
    assert not share.expire(29.0, 5)
    assert share.expire(30.0, 5)
    assert shown(share) == [(0, 4, "AVAILABLE", 1), (5, 9, "ACQUIRED", 1)]
    assert share.take_outbox() == [StateBatch(0, 4, AVAILABLE, 1)]
    assert share.next_deadline == 40.0
    assert share.expire(40.0, 5)
    assert share.next_deadline == NO_DEADLINE


def test_a_lock_that_runs_out_after_the_last_delivery_archives() -> None:
    share = SharePartition(0, [StateBatch(0, 0, AVAILABLE, 1)])
    give(share, 1, "a")
    assert share.expire(30.0, 2)
    assert share.start_offset == 1


def test_q3_a_session_that_ends_gives_back_its_own_records_alone() -> None:
    share = SharePartition(0)
    give(share, 3, "a")
    give(share, 3, "b")
    give(share, 3, "a")
    assert share.release("a", 5)
    assert shown(share) == [(0, 2, "AVAILABLE", 1), (3, 5, "ACQUIRED", 1), (6, 8, "AVAILABLE", 1)]
    assert not share.release("nobody", 5)


def test_records_below_the_start_of_the_log_are_forgotten() -> None:
    share = SharePartition(0)
    give(share, 10, "a")
    assert share.move_log_start(4)
    assert (share.start_offset, shown(share)) == (4, [(4, 9, "ACQUIRED", 1)])
    assert not share.move_log_start(4)
    assert share.move_log_start(50)
    assert (share.start_offset, share.next_offset(2_000), shown(share)) == (50, 50, [])


def test_q4_the_log_start_moves_while_a_change_is_being_kept() -> None:
    share = SharePartition(0)
    give(share, 10, "a")
    for run in share.runs.runs:
        run.becomes, run.transition = ACKNOWLEDGED, share.new_transition()
    share.move_log_start(4)
    share.finish(1, is_kept=False, now=1.0, delivery_limit=5)
    assert shown(share) == [(4, 9, "ACQUIRED", 1)]
    share.move_log_start(20)
    share.finish(1, is_kept=True, now=1.0, delivery_limit=5)
    assert share.start_offset == 20


def test_what_is_kept_says_how_many_records_are_done_beyond_the_start() -> None:
    share = SharePartition(0, [StateBatch(2, 4, ACKNOWLEDGED, 1), StateBatch(7, 7, ARCHIVED, 5)])
    assert (share.kept_start_offset, share.kept_complete_count) == (0, 4)


def test_no_more_is_handed_out_while_too_many_are_in_flight() -> None:
    share = SharePartition(0)
    give(share, 10, "a")
    assert share.next_offset(10) is None
    assert share.next_offset(11) == 10
