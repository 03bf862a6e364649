"""Partitions that move to other brokers: each step is one write, any later controller can continue after it, and no
step removes the last complete replica.
"""

import pytest
from tests.support.controlled_brokers import ControlledBrokers

from oncelog_broker.controller import writer
from oncelog_broker.controller.alter_partition import Member, Proposal
from oncelog_broker.controller.candidates import OFFLINE, UNKNOWN, LogEnd
from oncelog_broker.controller.election import Undecided
from oncelog_broker.controller.known_broker import KnownBroker
from oncelog_broker.controller.partition_decisions import PartitionChange, awaited, wanted_change
from oncelog_broker.controller.reassignment import begin, reassigned_to, staying_in_sync
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.controller.view import ClusterView, KnownState
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model import reader
from oncelog_broker.metadata.model.payloads import PartitionState, ReplicaAssignment, TopicAssignment, encode_mark
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.metadata.stores.store import Create
from oncelog_protocol.errors import ErrorCode, KafkaError

KEY = PartitionKey("t", 0)
ID = b"0123456789abcdef"


def view_of(assignment, state, live=(1, 2, 3, 4, 5)):
    view = ClusterView()
    view.put_brokers(KnownBroker(broker, 1) for broker in live)
    view.put_topic("t", TopicAssignment(ID, {0: assignment}))
    view.put_state(KEY, KnownState(state, 3, 7))
    return view


LED_BY_1 = PartitionState(1, 5, (1, 2, 3), 1)


# --- the stored assignment


def test_a_replica_in_sync_is_taken_away_only_when_one_that_stays_has_answered():
    """All target brokers may have lost power although their sessions are still open, so broker 3 may be the only broker
    with all records.
    """
    view = view_of(ReplicaAssignment((1, 2, 3), (), (3,)), PartitionState(3, 5, (1, 2, 3), 1))
    view.candidates.is_asked_for = True
    assert awaited(view, KEY) == Undecided(ask=(1, 2))
    view.candidates.note(KEY, 1, UNKNOWN)
    view.candidates.note(KEY, 2, OFFLINE)
    assert (wanted_change(view, KEY, 9), awaited(view, KEY)) == (None, Undecided(offline=(1, 2)))
    view.candidates.note(KEY, 2, LogEnd(5, 8))
    done = wanted_change(view, KEY, 9)
    assert (done.assignment, done.state) == (ReplicaAssignment((1, 2)), PartitionState(2, 6, (1, 2), 9))
    assert awaited(view, KEY) is None


def test_a_replica_in_sync_that_was_being_added_is_taken_away_only_when_one_that_stays_has_answered():
    view = view_of(ReplicaAssignment((4, 1, 2, 3), (4,), (1,)), PartitionState(4, 6, (4, 3, 2), 1))
    view.candidates.is_asked_for = True
    assert staying_in_sync(view, KEY, None) == (3, 2)
    assert staying_in_sync(view, KEY, (4, 2, 3)) == ()
    view.candidates.note(KEY, 3, UNKNOWN)
    with pytest.raises(KafkaError) as raised:
        begin(view, KEY, None, 9)
    assert raised.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "answers" in raised.value.message
    view.candidates.note(KEY, 2, LogEnd(6, 8))
    assert begin(view, KEY, None, 9).state == PartitionState(2, 7, (3, 2), 9)


def test_no_log_end_is_asked_for_if_no_in_sync_replica_is_removed():
    view = view_of(ReplicaAssignment((1, 2, 3), (), (3,)), PartitionState(1, 5, (1, 2), 1))
    view.candidates.is_asked_for = True
    assert awaited(view, KEY) is None
    assert wanted_change(view, KEY, 9).assignment == ReplicaAssignment((1, 2))


@pytest.mark.parametrize(
    ("before", "target", "after"),
    [
        (ReplicaAssignment((1, 2)), (3, 4), ReplicaAssignment((3, 4, 1, 2), (3, 4), (1, 2))),
        (ReplicaAssignment((1, 2)), (2, 3), ReplicaAssignment((2, 3, 1), (3,), (1,))),
        (ReplicaAssignment((1, 2)), (1,), ReplicaAssignment((1, 2), (), (2,))),
        (ReplicaAssignment((1, 2)), (1, 2, 3), ReplicaAssignment((1, 2, 3), (3,), ())),
        (ReplicaAssignment((1, 2)), (2, 1), ReplicaAssignment((2, 1))),
        # A new target assignment replaces the present one: a replica that is still being added, and that the new target
        # lacks, is removed immediately.
        (ReplicaAssignment((3, 1, 2), (3,), (1,)), (4, 2), ReplicaAssignment((4, 2, 1), (4,), (1,))),
        # The reassignment is reverted.
        (ReplicaAssignment((3, 4, 1, 2), (3, 4), (1, 2)), (1, 2), ReplicaAssignment((1, 2))),
    ],
)
def test_an_assignment_during_a_reassignment_lists_old_and_new_replicas(before, target, after):
    assert reassigned_to(before, target) == after
    assert after.target == target


