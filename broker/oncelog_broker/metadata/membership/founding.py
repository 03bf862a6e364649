"""Writes the first nodes of a cluster that a broker founds with data directories that were used before.

The nodes come from the logs (`FoundTopic`), from the embedded store of a broker that moves to ZooKeeper, or from a copy
of lost metadata (`restoring.py`). Nodes that fit into one write are written together with the cluster id
(`registration.py`). Nodes that do not fit into one write are written in chunks, in this order:

1. The node `/oncelog/founding`, which names the founder: other brokers wait, and only the founder continues after a
crash;
2. the nodes of the cluster. Each write also sets `/oncelog/founding`, and fails unless that node has the version that
   the writer expects. If an earlier process of the same broker still writes, its next write therefore fails;
3. the cluster id, which completes the founding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership.producer_ids import BLOCK_SIZE
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.metadata.model.payloads import (
    Founding,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
    encode_config,
    encode_founding,
    encode_partition_state,
    encode_producer_id_block,
    encode_topic,
    parse_founding,
    parse_partition_state,
)
from oncelog_broker.metadata.stores.store import ConnectionLost, Create, MetadataStore, NoNode, Operation, Set
from oncelog_broker.runtime.entropy import Entropy, random_uuid
from oncelog_protocol.light_classes import dataclass

MAX_CHUNK_BYTES: Final = 500_000
"""Maximum size in bytes of the nodes in one write; far below the limit of a request, which also contains the chroot and
the ACLs.
"""
NODE_OVERHEAD: Final = 100
NODES_PER_READ: Final = 5000
MAX_LEADER_EPOCH: Final = 2**31 - 1
UNKNOWN_STORE: Final = "unknown"
"""Stands for the id of a lost store if that id is unknown."""


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic whose logs are in this broker's data directories. `leader_epochs` maps each partition to the last leader
    epoch in its log, -1 if the log has no leader epoch. `topic_id` comes from `partition.metadata`; None if the file
    does not exist (before Kafka 2.8). `config` has only valid settings.
    """

    name: str
    leader_epochs: Mapping[int, int]
    topic_id: bytes | None = None
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundLogs:
    """The contents of the data directories at startup. `cluster_id` comes from `meta.properties`. `highest_producer_id`
    is the highest producer id in any log, -1 if there is none; the new cluster must not assign this id again.
    """

    cluster_id: str | None = None
    topics: tuple[FoundTopic, ...] = field(default=())
    highest_producer_id: int = -1
    epoch_leap: int = 0
    """The first leader epoch of a partition in the new cluster is the last leader epoch in its log plus this number."""
    nodes: Mapping[str, bytes] = field(default_factory=dict)
    """Path -> data of the nodes from an embedded store or from a copy of the metadata, parents first. If these nodes
    contain a topic, the topic is not created from its logs.
    """
    replaces_store: str = ""
    """The id of the lost store, if the cluster is founded again from a copy of its metadata; UNKNOWN_STORE if that id
    is unknown; otherwise "". If the store was lost, the partition states are written before this broker registers, so
    that elections treat this broker as a broker that was absent.
    """


NOT_TAKEN_OVER: Final = (
    paths.BROKER_IDS,
    paths.INCARNATIONS,
    paths.CONTROLLER,
    paths.CLUSTER_ID,
    paths.STORE_ID,
    paths.PROPOSED_CLUSTER_ID,
    paths.FOUNDING,
)
"""Paths of nodes that belong to the old store or to processes. These nodes, and the nodes below them, are not copied
into a new store.
"""


def adoption(logs: FoundLogs, broker_id: int, entropy: Entropy) -> Iterator[Create]:
    """Yield the first nodes of the cluster, each node only once, parents first. The settings of a topic in a store or a
    copy take precedence over the settings derived from the topic's logs.
    """
    made: set[str] = set()
    for node in _adopted(logs, broker_id, entropy):
        if node.path not in made:
            made.add(node.path)
            yield node


def _adopted(logs: FoundLogs, broker_id: int, entropy: Entropy) -> Iterator[Create]:
    for path, data in logs.nodes.items():
        if path not in paths.PERSISTENT and not any(
            path == each or path.startswith(each + "/") for each in NOT_TAKEN_OVER
        ):
            yield Create(path, _taken_over(path, data))
    for topic in logs.topics:
        if paths.topic(topic.name) not in logs.nodes:
            yield from adopted_topic(topic, broker_id, entropy, logs.epoch_leap)
    if logs.highest_producer_id >= 0 and paths.LATEST_PRODUCER_ID_BLOCK not in logs.nodes:
        end = logs.highest_producer_id
        block = ProducerIdBlock(broker_id, max(0, end - BLOCK_SIZE + 1), end)
        yield Create(paths.LATEST_PRODUCER_ID_BLOCK, encode_producer_id_block(block))


