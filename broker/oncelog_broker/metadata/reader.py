"""Reads parts of the cluster from the store: the way from nodes to the types of the image.

Everything is read by `get_many`, a few rounds however many topics there are. A round is no snapshot: a topic may be
seen without the states of its partitions, which then have no leader yet. The watch brings the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.image import NO_CONTROLLER, Broker, ClusterImage, PartitionState, Topic
from oncelog_broker.metadata.payloads import (
    ReplicaAssignment,
    TopicAssignment,
    parse_broker,
    parse_cluster_id,
    parse_config,
    parse_controller,
    parse_partition_state,
    parse_topic,
)
from oncelog_broker.metadata.store import MetadataStore, NoNode, Stat
from oncelog_protocol.uuids import ZERO_UUID

_Found = tuple[bytes, Stat] | None


class PartitionKey(NamedTuple):
    topic: str
    partition: int


async def read_image(store: MetadataStore) -> ClusterImage:
    """The whole cluster. NoNode if the store has no cluster id: nobody registered yet. MalformedPayload."""
    data, _ = await store.get(paths.CLUSTER_ID)
    image = ClusterImage(parse_cluster_id(data, paths.CLUSTER_ID))
    for broker in (await read_brokers(store, await _children_as_ids(store, paths.BROKER_IDS))).values():
        if broker is not None:
            image = image.with_broker(broker)
    image = image.with_controller(await read_controller(store))
    topics = await read_topics(store, await _children(store, paths.TOPICS))
    image = image.with_topics(topic for topic in topics.values() if topic is not None)
    image = image.with_topic_configs(await read_topic_configs(store, await _children(store, paths.TOPIC_CONFIGS)))
    return image.with_broker_configs(await read_broker_configs(store, await _children(store, paths.BROKER_CONFIGS)))


async def read_brokers(store: MetadataStore, broker_ids: Sequence[int]) -> dict[int, Broker | None]:
    """The live brokers among those asked for; None for one that is not registered."""
    wanted = [paths.broker_id(broker) for broker in broker_ids]
    brokers: dict[int, Broker | None] = {}
    for broker_id, path, found in zip(broker_ids, wanted, await store.get_many(wanted), strict=True):
        if found is None:
            brokers[broker_id] = None
            continue
        registration = parse_broker(found[0], path)
        brokers[broker_id] = Broker(
            broker_id, found[1].czxid, registration.endpoints, registration.rack, registration.features
        )
    return brokers


async def read_controller(store: MetadataStore) -> int:
    (found,) = await store.get_many([paths.CONTROLLER])
    return NO_CONTROLLER if found is None else parse_controller(found[0], paths.CONTROLLER).broker_id


async def read_topics(store: MetadataStore, names: Sequence[str]) -> dict[str, Topic | None]:
    """The topics with the states of all their partitions; None for one that does not exist."""
    assignments = await read_assignments(store, names)
    keys = [PartitionKey(name, p) for name, topic in assignments.items() if topic is not None for p in topic.partitions]
    states = await store.get_many([paths.partition_state(*key) for key in keys])
    partitions: dict[str, dict[int, PartitionState]] = {name: {} for name in assignments}
    for key, state in zip(keys, states, strict=True):
        assignment = assignments[key.topic]
        assert assignment is not None
        partitions[key.topic][key.partition] = _partition(key, assignment.partitions[key.partition], state)
    return {
        name: None if topic is None else Topic(name, topic.topic_id or ZERO_UUID, partitions[name])
        for name, topic in assignments.items()
    }


async def read_assignments(store: MetadataStore, names: Sequence[str]) -> dict[str, TopicAssignment | None]:
    wanted = [paths.topic(name) for name in names]
    found = await store.get_many(wanted)
    return {
        name: None if node is None else parse_topic(node[0], path)
        for name, path, node in zip(names, wanted, found, strict=True)
    }


async def read_partitions(store: MetadataStore, image: ClusterImage, keys: Iterable[PartitionKey]) -> list[Topic]:
    """The image's topics of these partitions with the partitions' states read again. Unknown ones are skipped."""
    known = [key for key in keys if image.partition(*key) is not None]
    states = await store.get_many([paths.partition_state(*key) for key in known])
    changed: dict[str, dict[int, PartitionState]] = {}
    for key, state in zip(known, states, strict=True):
        topic = image.topics[key.topic]
        before = topic.partitions[key.partition]
        assignment = ReplicaAssignment(before.replicas, before.adding_replicas, before.removing_replicas)
        partitions = changed.setdefault(key.topic, dict(topic.partitions))
        partitions[key.partition] = _partition(key, assignment, state)
    return [Topic(name, image.topics[name].topic_id, partitions) for name, partitions in changed.items()]


async def read_topic_configs(store: MetadataStore, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Overrides of each topic; empty without any."""
    return await _read_configs(store, names, [paths.topic_config(name) for name in names])


async def read_broker_configs(store: MetadataStore, names: Sequence[str]) -> dict[int | None, dict[str, str]]:
    """Overrides of each broker, by entity name (`<default>` or a number; another one is skipped)."""
    known = [name for name in names if name == paths.DEFAULT_BROKER or name.isdecimal()]
    read = await _read_configs(store, known, [f"{paths.BROKER_CONFIGS}/{name}" for name in known])
    return {None if name == paths.DEFAULT_BROKER else int(name): overrides for name, overrides in read.items()}


async def _read_configs(store: MetadataStore, names: Sequence[str], wanted: list[str]) -> dict[str, dict[str, str]]:
    found = await store.get_many(wanted)
    return {
        name: {} if node is None else parse_config(node[0], path)
        for name, path, node in zip(names, wanted, found, strict=True)
    }


async def _children(store: MetadataStore, path: str) -> list[str]:
    try:
        return await store.children(path)
    except NoNode:
        return []


async def _children_as_ids(store: MetadataStore, path: str) -> list[int]:
    return [int(name) for name in await _children(store, path) if name.isdecimal()]


def _partition(key: PartitionKey, assignment: ReplicaAssignment, found: _Found) -> PartitionState:
    if found is None:
        return PartitionState(
            assignment.replicas,
            adding_replicas=assignment.adding_replicas,
            removing_replicas=assignment.removing_replicas,
        )
    state = parse_partition_state(found[0], paths.partition_state(*key))
    return PartitionState(
        replicas=assignment.replicas,
        isr=state.isr,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=found[1].version,
        adding_replicas=assignment.adding_replicas,
        removing_replicas=assignment.removing_replicas,
        written=found[1].mzxid,
    )
