"""One term of a controller handles each event in few writes, and correctly even if replies are lost."""

import asyncio
import logging
from types import SimpleNamespace

import pytest
from tests.support.controlled_brokers import ControlledBrokers
from tests.support.loop_turns import turns

from oncelog_broker.controller import reconciler, writer
from oncelog_broker.controller.alter_partition import Member, Proposal
from oncelog_broker.controller.partition_decisions import PartitionChange
from oncelog_broker.controller.partitions import PartitionController
from oncelog_broker.controller.reconciler import Reconciler
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.controller.writer import Deposed
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership.registration import FoundLogs, FoundTopic, register_broker
from oncelog_broker.metadata.model.payloads import (
    BrokerRegistration,
    Endpoint,
    Incarnation,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    encode_incarnation,
    encode_topic,
)
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.metadata.stores.store import Create, Delete, SessionExpired, Set, StoreUnavailable
from oncelog_protocol.elections import ElectionType
from oncelog_protocol.errors import ErrorCode, KafkaError


@pytest.fixture
async def cluster():
    cluster = ControlledBrokers()
    for broker in (1, 2, 3):
        await cluster.start(broker)
    return cluster


@pytest.fixture
async def term(cluster):
    return await cluster.control(1)


@pytest.fixture
async def topic(cluster, term):
    """Create a topic in which each partition has another preferred leader and all replicas are in sync."""
    by_hand = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
    return await TopicController(cluster.sessions[1], lambda: term).create_topic("t", -1, -1, assignment=by_hand)


def proposal(leader, isr, leader_epoch=0, partition_epoch=0):
    return Proposal(leader, leader_epoch, partition_epoch, [Member(broker) for broker in isr])


async def test_an_empty_cluster_has_nothing_to_elect(cluster, term):
    writes = cluster.shared.writes
    await term.brokers_changed()
    assert cluster.shared.writes == writes


async def test_a_death_is_one_write_elections_and_isrs_together(cluster, term, topic):
    cluster.stop(2)
    writes = cluster.shared.writes
    await term.brokers_changed()
    assert await cluster.states() == {0: (1, 0, (1, 3)), 1: (3, 1, (3, 1)), 2: (3, 0, (3, 1))}
    assert cluster.shared.writes == writes + 1


async def test_a_bounce_is_seen_though_the_gap_was_not(cluster, term, topic):
    cluster.stop(2)
    await cluster.start(2)
    await term.brokers_changed()
    assert await cluster.states() == {0: (1, 0, (1, 3)), 1: (3, 1, (2, 3, 1)), 2: (3, 0, (3, 1))}


async def test_a_bounce_is_seen_by_the_next_controller_too(cluster, term, topic):
    for broker in (1, 2):
        cluster.stop(broker)
    await cluster.start(2)
    await cluster.control(3)
    assert await cluster.states() == {0: (3, 1, (2, 3)), 1: (3, 1, (2, 3)), 2: (3, 0, (3,))}


async def test_a_new_controller_elects_nothing_for_steady_brokers(cluster, term, topic):
    await cluster.start(4)
    await cluster.sessions[4].delete(paths.CONTROLLER)
    before = await cluster.states()
    await cluster.control(4)
    assert await cluster.states() == before


async def test_an_out_of_sync_replica_leads_only_if_the_topic_allows_it(cluster, term, topic):
    assert await term.alter(1, cluster_epoch(term, 1), [(topic.topic_id, 0, proposal(1, [1]))])
    cluster.stop(1)
    second = await cluster.control(2)
    assert (await cluster.states())[0] == (-1, 1, (1,))
    await cluster.admin.create(paths.topic_config("t"), b'{"config":{"unclean.leader.election.enable":"true"}}')
    await second.configs_changed(["t"])
    assert (await cluster.states())[0] == (2, 2, (2,))
    assert second.view.states["t", 0].state.leader_recovery_state == 1


