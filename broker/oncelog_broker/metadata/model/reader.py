"""Reads parts of the cluster from the metadata store, and converts nodes to the types of the cluster image.

All nodes are read with `get_many`, in few round trips even if there are many topics. A read is not a snapshot: it may
return a topic without the states of its partitions. In the cluster image, these partitions then have no leader yet.
The watch later reports the missing states. A topic that is deleted and created again during the read is read again,
because its old id with its new states would let a broker lead the deleted topic.

A node with invalid content is logged, and its part of the cluster image remains as in the previous image, so that other
parts are not affected. Unchanged parts are reused from the previous cluster image without parsing their JSON again.
Between the parts of a long read, other tasks may run (`Pause`).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from oncelog_broker.config.stored import (
    UNREADABLE_BROKER,
    UNREADABLE_TOPIC,
    Unreadable,
    unreadable_broker_overrides,
    unreadable_topic_overrides,
)
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.acl_payload import parse_acls
from oncelog_broker.metadata.model.address_nodes import OtherNodes, other_nodes
from oncelog_broker.metadata.model.faults import tell_fault
from oncelog_broker.metadata.model.image import NO_CONTROLLER, Broker, ClusterImage, PartitionState, Topic
from oncelog_broker.metadata.model.payloads import (
    MalformedPayload,
    ReplicaAssignment,
    TopicAssignment,
    parse_broker,
    parse_cluster_id,
    parse_config,
    parse_controller,
    parse_partition_state,
    topic_in_steps,
)
from oncelog_broker.metadata.model.quotas import Values, quota_values, unreadable_quotas
from oncelog_broker.metadata.stores.store import MetadataStore, NoNode, Stat
from oncelog_broker.runtime.slices import Pause, no_pause, with_pauses
from oncelog_protocol.acls import AclEntry, ResourcePattern
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.quotas import DEFAULT, QuotaEntity
from oncelog_protocol.uuids import ZERO_UUID

_log = logging.getLogger(__name__)

STATES_AT_A_TIME: Final = 200
"""The number of nodes that are read in one round trip, and parsed before other tasks may run."""

NOTHING_KNOWN: Final = ClusterImage("")

K = TypeVar("K")
T = TypeVar("T")
_Found = tuple[bytes, Stat] | None


class PartitionKey(NamedTuple):
    topic: str
    partition: int


async def read_image(store: MetadataStore, before: ClusterImage | None = None, pause: Pause = no_pause) -> ClusterImage:
    """Read the metadata of the entire cluster. Raises NoNode if the store has no cluster id, because no broker has
    registered yet. Raises MalformedPayload if the cluster id is unreadable and there is no image `before`.
    """
    data, _ = await store.get(paths.CLUSTER_ID)
    if before is None:
        cluster_id = parse_cluster_id(data, paths.CLUSTER_ID)
    else:
        cluster_id = _parsed(store, parse_cluster_id, data, paths.CLUSTER_ID) or before.cluster_id
    known = ClusterImage(cluster_id) if before is None else before
    image = ClusterImage(cluster_id)
    for broker in (await read_brokers(store, known, await _children_as_ids(store, paths.BROKER_IDS))).values():
        if broker is not None:
            image = image.with_broker(broker)
    image = image.with_controller(await read_controller(store, known))
    topics = await read_topics(store, known, await _children(store, paths.TOPICS), pause)
    image = topics.put_into(image)
    names = await _children(store, paths.TOPIC_CONFIGS)
    image = image.with_topic_configs(await read_topic_configs(store, known, names, pause))
    image = image.with_broker_configs(
        await read_broker_configs(store, known, await _children(store, paths.BROKER_CONFIGS))
    )
    image = image.with_acls(await read_acls(store, known, await _patterns(store), pause))
    users = await _children(store, paths.USER_CONFIGS)
    image = image.with_user_configs(await read_user_configs(store, known, users, pause))
    groups = await _children(store, paths.GROUP_CONFIGS)
    image = image.with_group_configs(await read_group_configs(store, known, groups, pause))
    subscriptions = await _children(store, paths.CLIENT_METRICS_CONFIGS)
    image = image.with_client_metrics(await read_client_metrics(store, known, subscriptions, pause))
    return image.with_quotas(await read_quotas(store, known, await _quota_entities(store, users, pause), pause))


async def read_brokers(
    store: MetadataStore, before: ClusterImage, broker_ids: Sequence[int]
) -> dict[int, Broker | None]:
    """Return the live brokers with these ids; None for a broker that is not registered."""
    wanted = [paths.broker_id(broker) for broker in broker_ids]
    brokers: dict[int, Broker | None] = {}
    for broker_id, path, found in zip(broker_ids, wanted, await store.get_many(wanted), strict=True):
        brokers[broker_id] = None
        if found is not None:
            registration = _parsed(store, parse_broker, found[0], path)
            brokers[broker_id] = (
                before.brokers.get(broker_id)
                if registration is None
                else Broker(broker_id, found[1].czxid, registration.endpoints, registration.rack, registration.features)
            )
    return brokers


async def read_controller(store: MetadataStore, before: ClusterImage = NOTHING_KNOWN) -> int:
    (found,) = await store.get_many([paths.CONTROLLER])
    if found is None:
        return NO_CONTROLLER
    registration = _parsed(store, parse_controller, found[0], paths.CONTROLLER)
    return before.controller_id if registration is None else registration.broker_id


class ReadTopics(NamedTuple):
    """The result of reading some topics."""

    found: list[Topic]
    gone: list[str]
    unreadable: list[str]
    """Topics that exist, but whose nodes have never been readable."""

    def put_into(self, image: ClusterImage) -> ClusterImage:
        return image.with_topics(self.found, self.gone, self.unreadable)


async def read_topics(
    store: MetadataStore, before: ClusterImage, names: Sequence[str], pause: Pause = no_pause
) -> ReadTopics:
    """Read topics, with the states of all their partitions."""
    read = ReadTopics([], [], [])
    assignments: dict[str, TopicAssignment] = {}
    stats: dict[str, Stat] = {}
    for start in range(0, len(names), STATES_AT_A_TIME):
        some = names[start : start + STATES_AT_A_TIME]
        wanted = [paths.topic(name) for name in some]
        for name, path, node in zip(some, wanted, await store.get_many(wanted), strict=True):
            assignment = None if node is None else await _parsed_topic(store, node[0], path, pause)
            if node is None:
                read.gone.append(name)
            elif assignment is not None:
                assignments[name], stats[name] = assignment, node[1]
            elif (as_before := before.topics.get(name)) is not None:
                read.found.append(as_before)
            else:
                read.unreadable.append(name)
    found: dict[str, dict[int, PartitionState]] = {name: {} for name in assignments}
    suspects: set[str] = set()
    async for key, node in _states(store, assignments, pause):
        if node is not None and node[1].czxid > stats[key.topic].mzxid:
            suspects.add(key.topic)  # the state is newer than the topic
        assignment = assignments[key.topic]
        topic = before.topics.get(key.topic)
        is_same = topic is not None and topic.topic_id == (assignment.topic_id or ZERO_UUID)
        known = topic.partitions.get(key.partition) if topic is not None and is_same else None
        found[key.topic][key.partition] = _partition(store, key, assignment.partitions[key.partition], node, known)
    made_again = await _made_again(store, {name: stats[name] for name in sorted(suspects)})
    for name, assignment in assignments.items():
        if name not in made_again:
            read.found.append(_topic(before, name, assignment.topic_id or ZERO_UUID, found[name]))
    if made_again:
        later = await read_topics(store, before, made_again, pause)
        return ReadTopics(read.found + later.found, read.gone + later.gone, read.unreadable + later.unreadable)
    return read


async def _made_again(store: MetadataStore, stats: Mapping[str, Stat]) -> list[str]:
    """Return those of these topics whose node was deleted, or deleted and created again, since it was read."""
    names, made_again = list(stats), list[str]()
    for start in range(0, len(names), STATES_AT_A_TIME):
        some = names[start : start + STATES_AT_A_TIME]
        for name, node in zip(some, await store.get_many([paths.topic(each) for each in some]), strict=True):
            if node is None or node[1].czxid != stats[name].czxid:
                made_again.append(name)
    return made_again


async def _states(
    store: MetadataStore, assignments: Mapping[str, TopicAssignment], pause: Pause
) -> AsyncIterator[tuple[PartitionKey, _Found]]:
    """Yield the state nodes of all partitions of these topics."""
    keys: list[PartitionKey] = []
    for name, topic in assignments.items():
        for partition in topic.partitions:
            keys.append(PartitionKey(name, partition))
            if len(keys) == STATES_AT_A_TIME:
                for each in await _nodes(store, keys):
                    yield each
                await pause()
                keys = []
    for each in await _nodes(store, keys):
        yield each


async def _nodes(store: MetadataStore, keys: Sequence[PartitionKey]) -> Iterable[tuple[PartitionKey, _Found]]:
    return zip(keys, await store.get_many([paths.partition_state(*key) for key in keys]), strict=True)


async def read_partitions(
    store: MetadataStore, image: ClusterImage, keys: Sequence[PartitionKey], pause: Pause = no_pause
) -> list[Topic]:
    """Read the states of these partitions again; returns the topics of the cluster image with the new states. Unknown
    partitions are skipped, and topics without a change are omitted. If a state node was created after the state that
    the image has was written, its topic was created again, so the entire topic is read. A first state of a partition
    proves nothing: the controller creates most states of a large topic after the topic.
    """
    made_again: set[str] = set()
    known = [key for key in keys if image.partition(*key) is not None]
    changed: dict[str, dict[int, PartitionState]] = {}
    for start in range(0, len(known), STATES_AT_A_TIME):
        for key, node in await _nodes(store, known[start : start + STATES_AT_A_TIME]):
            topic = image.topics[key.topic]
            before = topic.partitions[key.partition]
            if node is not None and node[1].czxid > before.written >= 0:
                made_again.add(key.topic)
                continue
            assignment = ReplicaAssignment(before.replicas, before.adding_replicas, before.removing_replicas)
            state = _partition(store, key, assignment, node, before)
            if state is not before:
                if key.topic not in changed:
                    changed[key.topic] = dict(topic.partitions)
                changed[key.topic][key.partition] = state
        await pause()
    topics = [
        Topic(name, image.topics[name].topic_id, partitions)
        for name, partitions in changed.items()
        if name not in made_again
    ]
    if made_again:
        read = await read_topics(store, image, sorted(made_again), pause)
        topics += [topic for topic in read.found if topic is not image.topics[topic.name]]
    return topics


async def read_topic_configs(
    store: MetadataStore, before: ClusterImage, names: Sequence[str], pause: Pause = no_pause
) -> dict[str, Mapping[str, str]]:
    """Return the overrides of each topic; {} for a topic without overrides. If the settings of a topic could never be
    read, the function returns overrides that keep all records of the topic.
    """
    read: dict[str, Mapping[str, str]] = {}
    for start in range(0, len(names), STATES_AT_A_TIME):
        some = names[start : start + STATES_AT_A_TIME]
        wanted = [paths.topic_config(name) for name in some]
        found = await _read_configs(
            store, some, wanted, lambda name: before.topic_configs.get(name) or UNREADABLE_TOPIC
        )
        for name, path in zip(some, wanted, strict=True):
            _tell_unreadable(store, path, unreadable_topic_overrides(found[name]))
        read |= found
        await pause()
    return read


async def read_broker_configs(
    store: MetadataStore, before: ClusterImage, names: Sequence[str]
) -> dict[int | None, Mapping[str, str]]:
    """Return the overrides of each broker; `names` are node names, `<default>` or a number, and other names are
    skipped.
    """
    known = [name for name in names if name == paths.DEFAULT_BROKER or name.isdecimal()]
    brokers = [None if name == paths.DEFAULT_BROKER else int(name) for name in known]
    wanted = [f"{paths.BROKER_CONFIGS}/{name}" for name in known]
    read = await _read_configs(
        store, brokers, wanted, lambda broker: before.broker_configs.get(broker) or UNREADABLE_BROKER
    )
    for broker, path in zip(brokers, wanted, strict=True):
        _tell_unreadable(store, path, unreadable_broker_overrides(read[broker]))
    return read


async def read_acls(
    store: MetadataStore, before: ClusterImage, patterns: Sequence[ResourcePattern], pause: Pause = no_pause
) -> dict[ResourcePattern, frozenset[AclEntry] | None]:
    """Return the ACLs of each pattern; None for a pattern without ACLs. A pattern whose node is unreadable keeps its
    earlier entries; if it has no earlier entries, the empty set denies all access.
    """
    read: dict[ResourcePattern, frozenset[AclEntry] | None] = {}
    for start in range(0, len(patterns), STATES_AT_A_TIME):
        some = patterns[start : start + STATES_AT_A_TIME]
        wanted = [paths.acls(pattern) for pattern in some]
        for pattern, path, node in zip(some, wanted, await store.get_many(wanted), strict=True):
            known = before.acls.get(pattern)
            entries = None if node is None else _parsed(store, parse_acls, node[0], path)
            if node is not None and entries is None:
                read[pattern] = frozenset() if known is None else known
            else:
                read[pattern] = known if entries == known else entries
        await pause()
    return read


async def read_user_configs(
    store: MetadataStore, before: ClusterImage, names: Sequence[str], pause: Pause = no_pause
) -> dict[str | None, Mapping[str, str]]:
    """Return the settings of each user; `names` are the names of the users' nodes."""
    read: dict[str | None, Mapping[str, str]] = {}
    for start in range(0, len(names), STATES_AT_A_TIME):
        some = names[start : start + STATES_AT_A_TIME]
        users = [None if name == paths.DEFAULT_BROKER else paths.unsanitized(name) for name in some]
        wanted = [f"{paths.USER_CONFIGS}/{name}" for name in some]
        found = await _read_configs(store, users, wanted, lambda user: before.user_configs.get(user, {}))
        for user, path in zip(users, wanted, strict=True):
            _tell_bad_quotas(store, path, QuotaEntity(DEFAULT if user is None else user), found[user])
        read |= found
        await pause()
    return read


