"""Reads the controller's view from the store, completely or in part. Nodes that cannot be parsed are logged and
skipped: a malformed node must not prevent elections of other partitions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, TypeVar

from oncelog_broker.controller.known_broker import KnownBroker
from oncelog_broker.controller.view import ClusterView, KnownState
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.faults import tell_fault
from oncelog_broker.metadata.model.payloads import (
    Incarnation,
    MalformedPayload,
    TopicAssignment,
    encode_mark,
    parse_broker,
    parse_config,
    parse_incarnation,
    parse_partition_state,
    topic_in_steps,
)
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.metadata.stores.store import MetadataStore, NoNode, Stat
from oncelog_broker.runtime.slices import Pause, with_pauses

logger = logging.getLogger(__name__)

T = TypeVar("T")
UNCLEAN_KEY: Final = "unclean.leader.election.enable"
STATES_AT_A_TIME: Final = 200
"""Number of partition states that are read and parsed between two pauses."""


async def read_view(store: MetadataStore, unclean_by_default: bool, pause: Pause) -> ClusterView:
    """Read the view of the entire cluster. Raises StoreUnavailable."""
    view = ClusterView(unclean_by_default=unclean_by_default)
    await read_brokers(store, view)
    await read_configs(store, view, await _children(store, paths.TOPIC_CONFIGS))
    await read_topics(store, view, await _children(store, paths.TOPICS), pause)
    await _read_marks(store, view)
    return view


async def read_unclean_default(store: MetadataStore, broker: int, unclean_by_static: bool) -> bool:
    """Whether topics without their own setting allow an unclean election: the dynamic setting of this broker, otherwise
    the dynamic setting for all brokers, otherwise `unclean_by_static`. The settings are read from the store, because a
    broker holds elections before it has a cluster image. Raises StoreUnavailable."""
    nodes = [paths.broker_config(broker), paths.broker_config(None)]
    for path, found in zip(nodes, await store.get_many(nodes), strict=True):
        overrides = {} if found is None else _parsed(store, parse_config, found[0], path) or {}
        if UNCLEAN_KEY in overrides:
            return overrides[UNCLEAN_KEY].lower() == "true"
    return unclean_by_static


async def read_brokers(store: MetadataStore, view: ClusterView) -> set[int]:
    """Update the view with the present brokers; returns the ids of brokers that registered, left, or registered again.
    Raises StoreUnavailable.

    Incarnations are read before registrations, so that the incarnation in the view is never newer than the
    registration. The incarnations of absent brokers are also read, because between two readings a broker may have
    registered, reported a possible loss of records, and left.
    """
    names = {*await _children(store, paths.INCARNATIONS), *await _children(store, paths.BROKER_IDS)}
    known = sorted(int(name) for name in names if name.isdecimal())
    brokers = {broker: KnownBroker(broker) for broker in known}
    counted = [paths.incarnation(broker) for broker in known]
    for broker, path, found in zip(known, counted, await store.get_many(counted), strict=True):
        if found is None:
            continue
        incarnation = _parsed(store, parse_incarnation, found[0], path) or Incarnation(is_log_tail_kept=False)
        since = incarnation.unsure_epoch(found[1].mzxid)
        brokers[broker] = brokers[broker]._replace(incarnation=found[1].version, unsure_since=since)
    registered = [paths.broker_id(broker) for broker in known]
    for broker, path, found in zip(known, registered, await store.get_many(registered), strict=True):
        registration = None if found is None else _parsed(store, parse_broker, found[0], path)
        if found is not None and registration is not None:
            brokers[broker] = brokers[broker]._replace(epoch=found[1].czxid, rack=registration.rack)
    return view.put_brokers(brokers.values())


async def read_topics(store: MetadataStore, view: ClusterView, names: Collection[str], pause: Pause) -> None:
    """Update the view with these topics and the states of their partitions, as they are in the store now. Raises
    StoreUnavailable."""
    ordered = sorted(names)
    wanted = [paths.topic(name) for name in ordered]
    keys: list[PartitionKey] = []
    for name, path, found in zip(ordered, wanted, await store.get_many(wanted), strict=True):
        topic = None if found is None else await _parsed_topic(store, found[0], path, pause)
        if found is None or topic is None:
            await with_pauses(view.topic_removed(name), pause)
            continue
        await with_pauses(view.topic_put(name, topic, found[1].version), pause)
        for partition in topic.partitions:
            keys.append(PartitionKey(name, partition))
            await pause()
    for start in range(0, len(keys), STATES_AT_A_TIME):
        await _read_states(store, view, keys[start : start + STATES_AT_A_TIME])
        await pause()


async def read_configs(store: MetadataStore, view: ClusterView, names: Iterable[str]) -> set[str]:
    """Update in the view whether these topics allow unclean elections; returns the topics whose setting has changed."""
    wanted = {name: paths.topic_config(name) for name in names}
    changed = set()
    for (name, path), found in zip(wanted.items(), await store.get_many(list(wanted.values())), strict=True):
        overrides = {} if found is None else _parsed(store, parse_config, found[0], path) or {}
        before = view.allows_unclean_election(name)
        view.unclean.pop(name, None)
        if UNCLEAN_KEY in overrides:
            view.unclean[name] = overrides[UNCLEAN_KEY].lower() == "true"
        if view.allows_unclean_election(name) != before:
            changed.add(name)
    return changed


async def _read_marks(store: MetadataStore, view: ClusterView) -> None:
    """Read which topics are marked for deletion. A mark that belongs to an older topic with the same name is
    ignored."""
    marked = await _children(store, paths.DELETE_TOPICS)
    found = await store.get_many([paths.deletion(name) for name in marked])
    for name, mark in zip(marked, found, strict=True):
        if mark is not None and name in view.topics and mark[0] == encode_mark(view.topics[name]):
            view.doomed.add(name)


async def _read_states(store: MetadataStore, view: ClusterView, keys: Sequence[PartitionKey]) -> None:
    state_paths = [paths.partition_state(*key) for key in keys]
    for key, path, found in zip(keys, state_paths, await store.get_many(state_paths), strict=True):
        if not _take_over(store, view, key, path, found):
            view.put_unreadable(key)  # without this mark, the partition would seem never to have had a leader


def _take_over(
    store: MetadataStore, view: ClusterView, key: PartitionKey, path: str, found: tuple[bytes, Stat] | None
) -> bool:
    """Update the view with one partition state. Returns False if the state cannot be parsed."""
    if found is None:
        view.put_state(key, None)
        return True
    state = _parsed(store, parse_partition_state, found[0], path)
    if state is not None and key.topic in view.topics:
        view.put_state(key, KnownState(state, found[1].version, found[1].mzxid))
    return state is not None


async def _parsed_topic(store: MetadataStore, data: bytes, path: str, pause: Pause) -> TopicAssignment | None:
    try:
        return await with_pauses(topic_in_steps(data, path), pause)
    except MalformedPayload as error:
        _pass_over(store, error)
        return None


def _parsed(store: MetadataStore, parse: Callable[[bytes, str], T], data: bytes, path: str) -> T | None:
    try:
        return parse(data, path)
    except MalformedPayload as error:
        _pass_over(store, error)
        return None


def _pass_over(store: MetadataStore, error: MalformedPayload) -> None:
    tell_fault(logger, store, error.path, str(error), "the controller does not change what it describes")


async def _children(store: MetadataStore, path: str) -> list[str]:
    try:
        return await store.children(path)
    except NoNode:
        return []
