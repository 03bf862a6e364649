"""A leader's knowledge about a follower: the follower's fetch offset, and the time since when the follower lags."""

from __future__ import annotations

from oncelog_broker.replication.follower_progress import FollowerProgress


def test_no_follower_lags_when_an_epoch_begins() -> None:
    follower = FollowerProgress(7.0)
    assert (follower.log_end_offset, follower.last_caught_up) == (None, 7.0)


def test_a_follower_at_the_leaders_end_has_caught_up() -> None:
    follower = FollowerProgress(0.0)
    follower.on_fetch(10, leader_end=10, now=5.0)
    assert follower.last_caught_up == 5.0


def test_a_follower_one_round_trip_behind_caught_up_at_its_last_fetch() -> None:
    """If only the leader's present log end counted, a follower would always lag behind a leader that receives records
    continuously.
    """
    follower = FollowerProgress(0.0)
    follower.on_fetch(8, leader_end=10, now=5.0)
    follower.on_fetch(10, leader_end=14, now=6.0)
    assert follower.last_caught_up == 5.0
    follower.on_fetch(13, leader_end=20, now=7.0)
    assert follower.last_caught_up == 5.0, "the leader had 14 then"


def test_fetches_of_an_older_incarnation_do_not_count() -> None:
    follower = FollowerProgress(0.0)
    assert follower.on_fetch(10, leader_end=10, now=1.0, broker_epoch=8, log_start_offset=2)
    assert not follower.on_fetch(20, leader_end=20, now=2.0, broker_epoch=7, log_start_offset=9)
    assert (follower.log_end_offset, follower.log_start_offset, follower.last_caught_up) == (10, 2, 1.0)
