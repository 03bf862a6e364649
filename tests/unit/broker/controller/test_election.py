"""Who leads and who is in sync, one partition at a time."""

import pytest

from oncelog_broker.controller.election import RECOVERING, first_leader, next_state
from oncelog_broker.controller.view import KnownState, LiveBroker
from oncelog_broker.metadata.payloads import PartitionState

WRITTEN = 100
STEADY, RETURNED, UNSURE, GONE = "steady", "returned", "unsure", "gone"


def brokers(**how):
    """Brokers by name, `b1=STEADY`: there since before the state was written, or registered after it, perhaps unsure
    of the end of its log, or so and gone again."""
    return {
        int(name[1:]): LiveBroker(int(name[1:]), 50 if kind == STEADY else 150)
        for name, kind in how.items()
        if kind != GONE
    }, {int(name[1:]): 120 for name, kind in how.items() if kind in (UNSURE, GONE)}


def decide(state, live, unclean=False):
    there, unsure = live
    return next_state((1, 2, 3), KnownState(state, 7, WRITTEN), there, unsure, controller_epoch=6, unclean=unclean)


def test_a_new_partition_is_led_by_its_first_live_replica_with_all_live_ones_in_sync():
    assert first_leader((1, 2, 3), {2, 3, 4}, controller_epoch=7) == PartitionState(2, 0, (2, 3), 7)
    assert first_leader((1, 2), {3}, 7) is None


@pytest.mark.parametrize(
    ("state", "live"),
    [
        (PartitionState(1, 3, (1, 2), 5), brokers(b1=STEADY, b2=STEADY)),
        (PartitionState(1, 3, (1, 2), 5), brokers(b1=STEADY, b2=STEADY, b3=RETURNED)),
        (PartitionState(-1, 4, (1,), 6), brokers(b2=STEADY, b3=STEADY)),
        (PartitionState(-1, 4, (1, 2), 6), brokers()),
    ],
    ids=["all well", "one outside returns", "none in sync lives", "nobody lives"],
)
def test_what_is_as_it_should_be_stays(state, live):
    assert decide(state, live) is None


@pytest.mark.parametrize(
    ("state", "live", "elected"),
    [
        # the preferred live replica of the ISR leads, the dead leave it
        (PartitionState(1, 3, (1, 3, 2), 5), brokers(b2=STEADY, b3=STEADY), PartitionState(2, 4, (3, 2), 6)),
        # who has been away is not elected while another one has not
        (PartitionState(1, 3, (1, 2), 5), brokers(b1=RETURNED, b2=STEADY), PartitionState(2, 4, (2,), 6)),
        # alone, it is, with a new epoch although the leader stays the same
        (PartitionState(1, 3, (1,), 5), brokers(b1=RETURNED), PartitionState(1, 4, (1,), 6)),
        # all came back: one leads, and the others have to catch up
        (
            PartitionState(2, 3, (2, 1, 3), 5),
            brokers(b1=RETURNED, b2=RETURNED, b3=RETURNED),
            PartitionState(1, 4, (1,), 6),
        ),
        # nobody in sync lives: no leader, and the ISR says whom to wait for
        (PartitionState(1, 3, (1,), 5), brokers(b2=STEADY, b3=STEADY), PartitionState(-1, 4, (1,), 6)),
        # one of them is back
        (PartitionState(-1, 4, (1, 2), 5), brokers(b2=RETURNED), PartitionState(2, 5, (2,), 6)),
        # whoever may have lost its tail leaves to those who have not
        (PartitionState(1, 3, (1, 2), 5), brokers(b1=UNSURE), PartitionState(-1, 4, (2,), 6)),
        (PartitionState(-1, 4, (1, 2), 5), brokers(b1=UNSURE, b2=RETURNED), PartitionState(2, 5, (2,), 6)),
        (PartitionState(-1, 4, (1, 2), 5), brokers(b1=UNSURE), PartitionState(-1, 4, (2,), 6)),
        # also if it is gone again before anybody has looked: the next write would say that it is in sync
        (PartitionState(1, 3, (1, 2), 5), brokers(b2=GONE), PartitionState(-1, 4, (1,), 6)),
        (PartitionState(2, 3, (1, 2), 5), brokers(b1=RETURNED, b2=GONE), PartitionState(1, 4, (1,), 6)),
    ],
)
def test_elections_lose_nothing(state, live, elected):
    assert decide(state, live) == (elected, False)


def test_a_follower_that_was_away_leaves_the_isr_without_a_new_leader_epoch():
    before = PartitionState(1, 3, (1, 2, 3), 5)
    assert decide(before, brokers(b1=STEADY, b2=RETURNED, b3=STEADY)) == (PartitionState(1, 3, (1, 3), 6), False)
    assert decide(before, brokers(b1=STEADY)) == (PartitionState(1, 3, (1,), 6), False)


def test_the_last_ones_lead_even_if_they_may_have_lost_their_tails_and_it_is_said():
    assert decide(PartitionState(1, 3, (1,), 5), brokers(b1=UNSURE)) == (PartitionState(1, 4, (1,), 6), True)
    both = brokers(b1=UNSURE, b2=UNSURE)
    assert decide(PartitionState(2, 3, (2, 1), 5), both) == (PartitionState(1, 4, (1,), 6), True)


def test_an_unclean_election_happens_only_where_it_is_allowed_and_no_clean_one_can():
    offline = PartitionState(-1, 4, (1,), 5)
    live = brokers(b2=STEADY, b3=STEADY)
    assert decide(offline, live) is None
    recovering = PartitionState(2, 5, (2,), 6, leader_recovery_state=RECOVERING)
    assert decide(offline, live, unclean=True) == (recovering, True)
    clean = decide(PartitionState(1, 3, (1, 3), 5), live, unclean=True)
    assert clean == (PartitionState(3, 4, (3,), 6), False)
    # one of the ISR that may have lost its tail has more than one that was never in it
    unsure = decide(PartitionState(3, 3, (3, 1), 5), brokers(b1=UNSURE, b2=STEADY), unclean=True)
    assert unsure == (PartitionState(1, 4, (1,), 6), True)
