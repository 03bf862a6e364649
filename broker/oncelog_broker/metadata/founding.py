"""What a cluster begins with when a broker founds it on data directories that have a past.

The nodes of topics that are found in the log directories, or all that an embedded store says, where a broker that was
alone moves to ZooKeeper. Few of them are written together with the cluster id, at once (`registration.py`). Of more
than one write can take, the cluster id is the last: before it stands `/oncelog/founding`, which names the founder, so
that nobody joins a cluster that is there by half, and a founding that was cut short is continued by the same broker.

Each write of a founding also sets that node's data at the version that the writer has seen: of two processes of one
broker, the earlier one's next write fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.image import NO_LEADER
from oncelog_broker.metadata.payloads import (
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
from oncelog_broker.metadata.producer_ids import BLOCK_SIZE
from oncelog_broker.metadata.store import ConnectionLost, Create, MetadataStore, NoNode, Operation, Set
from oncelog_broker.runtime.entropy import Entropy, random_uuid

MAX_CHUNK_BYTES: Final = 500_000
"""Of the nodes in one write: well below the limit of one request, since chroot and ACLs come to it."""
NODE_OVERHEAD: Final = 100
NODES_PER_READ: Final = 5000
MAX_LEADER_EPOCH: Final = 2**31 - 1
UNKNOWN_STORE: Final = "unknown"
"""In the place of the id of a store that was lost."""


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic that lies in our log directories. `leader_epochs`: partition -> last leader epoch in its log, -1 without
    any. `topic_id`: from `partition.metadata`, None if there is none (before Kafka 2.8). `config`: valid settings."""

    name: str
    leader_epochs: Mapping[int, int]
    topic_id: bytes | None = None
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundLogs:
    """What the data directories hold at start. `cluster_id`: from `meta.properties`. `highest_producer_id`: the highest
    that any log knows, -1 for none; given out again it would be taken for the producer that had it before."""

    cluster_id: str | None = None
    topics: tuple[FoundTopic, ...] = field(default=())
    highest_producer_id: int = -1
    epoch_leap: int = 0
    """How far above the last epoch in their logs the leader epochs of partitions begin."""
    nodes: Mapping[str, bytes] = field(default_factory=dict)
    """Path -> data of what an embedded store or a copy of the metadata had, parents first. Topics that it has are not
    taken from logs."""
    replaces_store: str = ""
    """The id of the store that was lost, where the cluster is founded again from a copy of its metadata; UNKNOWN_STORE
    where nothing says it. Its states are then written before this broker registers: so it does not count as one that
    has been there ever since."""


NOT_TAKEN_OVER: Final = (
    paths.BROKER_IDS,
    paths.INCARNATIONS,
    paths.CONTROLLER,
    paths.CLUSTER_ID,
    paths.STORE_ID,
    paths.PROPOSED_CLUSTER_ID,
    paths.FOUNDING,
)
"""With all beneath: what an embedded store says of itself and of processes, not of the cluster."""


def adoption(logs: FoundLogs, broker_id: int, entropy: Entropy) -> Iterator[Create]:
    """The nodes that a cluster begins with, each once, parents first. What a store or a copy says of a topic that was
    found in the logs alone (its settings, say) holds."""
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
    """The nodes of a topic that this broker alone holds. Its partitions are offline with the leader epoch that their
    log ends with, so the first election gives them a higher one."""
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
    """Partitions begin without a leader, as after a restart."""
    found = paths.parse_topic_path(path)
    if found is None or found.partition is None:
        return data
    state = parse_partition_state(data, path)
    return encode_partition_state(PartitionState(NO_LEADER, state.leader_epoch, state.isr, 0))


def size_of(operations: Iterable[Create]) -> int:
    """About how many bytes a write of these takes."""
    return sum(len(each.path) + len(each.data) + NODE_OVERHEAD for each in operations)


async def without_existing(store: MetadataStore, nodes: Sequence[Create]) -> list[Create]:
    """Those that the store has not: an earlier founding that was cut short may have made some."""
    missing: list[Create] = []
    for start in range(0, len(nodes), NODES_PER_READ):
        some = nodes[start : start + NODES_PER_READ]
        found = await store.get_many([each.path for each in some])
        missing += [each for each, node in zip(some, found, strict=True) if node is None]
    return missing


async def begin_founding(store: MetadataStore, broker_id: int, process: str, parents: Sequence[Create]) -> int:
    """Have `/oncelog/founding` say that this broker founds the cluster; the node's version. `parents`: the nodes above
    all others that are missing.

    ConnectionLost while another broker founds it. NodeExists, BadVersion: somebody else was here.
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
    """Raises ConnectionLost, which is tried again, if another broker founds the cluster."""
    founder = parse_founding(data, paths.FOUNDING).broker_id
    if founder != broker_id:
        raise ConnectionLost(
            paths.FOUNDING,
            f"broker {founder} founds the cluster and has not finished: if it does not run, start it",
        )


async def write_chunks(
    store: MetadataStore, nodes: Iterable[Create], broker_id: int, process: str, version: int
) -> int:
    """Write the nodes, as many at once as one write takes. `version` of the founding node, which is returned as it is
    then. BadVersion: another process of this broker founds the cluster now."""
    fence = encode_founding(Founding(broker_id, process))
    for chunk in chunks(nodes):
        operations: list[Operation] = [Set(paths.FOUNDING, fence, version), *chunk]
        stat = (await store.multi(operations))[0]
        assert stat is not None
        version = stat.version
    return version


def chunks(nodes: Iterable[Create]) -> Iterator[list[Create]]:
    """As many as one write takes, in order."""
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
