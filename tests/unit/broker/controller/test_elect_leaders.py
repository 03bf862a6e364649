"""Elections that a client requests, and the preferred elections that the controller starts itself."""

import pytest

from oncelog_broker.controller.candidates import OFFLINE, LogEnd
from oncelog_broker.controller.elect_leaders import imbalances, requested_election
from oncelog_broker.controller.election import RECOVERING
from oncelog_broker.controller.known_broker import KnownBroker
from oncelog_broker.controller.partition_decisions import PartitionChange
from oncelog_broker.controller.shutdown import note_shutdown
from oncelog_broker.controller.view import ClusterView, KnownState
from oncelog_broker.metadata.model.payloads import PartitionState, ReplicaAssignment, TopicAssignment
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_protocol.elections import ElectionType
from oncelog_protocol.errors import ErrorCode, KafkaError

KEY = PartitionKey("t", 0)
PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


@pytest.fixture
def view():
    view = ClusterView()
    view.put_brokers(KnownBroker(b, 10 * b) for b in (1, 2, 3))
    view.put_topic("t", TopicAssignment(b"i" * 16, {0: ReplicaAssignment((1, 2, 3))}))
    return view


def led(view, *state):
    view.put_state(KEY, KnownState(PartitionState(*state), 7, 100))


def refusal(view, kind, key=KEY):
    with pytest.raises(KafkaError) as raised:
        requested_election(view, key, kind, 9)
    return raised.value.code


def test_the_preferred_leader_takes_over_with_a_new_epoch(view):
    led(view, 2, 5, (2, 3, 1), 1)
    assert requested_election(view, KEY, PREFERRED, 9) == PartitionChange(KEY, PartitionState(1, 6, (2, 3, 1), 9), 7)


def test_the_preferred_leader_takes_over_a_leaderless_partition(view):
    led(view, -1, 5, (1, 2), 1)
    assert requested_election(view, KEY, PREFERRED, 9).state == PartitionState(1, 6, (1, 2), 9)


def test_a_preferred_leader_outside_the_isr_or_re_registered_or_stopping_is_not_available(view):
    led(view, 2, 5, (2, 3), 1)
    assert refusal(view, PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    led(view, 2, 5, (2, 3, 1), 1)
    view.put_brokers({**view.brokers, 1: KnownBroker(1, 101)}.values())
    assert refusal(view, PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    view.put_brokers({**view.brokers, 1: KnownBroker(1, 10)}.values())
    note_shutdown(view, 1, 10)
    assert refusal(view, PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_a_replica_that_is_not_steady_leaves_the_isr_during_an_election(view):
    led(view, 2, 5, (2, 3, 1), 1)
    view.put_brokers({**view.brokers, 3: KnownBroker(3, 101)}.values())
    assert requested_election(view, KEY, PREFERRED, 9).state == PartitionState(1, 6, (2, 1), 9)


def test_no_election_is_needed_while_the_partition_has_a_suitable_leader(view):
    led(view, 1, 5, (1, 2), 1)
    assert refusal(view, PREFERRED) is ErrorCode.ELECTION_NOT_NEEDED
    led(view, 2, 5, (2,), 1)
    assert refusal(view, UNCLEAN) is ErrorCode.ELECTION_NOT_NEEDED


def test_an_unclean_election_is_only_for_leaderless_partitions(view):
    led(view, -1, 5, (4,), 1)
    change = requested_election(view, KEY, UNCLEAN, 9)
    assert change == PartitionChange(KEY, PartitionState(1, 6, (1,), 9, RECOVERING), 7, may_lose=True)
    view.put_brokers(())
    assert refusal(view, UNCLEAN) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_an_unclean_election_prefers_a_clean_candidate(view):
    led(view, -1, 5, (2,), 1)
    assert requested_election(view, KEY, UNCLEAN, 9) == PartitionChange(KEY, PartitionState(2, 6, (2,), 9), 7)


@pytest.mark.parametrize("kind", ElectionType)
def test_an_election_for_an_unknown_partition_is_refused(view, kind):
    for key in (PartitionKey("t", 1), PartitionKey("u", 0)):
        assert refusal(view, kind, key) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    led(view, 2, 5, (2, 1), 1)
    view.doomed.add("t")
    assert refusal(view, kind) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_imbalance_is_counted_by_preferred_leader():
    view = ClusterView()
    view.put_brokers((KnownBroker(1, 1), KnownBroker(2, 2)))
    view.put_topic("t", TopicAssignment(b"i" * 16, {p: ReplicaAssignment((1, 2)) for p in range(10)}))
    for partition in range(10):
        view.put_state(
            PartitionKey("t", partition), KnownState(PartitionState(1 + (partition == 3), 0, (1, 2), 1), 0, 9)
        )
    found = dict(filter(None, imbalances(view)))
    assert found[1] == (10, [PartitionKey("t", 3)])
    assert [found[1].exceeds(percentage) for percentage in (9, 10)] == [True, False]
    assert found[2] == (0, [])
    assert not found[2].exceeds(0)


def test_s80_an_unclean_election_of_an_abandoned_partition_takes_the_most_complete_log(view):
    led(view, -1, 5, (1,), 1)
    view.candidates.note(KEY, 1, OFFLINE)
    assert refusal(view, PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    view.candidates.note(KEY, 2, LogEnd(4, 90))
    view.candidates.note(KEY, 3, LogEnd(4, 100))
    change = requested_election(view, KEY, UNCLEAN, 9)
    assert change == PartitionChange(KEY, PartitionState(3, 6, (3,), 9, RECOVERING), 7, may_lose=True)


def test_s80_a_leader_that_came_back_since_it_was_named_leads_nothing(view):
    led(view, 1, 5, (1, 4), 1)
    view.put_brokers({**view.brokers, 1: KnownBroker(1, 101, unsure_since=101)}.values())
    change = requested_election(view, KEY, UNCLEAN, 9)
    assert change.state == PartitionState(1, 6, (1,), 9)
    assert change.may_lose