async def test_a_refused_incarnation_is_read_again_and_decided_again(cluster, term, topic):
    """Broker 3 would be elected, but restarts while the state is written."""
    cluster.stop(2)
    session = cluster.shared.connect()

    def bounce(operations):
        cluster.sessions[1].on_write = None
        cluster.stop(3)
        create = Create(paths.broker_id(3), cluster.shared.tree.node(paths.broker_id(1)).data, ephemeral=True)
        cluster.shared.write([Set(paths.incarnation(3), b""), create], session.session_id)

    cluster.sessions[1].on_write = bounce
    await term.brokers_changed()
    assert await cluster.states() == {0: (1, 0, (1,)), 1: (1, 1, (1,)), 2: (1, 1, (1,))}
    assert 3 in term.view.live


async def test_many_partitions_are_written_in_parts(cluster, term, topic, monkeypatch):
    monkeypatch.setattr(writer, "MAX_PARTITIONS_PER_MULTI", 2)
    cluster.stop(2)
    writes = cluster.shared.writes
    await term.brokers_changed()
    assert cluster.shared.writes == writes + 2


@pytest.mark.parametrize(("at_once", "pauses"), [(1, 8), (3, 4), (4, 1)])
async def test_changes_are_sorted_with_pauses_elections_first(monkeypatch, at_once, pauses):
    """The order of the partitions comes from sets, and must not depend on the hashes of topic names."""
    monkeypatch.setattr(reconciler, "SORTED_AT_ONCE", at_once)
    paused = []

    async def pause():
        paused.append(None)

    controller = SimpleNamespace(pause=pause)
    state = PartitionState(1, 1, (1,), 1)
    keys = [(topic, partition) for topic in ("b", "a") for partition in (1, 0)]
    changes = [PartitionChange(PartitionKey(*key), state, 0, is_election=key[1] == 1) for key in keys]
    expected = [("a", 1), ("b", 1), ("a", 0), ("b", 0)]
    assert [change.key for change in await Reconciler._in_order(controller, changes)] == expected
    assert len(paused) == pauses
    assert [change.key for change in await Reconciler._in_order(controller, changes[::-1])] == expected
    assert await Reconciler._in_order(controller, []) == []


def test_parts_are_small_enough_for_zookeeper(monkeypatch):
    monkeypatch.setattr(writer, "MAX_MULTI_BYTES", 2000)
    changes = [PartitionChange(PartitionKey("t" * 249, p), PartitionState(1, 0, (1, 2, 3), 1), 0) for p in range(10)]
    parts = list(writer.in_pieces(changes))
    assert [change for part in parts for change in part] == changes
    for part in parts:
        assert writer.size_of([writer._operation(change) for change in part]) <= 2000


@pytest.mark.parametrize("parents", [[], [paths.partitions("t")], [paths.partitions("t"), paths.partition("t", 0)]])
async def test_partitions_that_were_never_led_get_their_first_state(cluster, term, parents):
    assigned = TopicAssignment(
        b"i" * 16, {0: ReplicaAssignment((1,)), 1: ReplicaAssignment((9,)), 2: ReplicaAssignment((1,))}
    )
    await cluster.admin.multi([Create(paths.topic("t"), encode_topic(assigned)), *map(Create, parents)])
    await term.topics_changed(["t"])
    assert await cluster.states() == {0: (1, 0, (1,)), 1: (-1, -1, ()), 2: (1, 0, (1,))}
    await cluster.start(9)
    await term.brokers_changed()
    assert (await cluster.states())[1] == (9, 0, (9,))


async def test_an_adopted_topic_gets_an_epoch_above_its_logs():
    cluster = ControlledBrokers()
    session = cluster.sessions[1] = cluster.shared.connect()
    logs = FoundLogs(topics=(FoundTopic("t", {0: 7, 1: -1}),))
    await register_broker(session, 1, BrokerRegistration((Endpoint("PLAINTEXT", "h", 1),)), lambda: logs)
    await cluster.control(1)
    assert await cluster.states() == {0: (1, 8, (1,)), 1: (1, 0, (1,))}


async def test_an_unreadable_state_keeps_no_other_partition_from_its_leader(cluster, term, topic, caplog):
    await cluster.admin.create(paths.topic("broken"), b"nonsense")
    await cluster.admin.create(paths.topic("u"), encode_topic(TopicAssignment(b"u" * 16, {0: ReplicaAssignment((2,))})))
    cluster.stop(1)
    second = await cluster.control(2)
    assert second.view.states["u", 0].state.leader == 2
    assert second.view.states["t", 0].state.leader == 2
    assert "cannot be read" in caplog.text


