"""AlterPartition grants a leader's permitted changes, and refuses the other ones with Kafka's errors."""

import pytest

from oncelog_broker.controller.alter_partition import (
    Member,
    Proposal,
    check_sender,
    decide,
    find_partition,
)
from oncelog_broker.controller.candidates import OFFLINE, UNKNOWN, LogEnd
from oncelog_broker.controller.known_broker import NEVER, KnownBroker
from oncelog_broker.controller.partition_decisions import PartitionChange, undecided, wanted_change
from oncelog_broker.controller.reassignment import begin
from oncelog_broker.controller.view import ClusterView, KnownState
from oncelog_broker.metadata.model.payloads import PartitionState, ReplicaAssignment, TopicAssignment
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.replication.roles import LOST_EPOCHS
from oncelog_protocol.errors import ErrorCode, KafkaError

ID = b"i" * 16
KEY = PartitionKey("t", 0)


@pytest.fixture
def view():
    view = ClusterView()
    view.put_brokers(KnownBroker(b, 10 * b) for b in (1, 2, 3))
    view.put_topic("t", TopicAssignment(ID, {0: ReplicaAssignment((1, 2, 3, 4))}))
    view.put_state(KEY, KnownState(PartitionState(1, 5, (1, 2), 1), 7, 100))
    return view


def propose(*isr, sender=1, leader_epoch=5, partition_epoch=7, recovery=0):
    members = [member if isinstance(member, Member) else Member(member, 10 * member) for member in isr]
    return Proposal(sender, leader_epoch, partition_epoch, members, recovery)


def test_an_isr_grows_and_shrinks_without_a_new_leader_epoch(view):
    grown = decide(view, KEY, propose(1, 2, 3), controller_epoch=9)
    assert grown == PartitionChange(KEY, PartitionState(1, 5, (1, 2, 3), 9), 7, is_election=False)
    shrunk = decide(view, KEY, propose(1), controller_epoch=9)
    assert shrunk == PartitionChange(KEY, PartitionState(1, 5, (1,), 9), 7, is_election=False)


def test_a_state_already_in_force_is_granted_again_for_an_older_partition_epoch(view):
    assert decide(view, KEY, propose(2, 1, partition_epoch=6), 9) is view.states[KEY]


def test_a_leader_that_cannot_write_gives_its_place_away(view):
    change = decide(view, KEY, propose(2), controller_epoch=9)
    assert change == PartitionChange(KEY, PartitionState(2, 6, (2,), 9), 7)


def test_each_replica_leads_in_turn_if_its_predecessors_give_the_partition_up(view):
    """A predecessor joins the ISR again before its successor gives up, and comes first in the list of replicas."""
    leaders = []
    for leader, others in ((1, (2, 3)), (2, (3, 1)), (3, (1, 2))):
        view.put_state(KEY, KnownState(PartitionState(leader, 5, (1, 2, 3), 1), 7, 100))
        leaders.append(decide(view, KEY, propose(*others, sender=leader), controller_epoch=9).state.leader)
    assert leaders == [2, 3, 1]


def test_a_replica_that_begins_again_is_granted_a_new_epoch_of_the_same_leader(view):
    change = decide(view, KEY, propose(Member(1), Member(2), sender=3), controller_epoch=9)
    assert change == PartitionChange(KEY, PartitionState(1, 6, (1, 2), 9), 7, is_election=False)
    view.put_state(KEY, KnownState(change.state, 8, 101))
    for joining in (propose(1, 2, 3), propose(1, 2, Member(3))):
        with pytest.raises(KafkaError) as raised:
            decide(view, KEY, joining, controller_epoch=9)
        assert raised.value.code is ErrorCode.FENCED_LEADER_EPOCH, "it was asked for by what the replica had before"


def test_a_leader_that_knows_a_version_which_a_restored_store_has_lost_gets_a_new_epoch(view):
    change = decide(view, KEY, propose(1, partition_epoch=8), controller_epoch=9)
    assert change == PartitionChange(KEY, PartitionState(1, 6, (1, 2), 9), 7, is_election=False)
    view.put_brokers({**view.brokers, 2: view.brokers[2]._replace(unsure_since=101)}.values())
    with pytest.raises(KafkaError) as raised:
        decide(view, KEY, propose(1, partition_epoch=8), controller_epoch=9)
    assert raised.value.code is ErrorCode.NOT_CONTROLLER, "an election comes first"


