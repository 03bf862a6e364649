"""ClusterView stores the known brokers, and reports their changes when they register, leave, or announce their
shutdown.
"""

import pytest

from oncelog_broker.controller.candidates import LogEnd
from oncelog_broker.controller.known_broker import NEVER, KnownBroker
from oncelog_broker.controller.view import ClusterView, KnownState
from oncelog_broker.metadata.model.payloads import PartitionState, ReplicaAssignment, TopicAssignment
from oncelog_broker.metadata.model.reader import PartitionKey

KEY = PartitionKey("t", 0)
WRITTEN = 100


@pytest.fixture
def view():
    view = ClusterView()
    view.put_brokers(KnownBroker(broker, 10 * broker, incarnation=broker) for broker in (1, 2, 3))
    view.put_topic("t", TopicAssignment(b"i" * 16, {0: ReplicaAssignment((1, 2, 3))}))
    view.put_state(KEY, KnownState(PartitionState(1, 5, (1, 2), 1), 7, WRITTEN))
    return view


def put(view, **changed):
    """Put all brokers unchanged, except for those in `changed`, such as `b2=KnownBroker(...)`."""
    others = {name: view.brokers[int(name[1:])] for name in ("b1", "b2", "b3")}
    return view.put_brokers({**others, **changed}.values())


class TestKnownBroker:
    def test_an_absent_broker_is_steady_since_no_state(self):
        assert not KnownBroker(1).is_live
        assert not KnownBroker(1).is_steady_since(WRITTEN)

    @pytest.mark.parametrize(("epoch", "steady"), [(WRITTEN - 1, True), (WRITTEN, True), (WRITTEN + 1, False)])
    def test_a_broker_is_steady_if_it_registered_no_later_than_the_write(self, epoch, steady):
        assert KnownBroker(1, epoch).is_steady_since(WRITTEN) is steady

    def test_a_broker_is_unsure_of_states_written_before_it_lost_its_tail(self):
        broker = KnownBroker(1, 150, unsure_since=120)
        assert (broker.is_unsure_of(119), broker.is_unsure_of(120)) == (True, False)
        assert not KnownBroker(1, 150).is_unsure_of(0)


class TestPutBrokers:
    def test_equal_brokers_are_no_change(self, view):
        assert put(view) == set()

    @pytest.mark.parametrize(
        "now",
        [
            KnownBroker(2),
            KnownBroker(2, 21),
            KnownBroker(2, 20, rack="a"),
            KnownBroker(2, 20, unsure_since=20),
        ],
        ids=["went", "came again", "in another rack", "came and went again, unsure"],
    )
    def test_new_gone_and_re_registered_brokers_are_reported(self, view, now):
        assert put(view, b2=now) == {2}

    def test_a_higher_incarnation_alone_is_no_change(self, view):
        """The view read the broker's incarnation before the broker's registration, and reports only the registration as
        a change.
        """
        assert put(view, b2=view.brokers[2]._replace(incarnation=9)) == set()
        assert view.brokers[2].incarnation == 9

    def test_the_answers_of_changed_brokers_are_forgotten(self, view):
        view.candidates.is_asked_for = True
        view.candidates.note(KEY, 2, LogEnd(3, 4))
        view.candidates.note(KEY, 3, LogEnd(3, 5))
        put(view, b2=KnownBroker(2, 21))
        assert (view.candidates.end_of(KEY, 2), view.candidates.end_of(KEY, 3)) == (None, LogEnd(3, 5))

    def test_a_decision_keeps_the_brokers_that_it_saw(self, view):
        """The write of a decision is conditional on the broker incarnations on which the decision was based, and not on
        those of a later registration.
        """
        seen = view.brokers
        put(view, b2=KnownBroker(2, 21, incarnation=9))
        view.note_stopping(3)
        assert (seen[2].incarnation, seen[3].is_stopping) == (2, False)


class TestStopping:
    def test_a_stopping_broker_is_live_and_not_staying(self, view):
        view.note_stopping(2)
        assert (set(view.live), set(view.staying)) == ({1, 2, 3}, {1, 3})

    def test_a_broker_is_stopping_until_its_registration_ends(self, view):
        view.note_stopping(2)
        view.put_brokers(KnownBroker(broker, 10 * broker) for broker in (1, 2, 3))
        assert view.broker(2).is_stopping
        put(view, b2=KnownBroker(2))
        assert not view.broker(2).is_stopping
        put(view, b2=KnownBroker(2, 22))
        assert set(view.staying) == {1, 2, 3}

    def test_a_view_that_is_read_again_remembers_stopping_brokers(self, view):
        view.note_stopping(2)
        view.note_stopping(3)
        again = ClusterView()
        again.put_brokers((KnownBroker(1, 10), KnownBroker(2, 20), KnownBroker(3, 33)))
        again.keep_stopping(view.brokers)
        assert set(again.staying) == {1, 3}


class TestMayVouch:
    def test_a_steady_leader_may_vouch_for_an_isr_that_lost_nothing(self, view):
        assert view.may_vouch(KEY)

    @pytest.mark.parametrize("leader", [KnownBroker(1), KnownBroker(1, WRITTEN + 1)], ids=["away", "came again"])
    def test_an_absent_leader_may_not_vouch(self, view, leader):
        put(view, b1=leader)
        assert not view.may_vouch(KEY)

    def test_a_leader_may_not_vouch_for_an_unsure_isr_member(self, view):
        put(view, b2=KnownBroker(2, unsure_since=WRITTEN + 1))
        assert not view.may_vouch(KEY)
        put(view, b2=KnownBroker(2, unsure_since=NEVER))
        assert view.may_vouch(KEY)

    def test_replicas_outside_the_isr_do_not_affect_vouching(self, view):
        put(view, b3=KnownBroker(3, unsure_since=WRITTEN + 1))
        assert view.may_vouch(KEY)
