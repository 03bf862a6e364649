"""Moves partitions online when brokers come: reads their states, lets `election.py` decide, writes the outcome."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from oncelog_broker.controller.election import elect_leader, first_leader, needs_election
from oncelog_broker.controller.leadership import Controllership
from oncelog_broker.metadata import paths, reader
from oncelog_broker.metadata.payloads import (
    PartitionState,
    TopicAssignment,
    encode_partition_state,
    parse_partition_state,
)
from oncelog_broker.metadata.reader import PartitionKey
from oncelog_broker.metadata.store import Create, MetadataStore, NoNode, Operation, Set

MAX_PARTITIONS_PER_MULTI = 1000
"""ZooKeeper refuses a request above 1 MiB (jute.maxbuffer); a partition takes up to some 700 bytes."""


def create_partition_nodes(topic: str, states: Mapping[int, PartitionState]) -> Iterable[Operation]:
    """The nodes of new partitions beneath a topic's `partitions` node, which must exist."""
    for partition, state in states.items():
        yield Create(paths.partition(topic, partition))
        yield Create(paths.partition_state(topic, partition), encode_partition_state(state))


async def bring_partitions_online(
    store: MetadataStore, controller: Controllership, live: Collection[int], restarted: Collection[int]
) -> int:
    """Elect leaders for all partitions without a live one, or whose leader has restarted; how many states changed.

    Atomic for up to MAX_PARTITIONS_PER_MULTI partitions; after a failure between two such parts, call it again.
    BadVersion: another controller is at work.
    """
    try:
        names = await store.children(paths.TOPICS)
    except NoNode:
        return 0
    assignments = await reader.read_assignments(store, names)
    changes = await _changes(store, assignments, controller.epoch, live, restarted)
    for start in range(0, len(changes), MAX_PARTITIONS_PER_MULTI):
        part = changes[start : start + MAX_PARTITIONS_PER_MULTI]
        await store.multi([controller.fence, *(operation for operations in part for operation in operations)])
    return len(changes)


async def _changes(
    store: MetadataStore,
    assignments: Mapping[str, TopicAssignment | None],
    controller_epoch: int,
    live: Collection[int],
    restarted: Collection[int],
) -> list[list[Operation]]:
    """For each partition whose state changes, the operations that change it."""
    replicas = {
        PartitionKey(name, partition): assignment.replicas
        for name, topic in assignments.items()
        if topic is not None
        for partition, assignment in topic.partitions.items()
    }
    state_paths = [paths.partition_state(*key) for key in replicas]
    changes: list[list[Operation]] = []
    stateless: dict[PartitionKey, PartitionState] = {}
    for key, path, found in zip(replicas, state_paths, await store.get_many(state_paths), strict=True):
        if found is None:
            first = first_leader(replicas[key], live, controller_epoch)
            if first is not None:
                stateless[key] = first
            continue
        state = parse_partition_state(found[0], path)
        if not needs_election(state, live, restarted):
            continue
        elected = elect_leader(replicas[key], state, live, controller_epoch)
        if elected != state:
            changes.append([Set(path, encode_partition_state(elected), found[1].version)])
    return changes + await _creations(store, stateless)


async def _creations(store: MetadataStore, states: Mapping[PartitionKey, PartitionState]) -> list[list[Operation]]:
    """For partitions that a topic's assignment names and nobody has ever led; their parents may be missing too."""
    parents = {paths.partitions(key.topic) for key in states} | {paths.partition(*key) for key in states}
    ordered = sorted(parents)
    missing = {path for path, found in zip(ordered, await store.get_many(ordered), strict=True) if found is None}
    changes: list[list[Operation]] = []
    for key, state in states.items():
        operations: list[Operation] = []
        for parent in (paths.partitions(key.topic), paths.partition(*key)):
            if parent in missing:
                operations.append(Create(parent))
                missing.discard(parent)
        operations.append(Create(paths.partition_state(*key), encode_partition_state(state)))
        changes.append(operations)
    return changes
