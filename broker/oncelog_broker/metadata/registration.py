"""A broker joins its cluster: the first one founds it, every one registers itself.

Founding is one `multi` whose last node is the cluster id, so a store without one has never been used. Only then are
topics taken over from the log directories: later a directory without a topic in the store is what a deletion has left
(the broker died before it removed the files), and taking it over would bring the topic back from the dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.image import NO_LEADER
from oncelog_broker.metadata.payloads import (
    BrokerRegistration,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
    encode_broker,
    encode_cluster_id,
    encode_config,
    encode_partition_state,
    encode_producer_id_block,
    encode_topic,
    parse_cluster_id,
)
from oncelog_broker.metadata.producer_ids import BLOCK_SIZE
from oncelog_broker.metadata.store import Create, MetadataStore, NodeExists, Operation
from oncelog_broker.runtime.entropy import Entropy, random_uuid, system_entropy
from oncelog_protocol.uuids import uuid_to_string


class BrokerIdInUse(Exception):
    """A live broker is registered under our id."""

    def __init__(self, broker_id: int) -> None:
        super().__init__(f"broker id {broker_id} is in use by another live broker: give each broker an id of its own")


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
    """What the log directories hold at start. `cluster_id`: from `meta.properties`. `highest_producer_id`: the highest
    that any log knows, -1 for none; given out again it would be taken for the producer that had it before."""

    cluster_id: str | None = None
    topics: tuple[FoundTopic, ...] = field(default=())
    highest_producer_id: int = -1


class Membership(NamedTuple):
    """The outcome of a registration."""

    cluster_id: str
    broker_epoch: int
    founded: bool
    """Whether the store was new: the found topics are in it now. Otherwise they were not looked at."""


async def register_broker(
    store: MetadataStore,
    broker_id: int,
    registration: BrokerRegistration,
    found_logs: Callable[[], FoundLogs] = FoundLogs,
    entropy: Entropy = system_entropy,
) -> Membership:
    """Register this broker until its session ends, founding the cluster if there is none: one write in all.

    `found_logs` is asked only in a new store. BrokerIdInUse; StoreUnavailable: may be called again, its own earlier
    registration (same content, hence same timestamp) is then recognised.
    """
    existing = await store.get_many([paths.CLUSTER_ID, *paths.PERSISTENT])
    operations: list[Operation] = [
        Create(path) for path, found in zip(paths.PERSISTENT, existing[1:], strict=True) if found is None
    ]
    path, content = paths.broker_id(broker_id), encode_broker(registration)
    operations.append(Create(path, content, ephemeral=True))
    if existing[0] is not None:
        cluster_id = parse_cluster_id(existing[0][0], paths.CLUSTER_ID)
    else:
        logs = found_logs()
        cluster_id = logs.cluster_id or uuid_to_string(random_uuid(entropy))
        operations.extend(_adoption(logs, broker_id, entropy))
        operations.append(Create(paths.CLUSTER_ID, encode_cluster_id(cluster_id)))
    try:
        await store.multi(operations)
    except NodeExists as error:
        if error.path != path:  # another broker founds the cluster at this moment
            return await register_broker(store, broker_id, registration, found_logs, entropy)
        data, stat = await store.get(path)
        if data != content:
            raise BrokerIdInUse(broker_id) from error
        return Membership(cluster_id, stat.czxid, founded=False)
    _, stat = await store.get(path)
    return Membership(cluster_id, stat.czxid, founded=existing[0] is None)


def _adoption(logs: FoundLogs, broker_id: int, entropy: Entropy) -> Iterable[Operation]:
    """The nodes of topics that this broker alone holds. Their partitions are offline with the leader epoch that their
    log ends with, so the first election gives them a higher one."""
    for topic in logs.topics:
        replicas = {partition: ReplicaAssignment((broker_id,)) for partition in sorted(topic.leader_epochs)}
        assignment = TopicAssignment(topic.topic_id or random_uuid(entropy), replicas)
        yield Create(paths.topic(topic.name), encode_topic(assignment))
        yield Create(paths.partitions(topic.name))
        if topic.config:
            yield Create(paths.topic_config(topic.name), encode_config(topic.config))
        for partition in replicas:
            state = PartitionState(NO_LEADER, topic.leader_epochs[partition], (broker_id,), controller_epoch=0)
            yield Create(paths.partition(topic.name, partition))
            yield Create(paths.partition_state(topic.name, partition), encode_partition_state(state))
    if logs.highest_producer_id >= 0:
        end = logs.highest_producer_id
        block = ProducerIdBlock(broker_id, max(0, end - BLOCK_SIZE + 1), end)
        yield Create(paths.LATEST_PRODUCER_ID_BLOCK, encode_producer_id_block(block))
