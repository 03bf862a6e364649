"""The choice of leader and ISR, for one partition per test."""

import pytest

from oncelog_broker.controller.candidates import OFFLINE, UNKNOWN, LogEnd
from oncelog_broker.controller.election import RECOVERING, Election, Undecided, first_leader, next_state, outcome
from oncelog_broker.controller.known_broker import NEVER, NOT_REGISTERED, KnownBroker
from oncelog_broker.controller.view import KnownState
from oncelog_broker.metadata.model.payloads import PartitionState

WRITTEN = 100
STEADY, RETURNED, UNSURE, GONE = "steady", "returned", "unsure", "gone"


def brokers(**how):
    """Return brokers by name, such as `b1=STEADY`. Steady brokers were registered before the state was written; other
    brokers registered later, may have lost the end of their logs, or are no longer registered.
    """
    epochs = {STEADY: 50, RETURNED: 150, UNSURE: 150, GONE: NOT_REGISTERED}
    return {
        int(name[1:]): KnownBroker(int(name[1:]), epochs[kind], unsure_since=120 if kind in (UNSURE, GONE) else NEVER)
        for name, kind in how.items()
    }


def decide(state, live, unclean=False):
    return next_state(Election((1, 2, 3), KnownState(state, 7, WRITTEN), live, controller_epoch=6, unclean=unclean))


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
    ids=["all well", "one outside returns", "no in-sync replica is alive", "no replica is alive"],
)
def test_a_correct_state_stays_as_it_is(state, live):
    assert decide(state, live) is None


@pytest.mark.parametrize(
    ("state", "live", "elected"),
    [
        # the first live replica of the ISR, in the order of preference, leads; dead replicas leave the ISR
        (PartitionState(1, 3, (1, 3, 2), 5), brokers(b2=STEADY, b3=STEADY), PartitionState(2, 4, (3, 2), 6)),
        # a replica that restarted with all records stays in the ISR, but is not elected while a replica that never
        # restarted is alive
        (PartitionState(1, 3, (1, 2), 5), brokers(b1=RETURNED, b2=STEADY), PartitionState(2, 4, (1, 2), 6)),
        (
            PartitionState(1, 3, (1, 2, 3), 5),
            brokers(b1=UNSURE, b2=STEADY, b3=RETURNED),
            PartitionState(2, 4, (2, 3), 6),
        ),
        # a returned replica is elected if no other replica is alive; the leader epoch rises although the leader stays
        # the same
        (PartitionState(1, 3, (1,), 5), brokers(b1=RETURNED), PartitionState(1, 4, (1,), 6)),
        # all replicas returned with all records: one of them leads, and all are in sync
        (
            PartitionState(2, 3, (2, 1, 3), 5),
            brokers(b1=RETURNED, b2=RETURNED, b3=RETURNED),
            PartitionState(1, 4, (2, 1, 3), 6),
        ),
        # no in-sync replica is alive: the partition has no leader, and the replica that may lead again stays in the ISR
        (PartitionState(1, 3, (1,), 5), brokers(b2=STEADY, b3=STEADY), PartitionState(-1, 4, (1,), 6)),
        # one of the in-sync replicas has restarted, with all records
        (PartitionState(-1, 4, (1, 2), 5), brokers(b2=RETURNED), PartitionState(2, 5, (2,), 6)),
        # replicas that may have lost the end of their logs are not elected if other replicas are available
        (PartitionState(-1, 4, (1, 2), 5), brokers(b1=UNSURE, b2=RETURNED), PartitionState(2, 5, (2,), 6)),
        (PartitionState(2, 3, (1, 2), 5), brokers(b1=RETURNED, b2=GONE), PartitionState(1, 4, (1,), 6)),
    ],
)
def test_elections_lose_nothing(state, live, elected):
    assert decide(state, live) == (elected, False)