def cluster_epoch(term, broker):
    return term.view.brokers[broker].epoch


EVENTS = {
    "death": lambda cluster, term, topic: _death(cluster, term),
    "isr": lambda cluster, term, topic: term.alter(
        1, cluster_epoch(term, 1), [(topic.topic_id, 0, proposal(1, [1, 2]))]
    ),
    "new partitions": lambda cluster, term, topic: _grown(cluster, term),
}


async def _death(cluster, term):
    cluster.stop(3)
    await term.brokers_changed()


async def _grown(cluster, term):
    assigned = TopicAssignment(b"u" * 16, {0: ReplicaAssignment((2,))})
    await cluster.admin.create(paths.topic("u"), encode_topic(assigned))
    await term.topics_changed(["u"])


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
@pytest.mark.parametrize("lost", ["lose_replies", "lose_requests"])
async def test_a_reply_that_is_lost_changes_nothing(cluster, term, topic, event, lost):
    """The states are the same as without the lost reply, and each partition is written once."""
    setattr(cluster.sessions[1], lost, 1)
    await event(cluster, term, topic)
    first = {name: await cluster.states(name) for name in term.view.topics}
    versions = {key: known.version for key, known in term.view.states.items()}
    assert all(version <= 1 for version in versions.values())
    writes = cluster.shared.writes
    await term.read_all()
    assert cluster.shared.writes == writes
    assert {key: known.version for key, known in term.view.states.items()} == versions
    assert first == {name: await cluster.states(name) for name in term.view.topics}


async def test_a_controller_cut_off_from_the_store_reads_all_again_before_it_decides(cluster, term, topic):
    troubles = []
    term.on_trouble = lambda: troubles.append(1)
    cluster.sessions[1].is_cut = True
    with pytest.raises(StoreUnavailable):
        await term.brokers_changed()
    assert troubles
    assert term.must_read_all
    cluster.stop(2)
    cluster.sessions[1].reconnect()
    await term.topics_changed([])
    assert (await cluster.states())[1] == (3, 1, (3, 1))


async def test_the_writes_of_a_zombie_fail_and_the_image_stays(cluster, term, topic):
    """The former controller paused between its decision and the write of that decision; meanwhile another broker became
    controller.
    """
    await cluster.start(4)
    cluster.stop(2)
    cluster.sessions[1].hold_writes()
    deciding = asyncio.ensure_future(term.brokers_changed())
    await cluster.sessions[1].has_held_writes.wait()
    await cluster.sessions[4].delete(paths.CONTROLLER)
    second = await cluster.control(4)
    states = await cluster.states()
    versions = {key: known.version for key, known in second.view.states.items()}
    cluster.sessions[1].release_writes()
    with pytest.raises(Deposed):
        await deciding
    await second.read_all()
    assert await cluster.states() == states
    assert {key: known.version for key, known in second.view.states.items()} == versions


async def test_a_session_that_is_over_writes_nothing(cluster, term, topic):
    cluster.stop(1)
    with pytest.raises(SessionExpired):
        await term.brokers_changed()


async def test_proposals_of_a_whole_broker_are_one_write(cluster, term, topic):
    epoch = cluster_epoch(term, 2)
    writes = cluster.shared.writes
    granted, unknown, refused = await term.alter(
        2,
        epoch,
        [
            (topic.topic_id, 1, proposal(2, [2, 3])),
            (b"x" * 16, 0, proposal(2, [2])),
            (topic.topic_id, 0, proposal(2, [2])),
        ],
    )
    assert granted.state.isr == (2, 3)
    assert granted.version == 1
    assert unknown.code is ErrorCode.UNKNOWN_TOPIC_ID
    assert refused.code is ErrorCode.INVALID_REQUEST
    assert cluster.shared.writes == writes + 1


async def test_a_proposal_of_a_former_incarnation_is_refused_as_a_whole(cluster, term, topic):
    epoch = cluster_epoch(term, 2)
    cluster.stop(2)
    await cluster.start(2)
    await term.brokers_changed()
    with pytest.raises(KafkaError) as raised:
        await term.alter(2, epoch, [(topic.topic_id, 1, proposal(2, [2]))])
    assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH


async def test_a_leader_that_knows_a_newer_state_is_answered_by_that_state(cluster, term, topic):
    """The store has executed a write after the controller read the state, so the controller knows an older version of
    the state than the leader. The store refuses a change of that version, and the controller reads the state again.
    """
    path = paths.partition_state("t", 0)
    data, stat = await cluster.admin.get(path)
    await cluster.admin.set(path, data, stat.version)
    wanted = [(topic.topic_id, 0, proposal(1, [1, 2], partition_epoch=stat.version + 1))]
    (granted,) = await term.alter(1, cluster_epoch(term, 1), wanted)
    assert (granted.state.isr, granted.state.leader_epoch) == ((1, 2), 0)


async def test_a_leader_whose_newer_state_is_gone_leads_in_a_new_epoch(cluster, term, topic):
    """The metadata store was put back from a backup while the brokers ran."""
    _, stat = await cluster.admin.get(paths.partition_state("t", 0))
    wanted = [(topic.topic_id, 0, proposal(1, [1, 2], partition_epoch=stat.version + 2))]
    (granted,) = await term.alter(1, cluster_epoch(term, 1), wanted)
    assert (granted.state.leader, granted.state.leader_epoch, granted.state.isr) == (1, 1, (1, 2, 3))
    assert (await cluster.states())[0] == (1, 1, (1, 2, 3))


async def test_a_replica_that_begins_again_gets_a_new_epoch_and_a_join_that_was_under_way_is_refused(
    cluster, term, topic
):
    await term.alter(1, cluster_epoch(term, 1), [(topic.topic_id, 0, proposal(1, [1, 2]))])
    as_it_is = [(topic.topic_id, 0, proposal(3, [1, 2], partition_epoch=1))]
    (granted,) = await term.alter(3, cluster_epoch(term, 3), as_it_is)
    assert (granted.state.leader, granted.state.leader_epoch, granted.state.isr) == (1, 1, (1, 2))
    (again,) = await term.alter(3, cluster_epoch(term, 3), as_it_is)
    (joining,) = await term.alter(
        1, cluster_epoch(term, 1), [(topic.topic_id, 0, proposal(1, [1, 2, 3], partition_epoch=1))]
    )
    assert [again.code, joining.code] == [ErrorCode.FENCED_LEADER_EPOCH] * 2
    assert (await cluster.states())[0] == (1, 1, (1, 2))


def lose_power(cluster, broker):
    """Let the broker's machine crash and restart before the controller's next write takes effect."""
    session = cluster.shared.connect()
    unsure = encode_incarnation(Incarnation(is_log_tail_kept=False))

    def bounce(_):
        cluster.sessions[1].on_write = None
        cluster.stop(broker)
        data = cluster.shared.tree.node(paths.broker_id(1)).data
        registration = Create(paths.broker_id(broker), data, ephemeral=True)
        cluster.shared.write([Set(paths.incarnation(broker), unsure), registration], session.session_id)

    cluster.sessions[1].on_write = bounce


@pytest.mark.parametrize("per_write", [250, 2, 1])
async def test_a_decision_made_before_a_refusal_is_not_written_after_it(cluster, term, topic, monkeypatch, per_write):
    """If the old decision were written, broker 3 would lead with a truncated log, because the write would rely on a
    registration that the controller had not seen.
    """
    monkeypatch.setattr(writer, "MAX_PARTITIONS_PER_MULTI", per_write)
    cluster.stop(2)
    lose_power(cluster, 3)
    await term.brokers_changed()
    assert await cluster.states() == {0: (1, 0, (1,)), 1: (1, 1, (1,)), 2: (1, 1, (1,))}