async def read_group_configs(
    store: MetadataStore, before: ClusterImage, names: Sequence[str], pause: Pause = no_pause
) -> dict[str, Mapping[str, str]]:
    """Return the settings of each group; `names` are the names of the groups' nodes."""
    read: dict[str, Mapping[str, str]] = {}
    for start in range(0, len(names), STATES_AT_A_TIME):
        groups = [paths.unsanitized(name) for name in names[start : start + STATES_AT_A_TIME]]
        wanted = [paths.group_config(group) for group in groups]
        read |= await _read_configs(store, groups, wanted, before.config_of_group)
        await pause()
    return read


async def read_client_metrics(
    store: MetadataStore, before: ClusterImage, names: Sequence[str], pause: Pause = no_pause
) -> dict[str, Mapping[str, str]]:
    """Return the settings of each subscription of client metrics; `names` are the names of the nodes."""
    read: dict[str, Mapping[str, str]] = {}
    for start in range(0, len(names), STATES_AT_A_TIME):
        subscriptions = [paths.unsanitized(name) for name in names[start : start + STATES_AT_A_TIME]]
        wanted = [paths.client_metrics_config(name) for name in subscriptions]
        read |= await _read_configs(store, subscriptions, wanted, before.config_of_client_metrics)
        await pause()
    return read