def test_a_follower_that_was_away_leaves_the_isr_without_a_new_leader_epoch():
    before = PartitionState(1, 3, (1, 2, 3), 5)
    assert decide(before, brokers(b1=STEADY, b2=RETURNED, b3=STEADY)) == (PartitionState(1, 3, (1, 3), 6), False)
    assert decide(before, brokers(b1=STEADY)) == (PartitionState(1, 3, (1,), 6), False)


def test_the_last_isr_members_lead_even_if_unsure_and_the_state_says_so():
    assert decide(PartitionState(1, 3, (1,), 5), brokers(b1=UNSURE)) == (PartitionState(1, 4, (1,), 6), True)
    both = brokers(b1=UNSURE, b2=UNSURE)
    assert decide(PartitionState(2, 3, (2, 1), 5), both) == (PartitionState(1, 4, (1,), 6), True)


@pytest.mark.parametrize("live", [brokers(b1=UNSURE), brokers(b2=GONE), brokers(b3=STEADY)])
@pytest.mark.parametrize("leader", [-1, 1])
def test_s81_no_write_vouches_for_a_replica_that_may_have_lost_its_tail(leader, live):
    """If the controller wrote the state after a broker returned that may have lost records, the state would claim that
    this broker had been registered all the time.

    The controller therefore waits for absent brokers without writing the state, even if a broker that may have lost
    records leaves again unobserved.
    """
    decision = decide(PartitionState(leader, 3, (1, 2), 5), live)
    assert decision is None or decision.state == PartitionState(-1, 4, (1, 2), 6)
    assert (decision is None) == (any(broker.unsure_since != NEVER for broker in live.values()) or leader == -1)


def test_an_unclean_election_happens_only_where_it_is_allowed_and_no_clean_one_can():
    offline = PartitionState(-1, 4, (1,), 5)
    live = brokers(b2=STEADY, b3=STEADY)
    assert decide(offline, live) is None
    recovering = PartitionState(2, 5, (2,), 6, leader_recovery_state=RECOVERING)
    assert decide(offline, live, unclean=True) == (recovering, True)
    clean = decide(PartitionState(1, 3, (1, 3), 5), live, unclean=True)
    assert clean == (PartitionState(3, 4, (3,), 6), False)
    # an ISR member that may have lost records is still preferred to a replica that was never in the ISR
    unsure = decide(PartitionState(3, 3, (3, 1), 5), brokers(b1=UNSURE, b2=STEADY), unclean=True)
    assert unsure == (PartitionState(1, 4, (1,), 6), True)


def judged(state, live, ends, *, unclean=False, waits=True):
    """Calls `decide` with the log ends that brokers reported."""
    return outcome(Election((1, 2, 3), KnownState(state, 7, WRITTEN), live, 6, unclean, ends.get, waits))


ALL_UNSURE = brokers(b1=UNSURE, b2=UNSURE, b3=UNSURE)
ALL_IN_SYNC = PartitionState(1, 3, (1, 2, 3), 5)


def test_s81_the_most_complete_replica_leads_when_all_have_lost_their_power():
    ends = {1: LogEnd(3, 60), 2: LogEnd(3, 100), 3: LogEnd(2, 500)}
    assert judged(ALL_IN_SYNC, ALL_UNSURE, ends) == (PartitionState(2, 4, (2,), 6), True)
    assert judged(ALL_IN_SYNC, ALL_UNSURE, {}) == Undecided(ask=(1, 2, 3))
    assert judged(ALL_IN_SYNC, ALL_UNSURE, {1: LogEnd(3, 60)}) == Undecided(ask=(2, 3))


def test_s81_a_replica_with_the_same_log_end_stays_in_sync():
    ends = {1: LogEnd(3, 60), 2: LogEnd(3, 100), 3: LogEnd(3, 100)}
    assert judged(ALL_IN_SYNC, ALL_UNSURE, ends) == (PartitionState(2, 4, (2, 3), 6), True)