def test_an_added_replica_changes_neither_leader_nor_epoch():
    begun = begin(view_of(ReplicaAssignment((1, 2, 3)), LED_BY_1), KEY, (4, 2, 3), 9)
    assert begun.state == PartitionState(1, 5, (1, 2, 3), 9)


def test_a_replica_removed_before_it_caught_up_is_fenced_by_a_new_epoch():
    view = view_of(ReplicaAssignment((4, 1, 2, 3), (4,), (1,)), LED_BY_1)
    assert begin(view, KEY, None, 9).state == PartitionState(1, 6, (1, 2, 3), 9)


def test_a_leader_that_is_taken_away_has_a_successor_in_sync():
    view = view_of(ReplicaAssignment((4, 1, 2, 3), (4,), (1,)), PartitionState(4, 6, (4, 3), 1))
    begun = begin(view, KEY, None, 9)
    assert begun.assignment == ReplicaAssignment((1, 2, 3))
    assert begun.state == PartitionState(3, 7, (3,), 9)


def test_the_last_replica_in_sync_is_not_taken_away():
    """Broker 4 was added by the reassignment, and now has the only complete replica."""
    view = view_of(ReplicaAssignment((4, 1, 2), (4,), (1,)), PartitionState(4, 6, (4,), 1))
    for target in (None, (3, 5)):
        with pytest.raises(KafkaError) as raised:
            begin(view, KEY, target, 9)
        assert raised.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "lost" in raised.value.message


@pytest.mark.parametrize("target", [(), (1, 1), (1, -1), (1, 6)])
def test_an_empty_repeated_or_dead_target_is_refused(target):
    with pytest.raises(KafkaError) as raised:
        begin(view_of(ReplicaAssignment((1, 2, 3)), LED_BY_1), KEY, target, 9)
    assert raised.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_present_replica_may_stay_in_the_target_while_its_broker_is_down():
    view = view_of(ReplicaAssignment((1, 2, 3)), LED_BY_1, live=(1, 2))
    assert begin(view, KEY, (3, 1), 9).assignment == ReplicaAssignment((3, 1, 2), (), (2,))


@pytest.mark.parametrize("leader", [KnownBroker(1, 8), KnownBroker(1)], ids=["registered again", "absent"])
def test_a_reassignment_waits_for_the_election_while_the_leader_was_away(leader):
    """A write of the state would let the returned leader lead in its old epoch, perhaps without its last records."""
    view = view_of(ReplicaAssignment((1, 2, 3)), LED_BY_1)
    view.put_brokers([leader, KnownBroker(2, 1), KnownBroker(3, 1)])
    for target in ((2, 3, 1), (1, 2)):
        with pytest.raises(KafkaError, match="the election comes first") as refused:
            begin(view, KEY, target, 9)
        assert refused.value.code is ErrorCode.LEADER_NOT_AVAILABLE


def test_cancelling_without_a_reassignment_is_refused():
    with pytest.raises(KafkaError) as raised:
        begin(view_of(ReplicaAssignment((1, 2, 3)), LED_BY_1), KEY, None, 9)
    assert raised.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_reassignment_to_the_present_replicas_is_not_written():
    view = view_of(ReplicaAssignment((4, 1, 2, 3), (4,), (1, 2, 3)), LED_BY_1)
    assert begin(view, KEY, (4,), 9) is None
    assert begin(view_of(ReplicaAssignment((1, 2, 3)), LED_BY_1), KEY, (1, 2, 3), 9) is None