async def read_quotas(
    store: MetadataStore, before: ClusterImage, entities: Sequence[QuotaEntity], pause: Pause = no_pause
) -> dict[QuotaEntity, Values]:
    """Return the quotas of each entity that is not a user; {} for an entity without quotas. An entity whose node is
    unreadable keeps its earlier quotas. If an address has nodes with several spellings, the quotas of the usual
    spelling take precedence.
    """
    read: dict[QuotaEntity, Values] = {}
    others: OtherNodes = {}
    if any(isinstance(entity.ip, str) for entity in entities):
        others = await other_nodes(store, pause)
    for start in range(0, len(entities), STATES_AT_A_TIME):
        some = entities[start : start + STATES_AT_A_TIME]
        wanted = [paths.quotas(entity) for entity in some]
        for entity, path, node in zip(some, wanted, await store.get_many(wanted), strict=True):
            read[entity] = _quotas_in(store, entity, node, path, before)
        for entity in others.keys() & set(some):
            nodes = await store.get_many(list(others[entity]))
            for path, node in zip(others[entity], nodes, strict=True):
                read[entity] = {**_quotas_in(store, entity, node, path, before), **read[entity]}
        await pause()
    return read


def _quotas_in(store: MetadataStore, entity: QuotaEntity, node: _Found, path: str, before: ClusterImage) -> Values:
    settings = {} if node is None else _parsed(store, parse_config, node[0], path)
    if settings is None:
        return before.quotas.get(entity, {})
    _tell_bad_quotas(store, path, entity, settings)
    return quota_values(entity, settings)


