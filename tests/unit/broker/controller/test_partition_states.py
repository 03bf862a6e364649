"""Partitions come online when their broker (re)starts."""

import pytest

from oncelog_broker.controller import partition_states
from oncelog_broker.controller.leadership import Controllership, claim_controllership
from oncelog_broker.controller.partition_states import bring_partitions_online
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.metadata import paths, reader
from oncelog_broker.metadata.payloads import (
    BrokerRegistration,
    Endpoint,
    ReplicaAssignment,
    TopicAssignment,
    encode_topic,
)
from oncelog_broker.metadata.registration import FoundLogs, FoundTopic, register_broker
from oncelog_broker.metadata.store import BadVersion, Create

REGISTRATION = BrokerRegistration((Endpoint("PLAINTEXT", "h", 1),))


async def epochs(store, topic):
    image = await reader.read_image(store)
    return {p: (state.leader, state.leader_epoch) for p, state in image.topics[topic].partitions.items()}


async def test_an_empty_store_has_nothing_to_elect(embedded_store, store, controller):
    assert await bring_partitions_online(store, controller, {1}, {1}) == 0


async def test_a_store_without_topics_node_has_nothing_to_elect(embedded_store):
    assert await bring_partitions_online(embedded_store, Controllership(1, 0), {1}, {1}) == 0


async def test_a_restart_raises_every_leader_epoch_once(store, controller):
    await TopicController(store, controller).create_topic("t", 3, 1)
    assert await epochs(store, "t") == {0: (1, 0), 1: (1, 0), 2: (1, 0)}
    assert await bring_partitions_online(store, controller, {1}, {1}) == 3
    assert await epochs(store, "t") == {0: (1, 1), 1: (1, 1), 2: (1, 1)}
    assert await bring_partitions_online(store, controller, {1}, ()) == 0


async def test_many_partitions_are_written_in_parts(store, controller, monkeypatch):
    await TopicController(store, controller).create_topic("t", 5, 1)
    monkeypatch.setattr(partition_states, "MAX_PARTITIONS_PER_MULTI", 2)
    assert await bring_partitions_online(store, controller, {1}, {1}) == 5
    assert set((await epochs(store, "t")).values()) == {(1, 1)}


async def test_a_partition_whose_only_replica_is_away_loses_its_leader(store, controller):
    await TopicController(store, controller).create_topic("t", 1, 1)
    assert await bring_partitions_online(store, controller, {2}, ()) == 1
    assert await epochs(store, "t") == {0: (-1, 1)}
    assert await bring_partitions_online(store, controller, {2}, ()) == 0
    assert await bring_partitions_online(store, controller, {1}, {1}) == 1
    assert await epochs(store, "t") == {0: (1, 2)}


@pytest.mark.parametrize("parents", [[], [paths.partitions("t")], [paths.partitions("t"), paths.partition("t", 0)]])
async def test_partitions_that_were_never_led_get_their_first_state(store, controller, parents):
    assignment = TopicAssignment(
        None, {0: ReplicaAssignment((1,)), 1: ReplicaAssignment((9,)), 2: ReplicaAssignment((1,))}
    )
    await store.multi([Create(paths.topic("t"), encode_topic(assignment)), *map(Create, parents)])
    assert await bring_partitions_online(store, controller, {1}, {1}) == 2
    assert await epochs(store, "t") == {0: (1, 0), 1: (-1, -1), 2: (1, 0)}


async def test_an_adopted_topic_gets_an_epoch_above_its_logs(embedded_store):
    logs = FoundLogs(topics=(FoundTopic("t", {0: 7, 1: -1}),))
    await register_broker(embedded_store, 1, REGISTRATION, lambda: logs)
    controller = await claim_controllership(embedded_store, 1, 5)
    assert await bring_partitions_online(embedded_store, controller, {1}, {1}) == 2
    assert await epochs(embedded_store, "t") == {0: (1, 8), 1: (1, 0)}


async def test_a_deposed_controller_changes_nothing(store, controller):
    await TopicController(store, controller).create_topic("t", 1, 1)
    await store.set(paths.CONTROLLER_EPOCH, b"2")
    with pytest.raises(BadVersion):
        await bring_partitions_online(store, controller, {1}, {1})
    assert await epochs(store, "t") == {0: (1, 0)}
