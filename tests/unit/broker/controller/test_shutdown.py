"""A broker that is about to stop: some of its leaderships move to other brokers, some stay, and the broker becomes
leader of no further partition.
"""

import pytest
from tests.unit.broker.controller.test_election import GONE, RETURNED, STEADY, WRITTEN, brokers

from oncelog_broker.controller.alter_partition import Member, Proposal, decide
from oncelog_broker.controller.election import RECOVERING, Election, next_state
from oncelog_broker.controller.known_broker import KnownBroker
from oncelog_broker.controller.partition_decisions import wanted_change
from oncelog_broker.controller.shutdown import is_left_to, note_shutdown
from oncelog_broker.controller.view import ClusterView, KnownState
from oncelog_broker.metadata.model.payloads import PartitionState, ReplicaAssignment, TopicAssignment
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_protocol.errors import ErrorCode, KafkaError

KEY = PartitionKey("t", 0)


def after(state, live, *stopping, unclean=False):
    there = {id_: broker._replace(is_stopping=id_ in stopping) for id_, broker in live.items()}
    decision = next_state(Election((1, 2, 3), KnownState(state, 7, WRITTEN), there, 6, unclean))
    return decision and decision.state


ALL = brokers(b1=STEADY, b2=STEADY, b3=STEADY)
TWO = brokers(b2=STEADY, b3=STEADY)


@pytest.mark.parametrize(
    ("state", "live", "stopping", "then"),
    [
        # another ISR member leads in a new epoch, and the stopping broker leaves the ISR
        (PartitionState(1, 3, (1, 2, 3), 5), ALL, (1,), PartitionState(2, 4, (2, 3), 6)),
        # a stopping follower leaves the ISR, and the leader keeps its epoch
        (PartitionState(1, 3, (1, 2, 3), 5), ALL, (2,), PartitionState(1, 3, (1, 3), 6)),
        # two brokers stop at the same time
        (PartitionState(1, 3, (1, 2, 3), 5), ALL, (1, 2), PartitionState(3, 4, (3,), 6)),
        # no other replica is in sync: the broker leads until it stops, even if records may be lost
        (PartitionState(1, 3, (1,), 5), ALL, (1,), None),
        # all replicas are shutting down: leader and ISR stay unchanged, because any ISR member may return first
        (PartitionState(1, 3, (1, 2, 3), 5), ALL, (1, 2, 3), None),
        # the leader died while the other replicas are shutting down: the first of these replicas that returns will lead
        (PartitionState(1, 3, (1, 2, 3), 5), TWO, (2, 3), PartitionState(-1, 4, (1, 2, 3), 6)),
        # a returned broker is not elected if it is about to stop again
        (PartitionState(1, 3, (2, 3), 5), brokers(b2=RETURNED, b3=RETURNED), (2,), PartitionState(3, 4, (3,), 6)),
        (PartitionState(-1, 3, (2,), 5), brokers(b2=RETURNED), (2,), None),
    ],
)  # fmt: skip
def test_a_stopping_broker_hands_over_its_leaderships_and_isr_places(state, live, stopping, then):
    assert after(state, live, *stopping) == then


def test_no_unclean_election_while_an_in_sync_replica_is_restarting():
    only_2_in_sync = PartitionState(1, 3, (2,), 5)
    assert after(only_2_in_sync, ALL, 2, unclean=True) == PartitionState(-1, 4, (2,), 6)
    gone = brokers(b1=STEADY, b2=GONE, b3=STEADY)
    assert after(only_2_in_sync, gone, unclean=True) == PartitionState(1, 4, (1,), 6, RECOVERING)


@pytest.fixture
def view():
    view = ClusterView()
    view.put_brokers(KnownBroker(b, 10 * b) for b in (1, 2, 3))
    view.put_topic("t", TopicAssignment(b"i" * 16, {0: ReplicaAssignment((1, 2, 3)), 1: ReplicaAssignment((1,))}))
    view.put_state(KEY, KnownState(PartitionState(1, 5, (1, 2, 3), 1), 7, 100))
    view.put_state(PartitionKey("t", 1), KnownState(PartitionState(1, 0, (1,), 1), 0, 100))
    return view


def test_a_stopping_broker_is_excluded_until_its_next_registration(view):
    note_shutdown(view, 2, 20)
    assert set(view.staying) == {1, 3}
    view.put_brokers(KnownBroker(b, 10 * b) for b in (1, 2, 3))
    assert set(view.staying) == {1, 3}
    view.put_brokers({**view.brokers, 2: KnownBroker(2, 200)}.values())
    assert set(view.staying) == {1, 2, 3}
    assert view.staying == view.live


@pytest.mark.parametrize(
    ("broker", "epoch", "code"),
    [
        (2, 19, ErrorCode.STALE_BROKER_EPOCH),
        (2, -1, ErrorCode.STALE_BROKER_EPOCH),
        (4, -1, ErrorCode.BROKER_NOT_AVAILABLE),
    ],
)
def test_only_the_broker_itself_can_announce_its_shutdown(view, broker, epoch, code):
    with pytest.raises(KafkaError) as raised:
        note_shutdown(view, broker, epoch)
    assert raised.value.code is code
    assert view.staying == view.live


def test_a_stopping_broker_that_is_alone_keeps_its_partitions_until_it_ends(view):
    view.put_brokers((view.brokers[1],))
    note_shutdown(view, 1, 10)
    assert set(view.staying) == {1}


def test_a_partition_with_no_other_replica_does_not_delay_the_shutdown(view):
    assert [is_left_to(view, 1, PartitionKey("t", p)) for p in (0, 1, 2)] == [True, False, False]
    assert not is_left_to(view, 2, KEY)
    view.doomed.add("t")
    assert not is_left_to(view, 1, KEY)


def test_a_new_partition_is_led_by_somebody_who_stays(view):
    view.put_topic("new", TopicAssignment(b"n" * 16, {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((1,))}))
    note_shutdown(view, 1, 10)
    assert wanted_change(view, PartitionKey("new", 0), 9).state == PartitionState(2, 0, (2,), 9)
    assert wanted_change(view, PartitionKey("new", 1), 9) is None


def test_a_stopping_broker_joins_no_isr_but_a_stopping_leader_may_expand_its_isr(view):
    view.put_state(KEY, KnownState(PartitionState(1, 5, (1, 2), 1), 7, 100))
    grown = Proposal(1, 5, 7, [Member(1, 10), Member(2, 20), Member(3, 30)])
    note_shutdown(view, 3, 30)
    with pytest.raises(KafkaError) as raised:
        decide(view, KEY, grown, 9)
    assert raised.value.code is ErrorCode.INELIGIBLE_REPLICA
    view.put_brokers({**view.brokers, 3: KnownBroker(3, 31)}.values())
    note_shutdown(view, 1, 10)
    assert decide(view, KEY, Proposal(1, 5, 7, [Member(1), Member(2), Member(3, 31)]), 9).state.isr == (1, 2, 3)