async def test_a_proposal_is_not_granted_to_an_incarnation_that_it_does_not_name(cluster, term, topic, monkeypatch):
    monkeypatch.setattr(writer, "MAX_PARTITIONS_PER_MULTI", 1)
    made = await TopicController(cluster.sessions[1], lambda: term).create_topic(
        "u", -1, -1, assignment={0: [1, 2, 3], 1: [1, 3, 2]}
    )

    def proposals(isr, partition_epoch):
        members = [Member(broker, cluster_epoch(term, broker)) for broker in isr]
        return [(made.topic_id, partition, Proposal(1, 0, partition_epoch, members)) for partition in (0, 1)]

    await term.alter(1, cluster_epoch(term, 1), proposals([1, 2], 0))
    caught_up = proposals([1, 2, 3], 1)
    lose_power(cluster, 3)
    answers = await term.alter(1, cluster_epoch(term, 1), caught_up)
    assert [answer.code for answer in answers] == [ErrorCode.INELIGIBLE_REPLICA] * 2
    assert await cluster.states("u") == {0: (1, 0, (1, 2)), 1: (1, 0, (1, 2))}


async def test_a_topic_that_goes_while_its_proposals_are_written(cluster, term, topic, monkeypatch):
    monkeypatch.setattr(writer, "MAX_PARTITIONS_PER_MULTI", 1)
    admin = TopicController(cluster.sessions[1], lambda: term)
    made = await admin.create_topic("u", -1, -1, assignment={0: [1, 2, 3], 1: [1, 3, 2]})
    writes = []

    def delete(_):
        writes.append(None)
        if len(writes) == 2:
            cluster.sessions[1].on_write = None
            nodes = [path(p) for p in (0, 1) for path in (state_path, partition_path)]
            gone = [*nodes, paths.partitions("u"), paths.topic("u")]
            cluster.shared.write([Delete(node) for node in gone], 99)

    def state_path(partition):
        return paths.partition_state("u", partition)

    def partition_path(partition):
        return paths.partition("u", partition)

    cluster.sessions[1].on_write = delete
    wanted = [(made.topic_id, partition, proposal(1, [1, 2])) for partition in (0, 1)]
    answers = await term.alter(1, cluster_epoch(term, 1), wanted)
    assert all(isinstance(answer, KafkaError) for answer in answers)


async def test_a_decision_about_a_deleted_topic_is_not_written_to_its_successor(cluster, term, monkeypatch):
    """The state nodes of both topics start with version 0.

    A broker dies. While the elections are written, the topic is deleted and re-created on other brokers, as active
    clients do immediately.
    """
    monkeypatch.setattr(writer, "MAX_PARTITIONS_PER_MULTI", 1)
    topics = TopicController(cluster.sessions[1], lambda: term)
    for name in ("t", "u"):
        await topics.create_topic(name, -1, -1, assignment={0: [2, 1]})
    changes = []

    async def made_anew(name):
        for change in (topics.delete_topic(name), topics.create_topic(name, -1, -1, assignment={0: [3]})):
            changes.append(asyncio.create_task(change))
            await turns(100)  # an election that takes fewer steps than this is not interrupted

    session = cluster.sessions[1]
    write = session.multi

    async def multi(operations):
        session.multi = write
        stats = await write(operations)
        (first,) = (name for name in ("t", "u") if any(o.path == paths.partition_state(name, 0) for o in operations))
        await made_anew("u" if first == "t" else "t")
        return stats

    cluster.stop(2)
    session.multi = multi
    await term.brokers_changed()
    await asyncio.gather(*changes)
    assert sorted([*(await cluster.states("t")).values(), *(await cluster.states("u")).values()]) == [
        (1, 1, (1,)),
        (3, 0, (3,)),
    ]


async def test_an_isr_expansion_does_not_admit_an_unnoticed_new_registration(cluster, term, topic):
    """The controller has not noticed the broker's restart yet, so the write of the ISR must detect the restart
    (KIP-903).
    """
    await term.alter(1, cluster_epoch(term, 1), [(topic.topic_id, 0, proposal(1, [1, 2]))])
    caught_up = Member(3, cluster_epoch(term, 3))
    cluster.stop(3)
    await cluster.start(3)
    asked = Proposal(1, 0, 1, [Member(1), Member(2), caught_up])
    (answer,) = await term.alter(1, cluster_epoch(term, 1), [(topic.topic_id, 0, asked)])
    assert answer.code is ErrorCode.INELIGIBLE_REPLICA
    assert (await cluster.states())[0] == (1, 0, (1, 2))


async def test_a_leader_that_resigns_is_told_that_another_one_was_elected(cluster, term, topic):
    (answer,) = await term.alter(1, cluster_epoch(term, 1), [(topic.topic_id, 0, proposal(1, [2, 3]))])
    assert answer.code is ErrorCode.NEW_LEADER_ELECTED
    assert (await cluster.states())[0] == (2, 1, (2, 3))