def test_the_number_of_replicas_may_be_held_fast():
    view = view_of(ReplicaAssignment((4, 1, 2, 3), (4,), (1, 2, 3)), LED_BY_1)  # the reassignment leads to one replica
    assert begin(view, KEY, (5,), 9, may_change_replication_factor=False) is not None
    with pytest.raises(KafkaError) as raised:
        begin(view, KEY, (1, 2, 3), 9, may_change_replication_factor=False)
    assert raised.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_reassignment_of_an_unknown_or_doomed_partition_is_refused():
    view = view_of(ReplicaAssignment((1, 2, 3)), LED_BY_1)
    view.doomed.add("t")
    for key in (KEY, PartitionKey("t", 1), PartitionKey("u", 0)):
        with pytest.raises(KafkaError) as raised:
            begin(view, key, (4,), 9)
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_assignments_of_different_topics_are_written_apart():
    state = PartitionState(1, 0, (1,), 1)
    moved = ReplicaAssignment((2, 1), (2,), (1,))
    keys = [PartitionKey(topic, index) for topic in "ab" for index in (0, 1)]
    changes = [PartitionChange(key, state, 0, assignment=moved) for key in keys]
    changes.append(PartitionChange(PartitionKey("c", 0), state, 0))
    assert [len(piece) for piece in writer.in_pieces(changes)] == [2, 2, 1]


# --- reassignments over several writes


@pytest.fixture
async def cluster():
    cluster = ControlledBrokers()
    for broker in (1, 2, 3, 4):
        await cluster.start(broker)
    return cluster


@pytest.fixture
async def term(cluster):
    term = await cluster.control(1)
    await TopicController(cluster.sessions[1], lambda: term).create_topic(
        "t", -1, -1, assignment={0: [1, 2], 1: [2, 3]}
    )
    return term


async def look(cluster, index=0):
    state = (await reader.read_image(cluster.admin)).topics["t"].partitions[index]
    return state.replicas, state.adding_replicas, state.removing_replicas


async def catches_up(cluster, term, *isr, index=0):
    """Let the leader of a partition propose this ISR."""
    image = await reader.read_image(cluster.admin)
    topic = image.topics["t"]
    state = topic.partitions[index]
    members = [Member(broker, image.brokers[broker].epoch) for broker in isr]
    proposal = Proposal(state.leader, state.leader_epoch, state.partition_epoch, members)
    (answer,) = await term.alter(state.leader, image.brokers[state.leader].epoch, [(topic.topic_id, index, proposal)])
    return answer


async def test_a_reassignment_takes_two_writes(cluster, term):
    writes = cluster.shared.writes
    assert await term.reassign([(KEY, [3, 4]), (PartitionKey("t", 1), [2, 4])]) == [None, None]
    assert cluster.shared.writes == writes + 1
    assert await look(cluster) == ((3, 4, 1, 2), (3, 4), (1, 2))
    await catches_up(cluster, term, 1, 2, 3)
    assert await look(cluster) == ((3, 4, 1, 2), (3, 4), (1, 2)), "broker 4 is not in sync yet"
    answer = await catches_up(cluster, term, 1, 2, 3, 4)
    assert answer.state.isr == (1, 2, 3, 4)
    assert await look(cluster) == ((3, 4), (), ())
    assert await cluster.states() == {0: (3, 1, (3, 4)), 1: (2, 0, (2, 3))}
    assert cluster.shared.writes == writes + 4


async def test_a_reassignment_that_only_removes_replicas_completes_at_once(cluster, term):
    assert await term.reassign([(KEY, [2])]) == [None]
    assert await look(cluster) == ((2,), (), ())
    assert (await cluster.states())[0] == (2, 1, (2,))


async def test_another_order_is_only_another_preference(cluster, term):
    assert await term.reassign([(KEY, [2, 1])]) == [None]
    assert await look(cluster) == ((2, 1), (), ())
    assert (await cluster.states())[0] == (1, 0, (1, 2))


async def test_the_next_controller_continues_a_reassignment(cluster, term):
    await term.reassign([(KEY, [3, 4])])
    cluster.stop(1)
    term = await cluster.control(2)
    assert await look(cluster) == ((3, 4, 1, 2), (3, 4), (1, 2))
    await catches_up(cluster, term, 2, 3, 4)
    assert await look(cluster) == ((3, 4), (), ())