def test_s81_a_replica_outside_the_isr_leads_if_it_has_more_than_all_of_the_isr_have_kept():
    alone, live = PartitionState(1, 3, (1,), 5), brokers(b1=UNSURE, b2=STEADY, b3=STEADY)
    ends = {1: LogEnd(-1, 0), 2: LogEnd(3, 90), 3: LogEnd(3, 80)}
    elected = PartitionState(2, 4, (2,), 6, leader_recovery_state=RECOVERING)
    assert judged(alone, live, ends) == (elected, True)
    ends[1] = LogEnd(3, 90)
    assert judged(alone, live, ends) == (PartitionState(1, 4, (1,), 6), True)


def test_s81_a_broker_that_does_not_know_the_question_keeps_its_place_in_front_of_others():
    alone, live = PartitionState(1, 3, (1,), 5), brokers(b1=UNSURE, b2=STEADY)
    assert judged(alone, live, {1: UNKNOWN, 2: LogEnd(3, 90)}) == (PartitionState(1, 4, (1,), 6), True)
    ends = {1: UNKNOWN, 2: LogEnd(3, 90), 3: UNKNOWN}
    assert judged(ALL_IN_SYNC, ALL_UNSURE, ends) == (PartitionState(2, 4, (2,), 6), True)


def test_s81_unsure_replicas_that_are_away_are_waited_for_and_not_for_ever():
    ends = {1: LogEnd(3, 60), 2: LogEnd(3, 50)}
    live = brokers(b1=UNSURE, b2=UNSURE, b3=GONE)
    assert judged(ALL_IN_SYNC, live, ends) == Undecided(absent=(3,))
    assert judged(ALL_IN_SYNC, live, ends, waits=False) == (PartitionState(1, 4, (1,), 6), True)
    assert judged(ALL_IN_SYNC, live, ends, unclean=True) == (PartitionState(1, 4, (1,), 6), True)
    # an ISR member that has not returned yet may have all records, so the controller waits for it without a time limit
    two_are_back = brokers(b1=UNSURE, b2=UNSURE)
    assert judged(ALL_IN_SYNC, two_are_back, ends, waits=False) is None
    assert judged(ALL_IN_SYNC, two_are_back, ends, unclean=True) == (PartitionState(1, 4, (1,), 6), True)


def test_s81_offline_logs_outside_the_isr_are_waited_for_and_not_for_ever():
    """The only in-sync replica returned with an empty disk, while other replicas have records and may become readable
    soon.
    """
    alone, live = PartitionState(1, 3, (1,), 5), brokers(b1=UNSURE, b2=STEADY, b3=STEADY)
    ends = {1: LogEnd(-1, 0), 2: OFFLINE, 3: OFFLINE}
    assert judged(alone, live, ends) == Undecided(absent=(2, 3), offline=(2, 3))
    assert judged(alone, live, ends, waits=False) == (PartitionState(1, 4, (1,), 6), True)
    assert judged(alone, live, ends, unclean=True) == (PartitionState(1, 4, (1,), 6), True)
    ends[3] = LogEnd(3, 90)
    assert judged(alone, live, ends) == Undecided(absent=(2,), offline=(2,))
    ends[2] = LogEnd(3, 80)
    assert judged(alone, live, ends) == (PartitionState(3, 4, (3,), 6, leader_recovery_state=RECOVERING), True)
    # replicas outside the ISR do not count if an ISR member cannot report its log end
    assert judged(alone, live, {1: UNKNOWN, 2: OFFLINE, 3: OFFLINE}) == (PartitionState(1, 4, (1,), 6), True)


STOPPING = {3: KnownBroker(3, 50, is_stopping=True)}


@pytest.mark.parametrize("away", [{}, brokers(b3=GONE), STOPPING], ids=["never there", "gone", "about to stop"])
def test_s81_replicas_outside_the_isr_are_waited_for_when_all_in_sync_may_have_lost_records(away):
    """A broker with an offline log is restarting while the only in-sync replica returns without its disk."""
    alone, live = PartitionState(-1, 3, (1,), 5), brokers(b1=UNSURE, b2=STEADY) | away
    ends = {1: LogEnd(-1, 0), 2: LogEnd(-1, 0), 3: OFFLINE}
    assert judged(alone, live, ends) == Undecided(absent=(3,))
    assert judged(alone, live, ends, waits=False) == (PartitionState(1, 4, (1,), 6), True)


