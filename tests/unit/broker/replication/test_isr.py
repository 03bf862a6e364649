"""The rules of the in-sync replicas (ISR): which replicas leave and join, and which count while a change is pending."""

from __future__ import annotations

import pytest

from oncelog_broker.replication.follower_progress import FollowerProgress
from oncelog_broker.replication.isr import InSync, changed_isr, lags, may_join, needed_in_sync, wanted_isr

LEADER, SECOND, THIRD = 1, 2, 3
LAG_SECONDS = 30.0


def follower(end: int | None, *, caught_up_at: float = 0.0, log_start: int = 0) -> FollowerProgress:
    """Return a follower that has fetched up to `end` and was last caught up at `caught_up_at`; an `end` of None means
    that it has not fetched yet.
    """
    progress = FollowerProgress(caught_up_at)
    if end is not None:
        progress.on_fetch(end, leader_end=1 << 60, now=caught_up_at, log_start_offset=log_start)
    return progress


@pytest.mark.parametrize(("configured", "replicas", "needed"), [(1, 3, 1), (2, 3, 2), (3, 3, 3), (2, 1, 1), (9, 3, 3)])
def test_no_more_replicas_are_needed_than_there_are(configured: int, replicas: int, needed: int) -> None:
    assert needed_in_sync(configured, replicas) == needed


@pytest.mark.parametrize(
    ("end", "now", "is_lagging"),
    [
        (9, 30.0, False),  # the follower has lagged for exactly the longest permitted time
        (9, 30.1, True),
        (10, 1000.0, False),  # the follower has all records, because no record was produced since
        (None, 30.1, True),  # the follower has not fetched in this leader epoch
    ],
)
def test_a_replica_behind_for_too_long_lags(end: int | None, now: float, is_lagging: bool) -> None:
    assert lags(follower(end), 10, now, LAG_SECONDS) is is_lagging


@pytest.mark.parametrize(
    ("end", "log_start", "joins"),
    [
        (10, 5, True),
        (9, 5, False),  # below the high watermark: an acknowledged record is missing
        (7, 5, False),
        (10, 4, False),  # the follower still has records that were reported as deleted
        (None, 5, False),
    ],
)
def test_a_joining_replica_has_all_acknowledged_and_no_deleted_records(
    end: int | None, log_start: int, joins: bool
) -> None:
    progress = follower(end, log_start=log_start)
    assert may_join(progress, high_watermark=10, epoch_start_offset=8, log_start_offset=5) is joins


def test_a_joining_replica_has_all_records_that_a_former_leader_may_have_acknowledged() -> None:
    """The high watermark of a new leader may be lower than that of the previous leader."""
    assert not may_join(follower(11), high_watermark=10, epoch_start_offset=12, log_start_offset=0)
    assert may_join(follower(12), high_watermark=10, epoch_start_offset=12, log_start_offset=0)


def test_a_replica_that_left_the_isr_must_fetch_again_before_it_joins() -> None:
    progress = follower(10)
    progress.may_be_gone = True
    assert not may_join(progress, high_watermark=10, epoch_start_offset=0, log_start_offset=0)
    progress.on_fetch(10, leader_end=10, now=1.0, log_start_offset=0)
    assert may_join(progress, high_watermark=10, epoch_start_offset=0, log_start_offset=0)


def test_members_of_both_isrs_count_until_a_proposal_is_answered() -> None:
    in_sync = InSync((LEADER, SECOND))
    in_sync.propose((LEADER, THIRD))
    assert in_sync.maximal == {LEADER, SECOND, THIRD}
    assert in_sync.committed == (LEADER, SECOND)
    in_sync.adopt((LEADER, THIRD), 1, is_new_epoch=False)
    assert (in_sync.maximal, in_sync.proposed) == ({LEADER, THIRD}, None)


def test_a_proposal_that_was_refused_counts_no_more() -> None:
    in_sync = InSync((LEADER, SECOND))
    in_sync.propose((LEADER,))
    in_sync.withdraw()
    assert (in_sync.maximal, in_sync.proposed) == ({LEADER, SECOND}, None)


def test_the_same_state_again_leaves_the_proposal_open() -> None:
    """A lagging image may still show the partition state on which the leader's pending proposal is based, and the
    controller may yet accept that proposal.
    """
    in_sync = InSync((LEADER, SECOND))
    in_sync.adopt((LEADER, SECOND), 4, is_new_epoch=False)
    in_sync.propose((LEADER,))
    assert in_sync.adopt((LEADER, SECOND), 4, is_new_epoch=False)
    assert in_sync.proposed == (LEADER,)


def test_an_older_state_changes_nothing_but_a_new_leader_epoch_counts() -> None:
    in_sync = InSync((LEADER,))
    in_sync.adopt((LEADER, SECOND), 5, is_new_epoch=False)
    assert not in_sync.adopt((LEADER,), 4, is_new_epoch=False)
    assert in_sync.committed == (LEADER, SECOND)
    in_sync.propose((LEADER, SECOND, THIRD))
    assert in_sync.adopt((LEADER,), 4, is_new_epoch=True)
    assert (in_sync.committed, in_sync.proposed) == ((LEADER,), None)


@pytest.mark.parametrize(
    ("leaving", "joining", "isr"),
    [
        ([SECOND], [], (LEADER, THIRD)),
        ([], [4], (LEADER, SECOND, THIRD, 4)),
        ([SECOND], [4], (LEADER, THIRD, 4)),
        ([], [SECOND], None),  # no change
        ([LEADER, SECOND, THIRD], [], None),  # an ISR has at least one member
    ],
)
def test_the_proposed_isr_is_computed(leaving: list[int], joining: list[int], isr: tuple[int, ...] | None) -> None:
    assert changed_isr((LEADER, SECOND, THIRD), leaving, joining) == isr


def wanted(followers: dict[int, FollowerProgress], joining: list[int], now: float) -> tuple[int, ...] | None:
    in_sync = InSync((LEADER, SECOND))
    return wanted_isr(in_sync, followers, joining=joining, log_end_offset=10, now=now, lag_seconds=LAG_SECONDS)


def test_the_isr_loses_lagging_replicas_and_gains_caught_up_ones() -> None:
    assert wanted({SECOND: follower(9), THIRD: follower(10)}, [THIRD], 31.0) == (LEADER, THIRD)
    assert wanted({SECOND: follower(10), THIRD: follower(10)}, [THIRD], 31.0) == (LEADER, SECOND, THIRD)
    assert wanted({SECOND: follower(10), THIRD: follower(9)}, [], 31.0) is None


def test_a_lagging_replica_does_not_join_although_nothing_new_is_acknowledged() -> None:
    """A replica that joined in this state would leave the ISR immediately, and two such replicas would join and leave
    in turn for ever.
    """
    assert wanted({SECOND: follower(10), THIRD: follower(9)}, [THIRD], 31.0) is None
