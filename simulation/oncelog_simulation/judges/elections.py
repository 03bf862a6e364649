"""Judges the controller's writes: each write of a partition's state or replicas must be a permitted change of the
previous state.

- The leader epoch never decreases, and it increases with each change of the leader and each removal of a replica.
- A leader is one of the in-sync replicas, and the in-sync replicas are replicas of the partition.
- An elected leader was in sync before (unclean elections are off).
- A reassignment ends when all target replicas are in sync, or when it is cancelled and the original replicas remain.

The judge checks every write of the metadata store, in the order of the writes. After the store was restored from a
backup, the judge starts again, and does not compare states before the restore with states after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.metadata.model.payloads import (
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    parse_partition_state,
    parse_topic,
)
from oncelog_broker.metadata.stores.tree import Changes

if TYPE_CHECKING:
    from oncelog_simulation.world import World

RECOVERING: Final = 1
"""The `leader_recovery_state` after an unclean election."""


class Elections:
    """Tracks the states and replicas of all partitions from write to write."""

    name = "elections"

    def __init__(self, world: World) -> None:
        self._states: dict[tuple[str, int], PartitionState] = {}
        self._topics: dict[str, TopicAssignment] = {}
        self._wrong: list[str] = []
        self._read_all(world)
        world.store.on_written = self._on_written
        world.store.on_restored = lambda: self._read_all(world)

    def look_closely(self, world: World) -> Iterable[str]:
        """Yield the violations in the writes since the last call."""
        wrong, self._wrong = self._wrong, []
        return wrong

    async def conclude(self, world: World) -> Iterable[str]:
        return self.look_closely(world)

    def _read_all(self, world: World) -> None:
        self._states.clear()
        self._topics.clear()
        self._take(dict(world.store.tree.nodes()))

    def _on_written(self, changes: Changes) -> None:
        before = {key: self._states.get(key) for key in _states_in(changes)}
        replicas_before = {key: self._replicas(key) for key in before}
        topics_before = {name: self._topics.get(name) for name in _topics_in(changes)}
        self._take(changes)
        for key, old in before.items():
            new = self._states.get(key)
            if old is not None and new is not None:
                self._wrong += (f"{key[0]}-{key[1]}: {what}" for what in _wrong_in_state(old, new))
                among = _wrong_among(replicas_before[key], self._replicas(key), old, new)
                self._wrong += (f"{key[0]}-{key[1]}: {what}" for what in among)
        for name, was in topics_before.items():
            now = self._topics.get(name)
            if was is None or now is None or was.topic_id != now.topic_id:
                continue
            for index, assignment in was.partitions.items():
                key, then = (name, index), now.partitions.get(index)
                state = before.get(key) or self._states.get(key)
                if then is not None and state is not None:
                    self._wrong += (f"{name}-{index}: {what}" for what in _wrong_in_move(assignment, then, state))

    def _replicas(self, key: tuple[str, int]) -> ReplicaAssignment | None:
        topic = self._topics.get(key[0])
        return None if topic is None else topic.partitions.get(key[1])

    def _take(self, changes: Changes) -> None:
        for name in _topics_in(changes):
            node = changes[paths.topic(name)]
            if node is None:
                self._topics.pop(name, None)
            else:
                self._topics[name] = parse_topic(node.data, name)
        for key in _states_in(changes):
            path = paths.partition_state(*key)
            node = changes[path]
            if node is None:
                self._states.pop(key, None)
            else:
                self._states[key] = parse_partition_state(node.data, path)


def _topics_in(changes: Changes) -> list[str]:
    found = [(path, paths.parse_topic_path(path)) for path in changes]
    return [each.topic for path, each in found if each is not None and path == paths.topic(each.topic)]


def _states_in(changes: Changes) -> list[tuple[str, int]]:
    found = [paths.parse_topic_path(path) for path in changes]
    return [(each.topic, each.partition) for each in found if each is not None and each.partition is not None]


def _wrong_in_state(old: PartitionState, new: PartitionState) -> Iterable[str]:
    if new.leader_epoch < old.leader_epoch:
        yield f"the leader epoch went from {old.leader_epoch} to {new.leader_epoch}"
    if new.leader != old.leader and new.leader_epoch <= old.leader_epoch:
        yield f"the leader went from {old.leader} to {new.leader} in the leader epoch {new.leader_epoch}"
    if new.leader != NO_LEADER and new.leader not in new.isr:
        yield f"broker {new.leader} leads, and in sync are {list(new.isr)}"
    is_clean = new.leader_recovery_state != RECOVERING
    if new.leader not in (NO_LEADER, old.leader) and is_clean and old.isr and new.leader not in old.isr:
        yield f"broker {new.leader} was elected, and in sync were {list(old.isr)}"


def _wrong_among(
    was: ReplicaAssignment | None, now: ReplicaAssignment | None, old: PartitionState, new: PartitionState
) -> Iterable[str]:
    if now is None or was is None:
        return
    if not set(new.isr) <= set(now.replicas):
        yield f"in sync are {list(new.isr)} of the replicas {list(now.replicas)}"
    gone = set(was.replicas) - set(now.replicas)
    if gone and new.leader != NO_LEADER and new.leader_epoch <= old.leader_epoch:
        yield f"replicas {sorted(gone)} were taken away in the leader epoch {new.leader_epoch}"


def _wrong_in_move(was: ReplicaAssignment, now: ReplicaAssignment, state: PartitionState) -> Iterable[str]:
    """`state`: the partition's state before the write."""
    is_over = was.is_reassigned and not now.is_reassigned and set(now.replicas) == set(was.target)
    if is_over and set(was.target) != set(was.original) and not set(was.target) <= set(state.isr):
        yield f"a move to {list(was.target)} has ended, and in sync are {list(state.isr)}"
