"""The lease says until when a broker may lead; these tests check its arithmetic."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog_broker.config.zookeeper_keys import BROKER_SESSION_LEASE
from oncelog_broker.metadata.stores.lease import HEARTBEAT_SHARE, LEASE_SHARE, Lease

T = 8.0


def test_no_answered_heartbeat_means_no_lease():
    assert Lease(T).until == -math.inf


def test_a_heartbeat_seen_by_the_leader_counts_at_once():
    lease = Lease(T)
    lease.seen_by_leader(100.0)
    assert lease.until == 100.0 + 0.9 * T


def test_an_answered_heartbeat_counts_when_a_later_one_is_answered():
    """The ZooKeeper follower that responded to the first heartbeat may have died before it forwarded the heartbeat to
    its leader.
    """
    lease = Lease(T)
    lease.answered(100.0)
    assert lease.until == -math.inf
    lease.answered(100.0 + T / 8)
    assert lease.until == 100.0 + 0.9 * T


def test_a_heartbeat_sent_too_soon_afterwards_proves_nothing():
    lease = Lease(T)
    lease.answered(100.0)
    lease.answered(100.9)
    assert lease.until == -math.inf
    lease.answered(101.0)  # an eighth of the timeout after the first heartbeat, 0.1 s after the second
    assert lease.until == 100.0 + 0.9 * T
    lease.answered(102.0)
    assert lease.until == 101.0 + 0.9 * T


@pytest.mark.parametrize("answered", [2, 3, 50])
def test_the_remaining_lease_after_the_last_answer_is_reported(answered):
    """Heartbeats are sent regularly and get immediate responses; then the responses stop."""
    lease, last = Lease(T), 0.0
    for number in range(answered):
        last = 100.0 + number * HEARTBEAT_SHARE * T
        lease.answered(last)
    left = (lease.until - last) / T
    assert left == pytest.approx(LEASE_SHARE - HEARTBEAT_SHARE)
    assert f"{left:.2f} of the session timeout after ZooKeeper's last response" in BROKER_SESSION_LEASE.doc


def test_an_old_answer_does_not_shorten_the_lease():
    lease = Lease(T)
    lease.seen_by_leader(200.0)
    lease.answered(100.0)
    lease.answered(110.0)
    assert lease.until == 200.0 + 0.9 * T


@given(
    gaps=st.lists(st.floats(0.01, 3 * T), min_size=1, max_size=40),
    answered=st.lists(st.booleans(), min_size=40, max_size=40),
    lag=st.floats(0.0, T / 8),
)
def test_the_lease_ends_before_a_leader_that_hears_late_can_end_the_session(gaps, answered, lag):
    """The ZooKeeper follower forwards each heartbeat to its leader up to `lag` later, and may die before it forwards
    the newest heartbeat. Only heartbeats that reached the follower at least `lag` before its last response are certain
    to be known to the leader.
    """
    lease, now, sent = Lease(T), 0.0, []
    lease.seen_by_leader(0.0)
    for gap, is_answered in zip(gaps, answered, strict=False):
        now += gap
        if is_answered:
            lease.answered(now)
            sent.append(now)
    heard = max([0.0, *(each for each in sent if each <= sent[-1] - lag)]) if sent else 0.0
    assert lease.until <= heard + LEASE_SHARE * T < heard + T
