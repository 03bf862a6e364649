"""A broker joins its cluster: the first one founds it, every one registers itself.

Founding is one `multi` whose last node is the cluster id, so a store without one has never been used. Only then are
topics taken over from the log directories: later a directory without a topic in the store is what a deletion has left
(the broker died before it removed the files), and taking it over would bring the topic back from the dead.

Each registration also sets the broker's incarnation node, in the same write. Whoever makes this broker a leader can so
check, in the write that does it, that it is still the broker that was meant. And there it says since when the broker
may lack records that it once had: whoever has registered twice since then is as unsure as before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.endpoints import EndpointInUse, endpoint_conflict
from oncelog_broker.metadata.faults import tell_fault
from oncelog_broker.metadata.image import NO_LEADER
from oncelog_broker.metadata.payloads import (
    BrokerRegistration,
    Endpoint,
    Incarnation,
    MalformedPayload,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
    encode_broker,
    encode_cluster_id,
    encode_config,
    encode_incarnation,
    encode_partition_state,
    encode_producer_id_block,
    encode_topic,
    parse_cluster_id,
    parse_incarnation,
)
from oncelog_broker.metadata.producer_ids import BLOCK_SIZE
from oncelog_broker.metadata.store import BadVersion, Create, MetadataStore, NodeExists, NoNode, Operation, Set
from oncelog_broker.runtime.entropy import Entropy, random_uuid, system_entropy
from oncelog_protocol.uuids import uuid_to_string

_log = logging.getLogger(__name__)


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
    incarnation: int
    """Version of the broker's incarnation node."""
    founded: bool
    """Whether the store was new: the found topics are in it now. Otherwise they were not looked at."""


async def register_broker(
    store: MetadataStore,
    broker_id: int,
    registration: BrokerRegistration,
    found_logs: Callable[[], FoundLogs] = FoundLogs,
    entropy: Entropy = system_entropy,
    wait_seconds: float = 0.0,
) -> Membership:
    """Register this broker until its session ends, founding the cluster if there is none: one write in all.

    `found_logs` is asked only in a new store. `wait_seconds`: for the registration of another session to go, which may
    be that of a broker that has died. BrokerIdInUse, EndpointInUse; StoreUnavailable: may be called again, a
    registration of the same session is recognised.
    """
    path = paths.broker_id(broker_id)
    while True:
        await _wait_for_endpoints(store, broker_id, registration.endpoints, wait_seconds)
        try:
            membership = await _try_to_register(store, broker_id, registration, found_logs, entropy)
            return await _with_endpoints(store, broker_id, registration.endpoints, membership)
        except NodeExists as error:
            # Another path: another broker founds the cluster at this moment. None: it has gone meanwhile.
            stat = await store.exists(path) if error.path == path else None
            if stat is not None and stat.ephemeral_owner == store.session_id:
                membership = await _membership(store, broker_id, stat.czxid)
                return await _with_endpoints(store, broker_id, registration.endpoints, membership)
            if stat is not None and not await _is_gone_within(store, path, wait_seconds):
                raise BrokerIdInUse(broker_id) from error
        except BadVersion:
            pass  # another process with our id has registered since we read: it is there now


async def _wait_for_endpoints(
    store: MetadataStore, broker_id: int, endpoints: Sequence[Endpoint], wait_seconds: float
) -> None:
    """Return when no other broker is registered with one of these addresses. EndpointInUse: it is still there after
    `wait_seconds`, so it lives."""
    while (conflict := await endpoint_conflict(store, broker_id, endpoints)) is not None:
        if wait_seconds:
            _log.warning(
                "another broker is registered with an address of this one: waiting for its registration to end",
                extra={"broker": conflict.broker_id, "address": f"{conflict.host}:{conflict.port}"},
            )
        if not await _is_gone_within(store, conflict.path, wait_seconds):
            raise EndpointInUse(conflict)


async def _with_endpoints(
    store: MetadataStore, broker_id: int, endpoints: Sequence[Endpoint], membership: Membership
) -> Membership:
    """The registration that was made, if nobody was sooner with one of its addresses; else it is withdrawn.
    EndpointInUse."""
    conflict = await endpoint_conflict(store, broker_id, endpoints, before=membership.broker_epoch)
    if conflict is None:
        return membership
    with contextlib.suppress(NoNode):  # the session has ended meanwhile, and it with that
        await store.delete(paths.broker_id(broker_id))
    raise EndpointInUse(conflict)


async def _try_to_register(
    store: MetadataStore,
    broker_id: int,
    registration: BrokerRegistration,
    found_logs: Callable[[], FoundLogs],
    entropy: Entropy,
) -> Membership:
    """NodeExists, BadVersion: somebody else was here."""
    path, incarnation_path = paths.broker_id(broker_id), paths.incarnation(broker_id)
    found_id, incarnation, *found = await store.get_many([paths.CLUSTER_ID, incarnation_path, *paths.PERSISTENT])
    operations: list[Operation] = [
        Create(each) for each, node in zip(paths.PERSISTENT, found, strict=True) if node is None
    ]
    is_kept = registration.is_log_tail_kept
    if incarnation is None:
        operations.append(Create(incarnation_path, encode_incarnation(Incarnation(is_kept))))
    else:
        data, stat = incarnation
        registration = replace(registration, previous_epoch=stat.mzxid)
        unsure_since = _parsed_incarnation(store, data, incarnation_path).unsure_epoch(stat.mzxid)
        operations.append(Set(incarnation_path, encode_incarnation(Incarnation(is_kept, unsure_since)), stat.version))
    operations.append(Create(path, encode_broker(registration), ephemeral=True))
    registered = len(operations)
    if found_id is not None:
        cluster_id = parse_cluster_id(found_id[0], paths.CLUSTER_ID)
    else:
        logs = found_logs()
        cluster_id = logs.cluster_id or uuid_to_string(random_uuid(entropy))
        operations.extend(_adoption(logs, broker_id, entropy))
        operations.append(Create(paths.CLUSTER_ID, encode_cluster_id(cluster_id)))
    stats = await store.multi(operations)
    counted, made = stats[registered - 2], stats[registered - 1]
    assert counted is not None
    assert made is not None
    return Membership(cluster_id, made.czxid, counted.version, founded=found_id is None)


def _parsed_incarnation(store: MetadataStore, data: bytes, path: str) -> Incarnation:
    """One that cannot be read may have said that the broker's logs had lost their ends."""
    try:
        return parse_incarnation(data, path)
    except MalformedPayload as error:
        tell_fault(_log, store, path, str(error), "the broker may lack records that it once had")
        return Incarnation(is_log_tail_kept=False)


async def _membership(store: MetadataStore, broker_id: int, broker_epoch: int) -> Membership:
    """What an earlier call achieved that did not hear of it."""
    cluster_id, _ = await store.get(paths.CLUSTER_ID)
    _, incarnation = await store.get(paths.incarnation(broker_id))
    return Membership(parse_cluster_id(cluster_id, paths.CLUSTER_ID), broker_epoch, incarnation.version, founded=False)


async def _is_gone_within(store: MetadataStore, path: str, seconds: float) -> bool:
    changed = asyncio.Event()
    unwatch = store.watch(path, lambda _: changed.set())
    try:
        async with asyncio.timeout(seconds):
            while await store.exists(path) is not None:
                await changed.wait()
                changed.clear()
    except TimeoutError:
        return False
    finally:
        unwatch()
    return True


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