def adopted_topic(topic: FoundTopic, broker_id: int, entropy: Entropy, epoch_leap: int = 0) -> Iterator[Create]:
    """Yield the nodes of a topic whose only replica is this broker. Each partition has no leader, and its leader epoch
    is the last leader epoch in its log; the first election then uses a higher epoch.
    """
    replicas = {partition: ReplicaAssignment((broker_id,)) for partition in sorted(topic.leader_epochs)}
    assignment = TopicAssignment(topic.topic_id or random_uuid(entropy), replicas)
    yield Create(paths.topic(topic.name), encode_topic(assignment))
    yield Create(paths.partitions(topic.name))
    if topic.config:
        yield Create(paths.topic_config(topic.name), encode_config(topic.config))
    for partition in replicas:
        epoch = min(topic.leader_epochs[partition] + epoch_leap, MAX_LEADER_EPOCH - 1)
        state = PartitionState(NO_LEADER, epoch, (broker_id,), controller_epoch=0)
        yield Create(paths.partition(topic.name, partition))
        yield Create(paths.partition_state(topic.name, partition), encode_partition_state(state))


def _taken_over(path: str, data: bytes) -> bytes:
    """Remove the leader from the state of a partition; return the data of any other node unchanged."""
    found = paths.parse_topic_path(path)
    if found is None or found.partition is None:
        return data
    state = parse_partition_state(data, path)
    return encode_partition_state(PartitionState(NO_LEADER, state.leader_epoch, state.isr, 0))


def size_of(operations: Iterable[Create]) -> int:
    """Estimate the size in bytes of a write with these nodes."""
    return sum(len(each.path) + len(each.data) + NODE_OVERHEAD for each in operations)


async def without_existing(store: MetadataStore, nodes: Sequence[Create]) -> list[Create]:
    """Return the nodes that the store does not have yet; an earlier, incomplete founding may have created some."""
    missing: list[Create] = []
    for start in range(0, len(nodes), NODES_PER_READ):
        some = nodes[start : start + NODES_PER_READ]
        found = await store.get_many([each.path for each in some])
        missing += [each for each, node in zip(some, found, strict=True) if node is None]
    return missing


async def begin_founding(store: MetadataStore, broker_id: int, process: str, parents: Sequence[Create]) -> int:
    """Write to `/oncelog/founding` that this broker founds the cluster; returns the version of that node. `parents` are
    the missing top-level nodes.

    Raises ConnectionLost while another broker founds the cluster. Raises NodeExists or BadVersion if another process
    wrote first.
    """
    data = encode_founding(Founding(broker_id, process))
    try:
        found, stat = await store.get(paths.FOUNDING)
    except NoNode:
        await store.multi([*parents, Create(paths.FOUNDING, data)])
        return 0
    check_founder(found, broker_id)
    return (await store.set(paths.FOUNDING, data, stat.version)).version


def check_founder(data: bytes, broker_id: int) -> None:
    """Raises ConnectionLost, so that the caller tries again, if another broker is founding the cluster."""
    founder = parse_founding(data, paths.FOUNDING).broker_id
    if founder != broker_id:
        raise ConnectionLost(
            paths.FOUNDING,
            f"broker {founder} is creating the cluster and has not finished: if that broker does not run, start it",
        )


async def write_chunks(
    store: MetadataStore, nodes: Iterable[Create], broker_id: int, process: str, version: int
) -> int:
    """Write the nodes in chunks. `version` is the version of `/oncelog/founding`; returns the version of that node
    after the last chunk. Raises BadVersion if a later process of this broker founds the cluster now.
    """
    fence = encode_founding(Founding(broker_id, process))
    for chunk in chunks(nodes):
        operations: list[Operation] = [Set(paths.FOUNDING, fence, version), *chunk]
        stat = (await store.multi(operations))[0]
        assert stat is not None
        version = stat.version
    return version


def chunks(nodes: Iterable[Create]) -> Iterator[list[Create]]:
    """Yield the nodes in order, in lists that fit into one write."""
    chunk: list[Create] = []
    room = MAX_CHUNK_BYTES
    for node in nodes:
        size = size_of([node])
        if chunk and size > room:
            yield chunk
            chunk, room = [], MAX_CHUNK_BYTES
        chunk.append(node)
        room -= size
    if chunk:
        yield chunk