async def _quota_entities(store: MetadataStore, users: Sequence[str], pause: Pause) -> list[QuotaEntity]:
    """Return all quota entities that have a node of their own for quotas; an entity that is only a user has no such
    node. `users` are the names of the users' nodes.
    """
    above = [paths.CLIENT_CONFIGS, paths.IP_CONFIGS]
    above += [f"{paths.USER_CONFIGS}/{user}/clients" for user in users]
    found: list[QuotaEntity | None] = []
    for start in range(0, len(above), STATES_AT_A_TIME):
        some = above[start : start + STATES_AT_A_TIME]
        # Check the `clients` nodes of many users in one round trip, because most users have no such node.
        for parent, node in zip(some, await store.get_many(some), strict=True):
            if node is not None:
                found += [paths.parse_quota_path(f"{parent}/{name}") for name in await _children(store, parent)]
        await pause()
    return list(dict.fromkeys(entity for entity in found if entity is not None))


async def _patterns(store: MetadataStore) -> list[ResourcePattern]:
    """Return all resource patterns that have ACLs."""
    found = []
    for root in (paths.LITERAL_ACLS, paths.PREFIXED_ACLS):
        for kind in await _children(store, root):
            parent = f"{root}/{kind}"
            if parent in paths.ACLS_BY_TYPE:
                found += [paths.parse_acl_path(f"{parent}/{name}") for name in await _children(store, parent)]
    return [pattern for pattern in found if pattern is not None]