def test_no_log_begins_again_without_a_leader(view):
    view.put_state(KEY, KnownState(PartitionState(-1, 5, (1, 2), 1), 7, 100))
    with pytest.raises(KafkaError) as raised:
        decide(view, KEY, propose(1, 2, sender=3), controller_epoch=9)
    assert raised.value.code is ErrorCode.INELIGIBLE_REPLICA


def test_a_leader_gives_its_place_to_nobody_who_came_back_since_perhaps_with_less(view):
    view.put_brokers({**view.brokers, 2: view.brokers[2]._replace(unsure_since=101)}.values())
    with pytest.raises(KafkaError) as raised:
        decide(view, KEY, propose(Member(2)), controller_epoch=9)
    assert raised.value.code is ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize(
    ("proposal", "code"),
    [
        (propose(1, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (propose(1, leader_epoch=6), ErrorCode.NOT_CONTROLLER),
        (propose(1, partition_epoch=6), ErrorCode.INVALID_UPDATE_VERSION),
        (propose(2, sender=2), ErrorCode.INVALID_REQUEST),
        (propose(1, 2, sender=2), ErrorCode.INVALID_REQUEST),
        (propose(1, sender=3), ErrorCode.INVALID_REQUEST),
        (propose(1, 2, 3, sender=3), ErrorCode.INVALID_REQUEST),
        (propose(1, 2, sender=9), ErrorCode.INVALID_REQUEST),
        (propose(1, 2, sender=3, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (propose(1, 2, sender=3, partition_epoch=6), ErrorCode.INVALID_UPDATE_VERSION),
        (propose(1, 2, sender=3, partition_epoch=8), ErrorCode.NOT_CONTROLLER),
        (propose(1, Member(2, 19), sender=3), ErrorCode.INELIGIBLE_REPLICA),
        (propose(), ErrorCode.INVALID_REQUEST),
        (propose(2, 3), ErrorCode.INVALID_REQUEST),
        (propose(1, 1), ErrorCode.INVALID_REQUEST),
        (propose(1, 9), ErrorCode.INVALID_REQUEST),
        (propose(1, recovery=1), ErrorCode.INVALID_REQUEST),
        (propose(1, recovery=2), ErrorCode.INVALID_REQUEST),
        (propose(1, 4), ErrorCode.INELIGIBLE_REPLICA),
        (propose(1, Member(3, 29)), ErrorCode.INELIGIBLE_REPLICA),
        (propose(4), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_refusals(view, proposal, code):
    with pytest.raises(KafkaError) as raised:
        decide(view, KEY, proposal, controller_epoch=9)
    assert raised.value.code is code


def test_a_replica_whose_epoch_the_sender_does_not_know_is_not_compared(view):
    assert isinstance(decide(view, KEY, propose(1, 2, Member(3)), 9), PartitionChange)


def test_after_an_unclean_election_the_leader_says_when_it_is_whole(view):
    view.put_state(KEY, KnownState(PartitionState(1, 5, (1,), 1, leader_recovery_state=1), 7, 100))
    change = decide(view, KEY, propose(1), controller_epoch=9)
    assert change.state == PartitionState(1, 5, (1,), 9)
    with pytest.raises(KafkaError):
        decide(view, KEY, propose(1, 2, recovery=1), controller_epoch=9)


def test_a_former_incarnation_of_the_sender_is_refused(view):
    check_sender(view, 1, 10)
    for broker, epoch in ((1, 9), (1, 11), (4, 40)):
        with pytest.raises(KafkaError) as raised:
            check_sender(view, broker, epoch)
        assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_partitions_are_found_by_topic_id(view):
    assert find_partition(view, ID, 0) == KEY
    for topic_id, partition, code in (
        (b"x" * 16, 0, ErrorCode.UNKNOWN_TOPIC_ID),
        (ID, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        with pytest.raises(KafkaError) as raised:
            find_partition(view, topic_id, partition)
        assert raised.value.code is code
    view.doomed.add("t")
    with pytest.raises(KafkaError):
        find_partition(view, ID, 0)


def gives_up(*isr, **epochs):
    return propose(*isr, **epochs)._replace(is_log_offline=True)


def test_s80_a_leader_without_a_log_that_is_alone_in_sync_gives_the_lead_up(view):
    view.put_state(KEY, KnownState(PartitionState(1, 5, (1,), 1), 7, 100))
    change = decide(view, KEY, gives_up(1), controller_epoch=9)
    assert change == PartitionChange(KEY, PartitionState(-1, 6, (1,), 9), 7)
    with pytest.raises(KafkaError) as raised:
        decide(view, KEY, gives_up(1, partition_epoch=6), controller_epoch=9)
    assert raised.value.code is ErrorCode.INVALID_UPDATE_VERSION


def test_s80_a_partition_given_up_by_its_leader_goes_to_an_in_sync_replica_with_an_open_log(view):
    """Broker 1 may be dead although its session is open. The controller therefore elects a replica only after a broker
    of the ISR has responded.
    """
    view.candidates.is_asked_for = True
    view.put_brokers(KnownBroker(broker, broker * 10) for broker in (1, 2, 3))
    view.put_state(KEY, KnownState(PartitionState(2, 5, (1, 2, 3), 1), 7, 100))
    change = decide(view, KEY, gives_up(1, 2, 3, sender=2), controller_epoch=9)
    assert change == PartitionChange(KEY, PartitionState(-1, 6, (1, 2, 3), 9), 7)
    view.put_state(KEY, KnownState(change.state, 8, 101))
    assert undecided(view, KEY).ask == (1, 2, 3)
    view.candidates.note(KEY, 2, OFFLINE)
    assert wanted_change(view, KEY, 9) is None
    view.candidates.note(KEY, 3, LogEnd(5, 8))
    assert wanted_change(view, KEY, 9).state == PartitionState(3, 7, (1, 3), 9), "broker 1 may still be there"


def test_s81_a_leader_that_gives_up_vouches_for_no_replica_that_may_have_lost_records(view):
    """Broker 2 restarted with an empty disk and is still in the ISR."""
    view.put_brokers([KnownBroker(1, 10), KnownBroker(2, 220, unsure_since=220), KnownBroker(3, 30)])
    with pytest.raises(KafkaError) as raised:
        decide(view, KEY, gives_up(1, 2), controller_epoch=9)
    assert raised.value.code is ErrorCode.INELIGIBLE_REPLICA


def test_s80_without_other_replicas_a_leader_without_a_log_keeps_the_lead(view):
    view.put_topic("t", TopicAssignment(ID, {0: ReplicaAssignment((1,))}))
    view.put_state(KEY, KnownState(PartitionState(1, 5, (1,), 1), 7, 100))
    assert decide(view, KEY, gives_up(1), 9) is view.states[KEY]


def ask_above(log_epoch, sender=1, leader_epoch=5, partition_epoch=7):
    return propose(
        Member(1), Member(2), sender=sender, leader_epoch=leader_epoch, partition_epoch=partition_epoch
    )._replace(log_epoch=log_epoch)


@pytest.mark.parametrize(("sender", "log_epoch"), [(1, 5), (1, 8), (2, 6), (3, 6), (4, 9)])
def test_s77_a_replica_is_granted_an_epoch_far_above_its_log_and_the_leader_stays(view, sender, log_epoch):
    change = decide(view, KEY, ask_above(log_epoch, sender), controller_epoch=9)
    assert change == PartitionChange(KEY, PartitionState(1, log_epoch + LOST_EPOCHS, (1, 2), 9), 7, is_election=False)


@pytest.mark.parametrize("sender", [1, 2, 3])
def test_s77_an_epoch_that_elections_have_brought_just_above_the_log_is_not_enough(view, sender):
    change = decide(view, KEY, ask_above(4, sender), controller_epoch=9)
    assert change.state.leader_epoch == 5 + LOST_EPOCHS
    view.put_state(KEY, KnownState(change.state, 8, 101))
    again = ask_above(4, sender, leader_epoch=5 + LOST_EPOCHS, partition_epoch=8)
    assert decide(view, KEY, again, 9) is view.states[KEY]


def test_s77_a_partition_without_a_leader_gets_a_higher_epoch_too(view):
    view.put_state(KEY, KnownState(PartitionState(-1, 5, (1, 2), 1), 7, 100))
    change = decide(view, KEY, ask_above(6, sender=2), controller_epoch=9)
    assert (change.state.leader, change.state.leader_epoch) == (-1, 6 + LOST_EPOCHS)


@pytest.mark.parametrize(
    ("proposal", "code"),
    [
        (ask_above(8, sender=7), ErrorCode.INVALID_REQUEST),
        (ask_above(2**31 - 2), ErrorCode.INVALID_REQUEST),
        (ask_above(8, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (ask_above(8, leader_epoch=6), ErrorCode.NOT_CONTROLLER),
        (ask_above(8, partition_epoch=6), ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_s77_an_epoch_above_a_log_is_refused_to_others_and_by_outdated_states(view, proposal, code):
    with pytest.raises(KafkaError) as raised:
        decide(view, KEY, proposal, controller_epoch=9)
    assert raised.value.code is code


def came_back(view, *unsure):
    """Let brokers 1, 2 and 3 register again after the state write; the brokers in `unsure` may have lost records."""
    view.put_brokers(KnownBroker(b, 200 + b, unsure_since=200 + b if b in unsure else NEVER) for b in (1, 2, 3))
    view.candidates.is_asked_for = True


def after_write(view, change):
    view.put_state(KEY, KnownState(change.state, 8, 300))


@pytest.mark.parametrize("leader", [1, -1])
@pytest.mark.parametrize("sender", [1, 2, 3])
def test_s77_no_epoch_is_raised_while_all_in_sync_are_unsure_and_nobody_is_elected(view, sender, leader):
    """The metadata store was restored from a backup: all brokers count as having possibly lost records, and their logs
    have newer leader epochs than the store.
    If the controller wrote a state before it compared the logs, broker 1 would lead although broker 2 has more records.
    """
    view.put_state(KEY, KnownState(PartitionState(leader, 5, (1, 2), 1), 7, 100))
    came_back(view, 1, 2)
    assert decide(view, KEY, ask_above(8, sender), 9) is view.states[KEY]
    for broker, end in ((1, LogEnd(7, 10)), (2, LogEnd(7, 20)), (3, LogEnd(8, 5)), (4, UNKNOWN)):
        view.candidates.note(KEY, broker, end)
    assert wanted_change(view, KEY, 9) is None, "broker 4, which is away, may have more"
    view.candidates.wait_no_longer(KEY)
    elected = wanted_change(view, KEY, 9)
    assert elected is not None
    assert elected.state.leader == 3, "the log with the newest epoch"
    after_write(view, elected)
    raised = decide(view, KEY, ask_above(8, 3, leader_epoch=6, partition_epoch=8), 9)
    assert isinstance(raised, PartitionChange)
    assert (raised.state.leader, raised.state.leader_epoch) == (3, 8 + LOST_EPOCHS)


def test_s77_no_epoch_is_raised_of_a_leader_that_was_away_and_leads_no_more(view):
    came_back(view)
    assert decide(view, KEY, ask_above(8), 9) is view.states[KEY]


def test_a_replica_that_begins_again_gets_no_new_epoch_of_a_leader_that_was_away(view):
    came_back(view, 1, 2)
    with pytest.raises(KafkaError) as raised:
        decide(view, KEY, propose(Member(1), Member(2), sender=3), controller_epoch=9)
    assert raised.value.code is ErrorCode.INELIGIBLE_REPLICA


def test_no_reassignment_begins_or_ends_while_all_in_sync_are_unsure_and_nobody_is_elected(view):
    came_back(view, 1, 2)
    with pytest.raises(KafkaError, match="accept the loss by an unclean election") as raised:
        begin(view, KEY, (3,), 9)
    assert raised.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    view.put_topic("t", TopicAssignment(ID, {0: ReplicaAssignment((1, 2, 3), (1,), (3,))}))
    assert wanted_change(view, KEY, 9) is None