async def test_an_unsure_returned_replica_is_judged_before_a_proposal_that_counts_on_it(cluster, term, topic):
    """The broker that may have lost records has not fetched in this leader epoch, so the leader's ISR proposal does not
    contain the broker's incarnation.
    """
    await term.alter(1, cluster_epoch(term, 1), [(topic.topic_id, 0, proposal(1, (1, 2)))])
    cluster.stop(2)
    await cluster.start(2, is_log_tail_kept=False)
    wanted = proposal(1, (1, 2, 3), partition_epoch=1)
    (answer,) = await term.alter(1, cluster_epoch(term, 1), [(topic.topic_id, 0, wanted)])
    assert answer.code == ErrorCode.INVALID_UPDATE_VERSION
    assert (await cluster.states())[0] == (1, 0, (1,))


async def test_a_broker_that_came_unsure_and_bounced_before_anybody_looked_does_not_lead(cluster, term, topic):
    for broker in (1, 2, 3):
        cluster.stop(broker)
    await cluster.start(2, is_log_tail_kept=False)
    cluster.stop(2)
    await cluster.start(2)
    term = await cluster.control(2)
    assert (await cluster.states())[0] == (1, 0, (1, 2, 3)), "a write would say that it was there all the time"
    await cluster.start(3)
    await term.brokers_changed()
    assert (await cluster.states())[0] == (3, 1, (3,))


async def test_a_broker_that_stops_is_out_of_everything_in_one_write(cluster, term, topic):
    writes = cluster.shared.writes
    epoch = term.view.brokers[2].epoch
    assert await term.shut_down(2, epoch) == []
    assert await cluster.states() == {0: (1, 0, (1, 3)), 1: (3, 1, (3, 1)), 2: (3, 0, (3, 1))}
    assert cluster.shared.writes == writes + 1
    assert await term.shut_down(2, epoch) == []
    assert cluster.shared.writes == writes + 1


async def test_a_stopping_broker_keeps_partitions_that_no_other_broker_can_lead(cluster, term, topic):
    for broker in (1, 3):
        await term.shut_down(broker, term.view.brokers[broker].epoch)
    remaining = await term.shut_down(2, term.view.brokers[2].epoch)
    assert sorted(remaining) == [PartitionKey("t", partition) for partition in range(3)]
    assert {leader for leader, _, _ in (await cluster.states()).values()} == {2}


async def test_a_stopping_broker_is_remembered_when_the_view_is_read_again(cluster, term, topic):
    await term.shut_down(2, term.view.brokers[2].epoch)
    term.distrust()
    await term.read_all()
    assert term.view.live.keys() - term.view.staying == {2}
    cluster.stop(2)
    await cluster.start(2)
    await term.brokers_changed()
    assert term.view.staying == term.view.live


async def test_a_former_incarnation_cannot_stop_its_successor(cluster, term, topic):
    before = term.view.brokers[2].epoch
    cluster.stop(2)
    await cluster.start(2)
    with pytest.raises(KafkaError) as raised:
        await term.shut_down(2, before)
    assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert term.view.staying == term.view.live


async def test_a_refused_shutdown_decides_the_partitions_of_brokers_that_have_just_registered(cluster, term, topic):
    """A late request of the process before a restart makes the controller read the registrations. The partitions that
    the restarted broker had led would otherwise have no leader for good.
    """
    former = cluster_epoch(term, 2)
    cluster.stop(2)
    await cluster.start(2)
    with pytest.raises(KafkaError, match="not registered with epoch"):
        await term.shut_down(2, former)
    await term.brokers_changed()
    assert await cluster.states() == {0: (1, 0, (1, 3)), 1: (3, 1, (2, 3, 1)), 2: (3, 0, (3, 1))}