async def _read_configs(
    store: MetadataStore, names: Sequence[K], wanted: list[str], before: Callable[[K], Mapping[str, str]]
) -> dict[K, Mapping[str, str]]:
    read: dict[K, Mapping[str, str]] = {}
    for name, path, node in zip(names, wanted, await store.get_many(wanted), strict=True):
        overrides = {} if node is None else _parsed(store, parse_config, node[0], path)
        read[name] = before(name) if overrides is None else overrides
    return read


async def _children(store: MetadataStore, path: str) -> list[str]:
    try:
        return await store.children(path)
    except NoNode:
        return []


async def _children_as_ids(store: MetadataStore, path: str) -> list[int]:
    return [int(name) for name in await _children(store, path) if name.isdecimal()]


def _topic(before: ClusterImage, name: str, topic_id: bytes, partitions: dict[int, PartitionState]) -> Topic:
    """Return the topic with these values: the object from `before` if nothing has changed, otherwise a new object."""
    known = before.topics.get(name)
    if known is not None and known.topic_id == topic_id and known.partitions == partitions:
        return known
    return Topic(name, topic_id, partitions)


def _partition(
    store: MetadataStore, key: PartitionKey, assignment: ReplicaAssignment, found: _Found, before: PartitionState | None
) -> PartitionState:
    """Return the state of a partition; `before` is the earlier state of the same partition of the same topic."""
    replicas, adding, removing = assignment.replicas, assignment.adding_replicas, assignment.removing_replicas
    unled = PartitionState(replicas, adding_replicas=adding, removing_replicas=removing)
    if found is None:
        return before if before == unled and before is not None else unled
    data, stat = found
    if (
        before is not None
        and (before.partition_epoch, before.written) == (stat.version, stat.mzxid)
        and (before.replicas, before.adding_replicas, before.removing_replicas) == (replicas, adding, removing)
    ):
        return before
    state = _parsed(store, parse_partition_state, data, paths.partition_state(*key))
    if state is None:
        return before or unled
    return PartitionState(
        replicas=replicas,
        isr=state.isr,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=stat.version,
        adding_replicas=adding,
        removing_replicas=removing,
        written=stat.mzxid,
    )


async def _parsed_topic(store: MetadataStore, data: bytes, path: str, pause: Pause) -> TopicAssignment | None:
    """Parse a topic node; returns None for invalid content, so that the topic in the cluster image remains
    unchanged."""
    try:
        return await with_pauses(topic_in_steps(data, path), pause)
    except MalformedPayload as error:
        _tell(store, error)
        return None


def _parsed(store: MetadataStore, parse: Callable[[bytes, str], T], data: bytes, path: str) -> T | None:
    """Parse a node; returns None for invalid content, so that this part of the cluster image remains unchanged."""
    try:
        return parse(data, path)
    except MalformedPayload as error:
        _tell(store, error)
        return None


def _tell_unreadable(store: MetadataStore, path: str, faults: Iterable[Unreadable]) -> None:
    for name, reason, instead in faults:
        holds = "the value that would hold without it" if instead is None else f"{name}={instead}: records are kept"
        tell_fault(_log, store, path, reason, holds)


def _tell_bad_quotas(store: MetadataStore, path: str, entity: QuotaEntity, settings: Mapping[str, str]) -> None:
    for key, text in unreadable_quotas(entity, settings).items():
        tell_fault(_log, store, path, f"{key} must be a number above 0, not {text!r:.40}", "no such quota")


def _tell(store: MetadataStore, error: MalformedPayload) -> None:
    tell_fault(_log, store, error.path, str(error), "the previous value, if there was one")