async def test_the_next_controller_completes_what_only_waits_for_its_write(cluster, term):
    await term.reassign([(KEY, [3, 4])])

    def dies(operations):
        if any(getattr(operation, "path", "") == paths.topic("t") for operation in operations):
            cluster.sessions[1].on_write = None
            cluster.stop(1)

    cluster.sessions[1].on_write = dies
    with pytest.raises(Exception, match="session"):
        await catches_up(cluster, term, 1, 2, 3, 4)
    assert await look(cluster) == ((3, 4, 1, 2), (3, 4), (1, 2))
    await cluster.control(2)
    assert await look(cluster) == ((3, 4), (), ())
    assert (await cluster.states())[0] == (3, 2, (3, 4)), "broker 1 was dead first"


async def test_a_target_that_dies_is_waited_for_or_given_up(cluster, term):
    await term.reassign([(KEY, [3, 4])])
    cluster.stop(4)
    await term.brokers_changed()
    await catches_up(cluster, term, 1, 2, 3)
    assert await look(cluster) == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert await term.reassign([(KEY, None)]) == [None]
    assert await look(cluster) == ((1, 2), (), ())
    assert (await cluster.states())[0] == (1, 1, (1, 2))


async def test_a_broker_that_has_just_registered_may_be_a_target(cluster, term):
    await cluster.start(5)
    assert await term.reassign([(KEY, [5])]) == [None]


async def test_each_partition_of_a_reassignment_has_its_own_answer(cluster, term):
    errors = await term.reassign(
        [(KEY, [4]), (KEY, [3]), (PartitionKey("t", 9), [1]), (PartitionKey("t", 1), None), (PartitionKey("t", 1), [9])]
    )
    assert [error and error.code for error in errors] == [
        None,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ]


@pytest.mark.parametrize("lost", ["lose_replies", "lose_requests"])
async def test_a_write_that_seems_lost_is_done_once(cluster, term, lost):
    setattr(cluster.sessions[1], lost, 1)
    assert await term.reassign([(KEY, [3, 4])]) == [None]
    assert await look(cluster) == ((3, 4, 1, 2), (3, 4), (1, 2))
    setattr(cluster.sessions[1], lost, 2)
    await catches_up(cluster, term, 1, 2, 3, 4)
    assert await look(cluster) == ((3, 4), (), ())
    assert (await cluster.states())[0] == (3, 1, (3, 4))


@pytest.mark.parametrize("lost", ["lose_replies", "lose_requests"])
async def test_a_cancellation_that_seems_lost_is_one_all_the_same(cluster, term, lost):
    await term.reassign([(KEY, [3, 4])])
    setattr(cluster.sessions[1], lost, 1)
    assert await term.reassign([(KEY, None)]) == [None]
    assert await look(cluster) == ((1, 2), (), ())
    (error,) = await term.reassign([(KEY, None)])
    assert error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def test_no_partitions_are_added_during_a_reassignment(cluster, term):
    topics = TopicController(cluster.sessions[1], lambda: term)
    await term.reassign([(KEY, [3, 4])])
    with pytest.raises(KafkaError) as raised:
        await topics.create_partitions("t", 5)
    assert raised.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    await catches_up(cluster, term, 1, 2, 3, 4)
    await topics.create_partitions("t", 5)
    assert await term.reassign([(PartitionKey("t", 4), [1])]) == [None]


async def test_partitions_that_were_added_elsewhere_are_no_hindrance(cluster, term):
    """The topic's node has partitions that the controller's view lacks."""
    topics = TopicController(cluster.sessions[1], lambda: term)
    version = term.view.topic_versions["t"]
    await topics.create_partitions("t", 3)
    term.view.topic_versions["t"] = version
    assert await term.reassign([(KEY, [3, 4])]) == [None]
    assert await look(cluster) == ((3, 4, 1, 2), (3, 4), (1, 2))


async def test_a_topic_goes_with_its_reassignment(cluster, term):
    await term.reassign([(KEY, [3, 4])])
    await TopicController(cluster.sessions[1], lambda: term).delete_topic("t")
    assert await term.reassign([(KEY, None)]) != [None]
    assert "t" not in (await reader.read_image(cluster.admin)).topics


async def test_a_reassignment_of_a_doomed_topic_is_not_completed(cluster, term):
    await term.reassign([(KEY, [3, 4])])
    mark = encode_mark(term.view.topics["t"])
    await cluster.admin.create(paths.DELETE_TOPICS, make_parents=True)
    await cluster.admin.multi([Create(paths.deletion("t"), mark)])
    cluster.stop(1)
    term = await cluster.control(2)
    (error,) = await term.reassign([(KEY, None)])
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await look(cluster) == ((3, 4, 1, 2), (3, 4), (1, 2))