async def test_preferred_leaders_come_back_where_they_are_in_sync(cluster, term, topic):
    await term.shut_down(2, term.view.brokers[2].epoch)
    cluster.stop(2)
    await cluster.start(2)
    await term.brokers_changed()
    key = PartitionKey("t", 1)
    outcomes = await term.elect(ElectionType.PREFERRED, [key, PartitionKey("t", 0)])
    assert outcomes[key].code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert outcomes[PartitionKey("t", 0)].code is ErrorCode.ELECTION_NOT_NEEDED
    granted = await term.alter(3, term.view.brokers[3].epoch, [(topic.topic_id, 1, proposal(3, (3, 1, 2), 1, 1))])
    assert granted[0].state.isr == (3, 1, 2)
    assert await term.balance(100) == 0
    assert await term.balance(10) == 1
    assert (await cluster.states())[1] == (2, 2, (3, 1, 2))


async def test_a_client_may_ask_for_an_election_before_the_controller_notices_a_death(
    cluster, term, topic, monkeypatch
):
    """The metadata store's server from which the controller reads does not know yet that the leader has died.

    If the controller did not read the store again, it would elect no leader, and the client would not repeat its
    request.
    """
    await term.alter(2, term.view.brokers[2].epoch, [(topic.topic_id, 1, proposal(2, (2,)))])
    assert (await cluster.states())[1] == (2, 0, (2,))

    async def catch_up():
        cluster.stop(2)

    monkeypatch.setattr(cluster.sessions[1], "sync", catch_up)
    key = PartitionKey("t", 1)
    assert await term.elect(ElectionType.UNCLEAN, [key]) == {key: None}
    assert (await cluster.states())[1] == (3, 2, (3,))


@pytest.mark.parametrize("lost", ["lose_replies", "lose_requests"])
async def test_an_election_whose_reply_is_lost_took_place_once(cluster, term, topic, lost):
    await term.alter(2, term.view.brokers[2].epoch, [(topic.topic_id, 1, proposal(2, (3, 1)))])
    assert (await cluster.states())[1] == (3, 1, (3, 1))
    await term.alter(3, term.view.brokers[3].epoch, [(topic.topic_id, 1, proposal(3, (3, 1, 2), 1, 1))])
    setattr(cluster.sessions[1], lost, 1)
    outcomes = await term.elect(ElectionType.PREFERRED, None)
    assert outcomes.pop(PartitionKey("t", 1)) is None
    assert {error.code for error in outcomes.values()} == {ErrorCode.ELECTION_NOT_NEEDED}
    assert (await cluster.states())[1] == (2, 2, (3, 1, 2))


async def test_each_isr_shrink_and_expansion_is_one_log_line(cluster, term, topic, caplog):
    caplog.set_level(logging.INFO)
    cluster.stop(2)
    await term.brokers_changed()
    (left,) = (record for record in caplog.records if "in sync" in record.message)
    assert (left.levelname, left.broker, left.count, left.partitions) == ("WARNING", 2, 3, "t-0 t-1 t-2")
    caplog.clear()
    await cluster.start(2)
    await term.brokers_changed()
    await term.alter(3, term.view.brokers[3].epoch, [(topic.topic_id, 1, proposal(3, (3, 1, 2), 1, 1))])
    (joined,) = (record for record in caplog.records if "in sync" in record.message)
    assert (joined.levelname, joined.broker, joined.count, joined.partitions) == ("INFO", 2, 1, "t-1")


async def test_a_change_missed_during_the_full_read_triggers_another_read(cluster, term, topic):
    session, missed = cluster.sessions[1], []
    children = session.children

    async def while_something_is_missed(path):
        if path == paths.DELETE_TOPICS and not missed:
            missed.append(path)
            term.distrust()
        return await children(path)

    session.children = while_something_is_missed
    await term.read_all()
    assert term.must_read_all
    await term.read_all()
    assert not term.must_read_all


async def test_a_request_during_the_full_read_is_answered_from_its_result(cluster, term, topic):
    """A term that has just begun has an empty view although the cluster has topics."""
    begun, asked = PartitionController(cluster.sessions[1], term.controllership), []
    session = cluster.sessions[1]
    children = session.children

    async def while_somebody_asks(path):
        if path == paths.DELETE_TOPICS and not asked:
            asked.append(asyncio.ensure_future(begun.current_view()))
            await asyncio.sleep(0)
        return await children(path)

    session.children = while_somebody_asks
    await begun.read_all()
    (asking,) = asked
    assert "t" in (await asking).topics
