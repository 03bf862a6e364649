"""Restores the nodes of a cluster whose metadata store was lost, from a broker's copy of the metadata.

The copy may be seconds old, so its partition states are only hints. Each partition therefore begins without a leader,
with all replicas in its ISR, and with a leader epoch far above any epoch that may have been used since the copy. Each
broker registers with the information that its logs may have lost their ends. Elections therefore ask all replicas for
their log end offsets, and the replica with the most records becomes leader (`controller/election.py`).

Replicas that a reassignment adds are not in the ISR. If the added replicas were in the ISR, the reassignment would
complete, and the brokers would delete the logs of the removed replicas, which may be the only logs with records.
Elections also request the log ends of the replicas that a reassignment adds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.metadata.model.metadata_copy import MetadataCopy
from oncelog_broker.metadata.model.payloads import (
    MalformedPayload,
    PartitionState,
    TopicAssignment,
    encode_partition_state,
    parse_partition_state,
    parse_topic,
)
from oncelog_broker.metadata.stores.store import parent_of

MAX_LEADER_EPOCH: Final = 2**31 - 2

EpochOf = Callable[[str, int], int]
"""Maps topic and partition to the last leader epoch in this broker's log of the partition; -1 if there is no log."""


def restored_nodes(copy: MetadataCopy, epoch_of: EpochOf, epoch_leap: int) -> dict[str, bytes]:
    """Return the restored nodes: path -> data, parents first. A topic whose node cannot be read is skipped, together
    with its partitions: such a topic is then created from its logs.
    """
    nodes: dict[str, bytes] = {}
    for path, data in sorted(copy.nodes.items()):
        found = paths.parse_topic_path(path)
        if found is None:
            _put(nodes, path, data)
            continue
        if path != paths.topic(found.topic):
            continue  # skip partition states, because they are created together with their topic
        try:
            assignment = parse_topic(data, path)
        except MalformedPayload:
            continue
        _put(nodes, path, data)
        for partition, state in _states(copy, found.topic, assignment, epoch_of, epoch_leap).items():
            _put(nodes, paths.partition_state(found.topic, partition), encode_partition_state(state))
    return nodes


def _states(
    copy: MetadataCopy, topic: str, assignment: TopicAssignment, epoch_of: EpochOf, epoch_leap: int
) -> Mapping[int, PartitionState]:
    states = {}
    for partition, replicas in assignment.partitions.items():
        path = paths.partition_state(topic, partition)
        epoch = epoch_of(topic, partition)
        try:
            epoch = max(epoch, parse_partition_state(copy.nodes[path], path).leader_epoch)
        except (KeyError, MalformedPayload):
            pass
        epoch = min(max(epoch, 0) + epoch_leap, MAX_LEADER_EPOCH)
        states[partition] = PartitionState(NO_LEADER, epoch, replicas.original or replicas.replicas, controller_epoch=0)
    return states


def _put(nodes: dict[str, bytes], path: str, data: bytes) -> None:
    """Add a node, after its missing parents."""
    missing = []
    above = parent_of(path)
    while above != "/" and above not in nodes and above not in paths.PERSISTENT:
        missing.append(above)
        above = parent_of(above)
    for each in reversed(missing):
        nodes[each] = b""
    nodes[path] = data