def test_s80_an_abandoned_partition_goes_to_the_first_steady_replica_with_an_open_log():
    """Broker 1 does not respond, because it is dead although its session is open."""
    given_up = PartitionState(-1, 4, (1, 2, 3), 6)
    live = brokers(b1=STEADY, b2=STEADY, b3=STEADY)
    assert judged(given_up, live, {2: OFFLINE}) == Undecided(ask=(1, 3))
    assert judged(given_up, live, {2: OFFLINE, 3: LogEnd(3, 9)}) == (PartitionState(3, 5, (1, 3), 6), False)
    returned = brokers(b1=STEADY, b2=STEADY, b3=RETURNED)
    assert judged(given_up, returned, {2: OFFLINE, 3: LogEnd(3, 9)}) == Undecided(ask=(1,)), "it may be the shorter one"
    assert judged(given_up, live, {1: OFFLINE, 2: OFFLINE, 3: OFFLINE}) == Undecided(offline=(1, 2, 3))


def test_s80_a_log_that_is_offline_leads_nothing_and_is_not_kept_in_sync():
    all_back = brokers(b1=RETURNED, b2=RETURNED, b3=RETURNED)
    ends = {1: OFFLINE, 2: LogEnd(3, 100), 3: LogEnd(3, 90)}
    assert judged(ALL_IN_SYNC, all_back, ends) == (PartitionState(2, 4, (2, 3), 6), False)
    assert judged(ALL_IN_SYNC, all_back, {}) == Undecided(ask=(1, 2, 3))
    offline = PartitionState(-1, 4, (1, 2, 3), 6)
    assert judged(ALL_IN_SYNC, brokers(b1=RETURNED), {1: OFFLINE}) == (offline, False)
    # the broker was already registered when the state was written, so the controller neither asks it again nor elects
    # it
    assert judged(offline, brokers(b1=STEADY), {1: OFFLINE}) == Undecided(offline=(1,))
    assert judged(offline, brokers(b1=STEADY, b2=RETURNED), {1: OFFLINE}) == Undecided(ask=(2,))
    both = judged(offline, brokers(b1=STEADY, b2=RETURNED), {1: OFFLINE, 2: LogEnd(3, 100)})
    assert both == (PartitionState(2, 5, (2,), 6), False)
    assert judged(offline, brokers(b1=STEADY), {}) == Undecided(ask=(1,)), "another controller does not know it"


def test_s80_no_log_end_question_delays_an_election_that_has_a_steady_replica():
    assert judged(ALL_IN_SYNC, brokers(b2=STEADY, b3=STEADY), {}) == (PartitionState(2, 4, (2, 3), 6), False)
    known = KnownState(PartitionState(1, 3, (1,), 5), 7, WRITTEN)
    only = outcome(Election((1,), known, brokers(b1=UNSURE), 6, log_end_of={}.get, waits_for_absent=True))
    assert only == (PartitionState(1, 4, (1,), 6), True), "the only replica leads whatever it has"


def test_s80_the_most_complete_sure_replica_leads_once_all_log_ends_are_known():
    all_back = brokers(b1=RETURNED, b2=RETURNED, b3=RETURNED)
    ends = {1: LogEnd(-1, 0), 2: LogEnd(3, 100), 3: LogEnd(3, 100)}
    assert judged(ALL_IN_SYNC, all_back, ends) == (PartitionState(2, 4, (1, 2, 3), 6), False)
    ends[2] = UNKNOWN
    assert judged(ALL_IN_SYNC, all_back, ends) == (PartitionState(1, 4, (1, 2, 3), 6), False)


class TestCases:
    """One test for each case of `outcome`: the leader, the ISR, and whether records may be lost."""

    def decided(self, state, live, ends=None, *, unclean=False, stopping=()):
        there = {id_: broker._replace(is_stopping=id_ in stopping) for id_, broker in live.items()}
        log_end_of = (lambda _: UNKNOWN) if ends is None else ends.get
        return outcome(Election((1, 2, 3), KnownState(state, 7, WRITTEN), there, 6, unclean, log_end_of))

    def test_a_clean_election_takes_a_steady_replica_although_a_returned_one_is_preferred(self):
        live = brokers(b1=RETURNED, b2=STEADY, b3=RETURNED)
        assert self.decided(ALL_IN_SYNC, live) == (PartitionState(2, 4, (1, 2, 3), 6), False)

    def test_a_clean_election_passes_over_a_steady_replica_with_an_offline_log(self):
        given_up = PartitionState(-1, 4, (1, 2), 6)
        ends = {1: OFFLINE, 2: LogEnd(3, 5)}
        assert self.decided(given_up, brokers(b1=STEADY, b2=RETURNED), ends) == (PartitionState(2, 5, (2,), 6), False)

    def test_the_most_complete_returned_replica_leads_and_all_stay_in_sync(self):
        ends = {1: LogEnd(3, 5), 2: LogEnd(3, 9), 3: LogEnd(2, 99)}
        live = brokers(b1=RETURNED, b2=RETURNED, b3=RETURNED)
        assert self.decided(ALL_IN_SYNC, live, ends) == (PartitionState(2, 4, (1, 2, 3), 6), False)

    def test_an_unsure_replica_leads_only_if_no_complete_replica_is_awaited(self):
        ends = {1: LogEnd(3, 5)}
        both = PartitionState(-1, 4, (1, 2), 6)
        assert self.decided(both, brokers(b1=UNSURE), ends) is None
        assert self.decided(both, brokers(b1=UNSURE, b2=GONE), ends) == (PartitionState(1, 5, (1,), 6), True)

    def test_a_replica_elected_uncleanly_is_alone_in_sync(self):
        offline = PartitionState(-1, 4, (1,), 5)
        ends = {2: LogEnd(3, 5), 3: LogEnd(3, 9)}
        elected = PartitionState(3, 5, (3,), 6, leader_recovery_state=RECOVERING)
        assert self.decided(offline, brokers(b2=STEADY, b3=STEADY), ends, unclean=True) == (elected, True)
        assert self.decided(offline, brokers(b2=STEADY, b3=STEADY), ends) is None

    def test_no_unclean_election_while_a_complete_replica_is_only_restarting(self):
        state, live = PartitionState(-1, 4, (1, 2), 5), brokers(b1=STEADY, b2=STEADY, b3=STEADY)
        ends = {1: OFFLINE, 2: LogEnd(3, 5), 3: LogEnd(3, 9)}
        assert self.decided(state, live, ends, unclean=True, stopping=(2,)) == Undecided(offline=(1,))
        elected = PartitionState(3, 5, (3,), 6, leader_recovery_state=RECOVERING)
        ends[2] = OFFLINE
        assert self.decided(state, live, ends, unclean=True) == (elected, True)

    def test_an_unclean_election_happens_although_other_replicas_are_about_to_stop(self):
        """A stopping broker outside the ISR does not delay an election."""
        ends = {1: OFFLINE, 2: LogEnd(3, 9), 3: LogEnd(3, 5)}
        live = brokers(b1=STEADY, b2=STEADY, b3=STEADY)
        elected = PartitionState(2, 5, (2,), 6, leader_recovery_state=RECOVERING)
        decided = self.decided(PartitionState(-1, 4, (1,), 5), live, ends, unclean=True, stopping=(3,))
        assert decided == (elected, True)

    def test_a_state_without_leader_is_written_unless_it_would_vouch_for_an_unsure_replica(self):
        state = PartitionState(1, 3, (1, 2), 5)
        assert self.decided(state, brokers(b3=STEADY)) == (PartitionState(-1, 4, (1, 2), 6), False)
        assert self.decided(state, brokers(b2=GONE, b3=STEADY)) is None
