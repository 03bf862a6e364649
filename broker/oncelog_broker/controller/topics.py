"""Creates, deletes and changes topics in the store, for the admin requests. Only the controller of the cluster does
this work.

A request is checked against the store, not against this broker's cluster image, which may lag. One atomic `multi`
creates or deletes a topic of usual size, so a topic is never half created or half deleted. This `multi` includes the
controller's fence, a check that this broker is still controller. A topic that is too large for one write:

- is created with the states of its first partitions; the controller then writes the states of the other partitions;
- is marked for deletion before it is deleted. After the mark is set, none of the topic's partitions has a leader. The
  nodes of the topic are deleted by several writes; the last of these writes also deletes the mark. While the mark
  exists, whichever broker is controller continues the deletion.

All errors are `KafkaError`s. NOT_CONTROLLER: another broker is controller. REQUEST_TIMED_OUT: the store did not answer,
and it is unknown whether the change was made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final
from weakref import WeakValueDictionary

from oncelog_broker.controller.assignment import Assignment, assign_replicas, check_assignment
from oncelog_broker.controller.configs import commit
from oncelog_broker.controller.election import first_leader
from oncelog_broker.controller.partitions import PartitionController
from oncelog_broker.controller.reading import STATES_AT_A_TIME
from oncelog_broker.controller.store_errors import raise_if_fenced, too_contended, translated, unknown_topic
from oncelog_broker.controller.topic_room import check_topic_fits
from oncelog_broker.controller.view import ClusterView
from oncelog_broker.controller.writer import MAX_MULTI_BYTES, incarnation_checks, size_of
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.payloads import (
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    encode_config,
    encode_mark,
    encode_partition_state,
    topic_encoded_in_steps,
    topic_in_steps,
)
from oncelog_broker.metadata.stores.store import (
    MAX_REQUEST_BYTES,
    BadVersion,
    Create,
    Delete,
    MetadataError,
    MetadataStore,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Stat,
    StoreUnavailable,
)
from oncelog_broker.metadata.topic_names import (
    check_may_grow,
    check_no_collision,
    check_topic_may_be_made,
    unified_name,
)
from oncelog_broker.runtime.entropy import Entropy, random_below, random_uuid, system_entropy
from oncelog_broker.runtime.slices import Pause, with_pauses
from oncelog_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

MAX_ATTEMPTS: Final = 20
"""Maximum number of attempts at a change, if other brokers change the same nodes between the read and the write."""
MAX_PARTITIONS_PER_BATCH: Final = 10_000
"""Maximum number of partitions that one request may create, as in Kafka (KRaft's ReplicationControlManager); also the
planned size of a broker."""
MAX_OPERATIONS_PER_MULTI: Final = 500
"""Maximum number of nodes that one write may create or delete; each partition needs two nodes."""
SPARE_BYTES: Final = 20_000
"""Bytes left free in a write that creates a topic, for the overhead of operations and for other bytes that are not
counted."""
PARTITIONS_WITH_THE_TOPIC: Final = 200
"""Maximum number of partitions whose states are written in the same write that creates the partitions."""


class TopicController:
    """Creates, deletes and changes topics while this broker is the controller. `term` returns the present term, or
    raises KafkaError NOT_CONTROLLER."""

    def __init__(
        self, store: MetadataStore, term: Callable[[], PartitionController], entropy: Entropy = system_entropy
    ) -> None:
        self._store = store
        self._term = term
        self._entropy = entropy
        self._being_changed: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def _changing(self, name: str) -> AsyncIterator[PartitionController]:
        """Context manager that yields the present term as controller. Inside the block no other task creates, changes
        or deletes a topic with the same name or a colliding name. Without this exclusion, a decision about a topic
        could be written into a re-created topic with the same name, because the versions of its nodes restart at 0.
        """
        async with self._being_changed.setdefault(unified_name(name), asyncio.Lock()):
            with translated(name):
                yield self._term()

    async def create_topic(
        self,
        name: str,
        num_partitions: int,
        replication_factor: int,
        overrides: Mapping[str, str] | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> TopicAssignment:
        """Create a topic and elect the leaders of its partitions. Returns the created topic; with `validate_only`,
        returns the topic that would be created.

        An explicit `assignment` replaces the number of partitions and the replication factor. Raises
        INVALID_TOPIC_EXCEPTION, INVALID_REQUEST, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
        INVALID_REPLICA_ASSIGNMENT.
        """
        async with self._changing(name) as term:
            check_topic_may_be_made(name)
            for _ in range(MAX_ATTEMPTS):
                if await self._store.exists(paths.topic(name)) is not None:
                    raise _already_exists(name)
                check_no_collision(name, await self._store.children(paths.TOPICS))
                placed = await _placed(
                    term, lambda view: self._place(view, num_partitions, replication_factor, assignment)
                )
                await term.pause()
                topic = TopicAssignment(random_uuid(self._entropy), _as_assignments(placed))
                if validate_only:
                    return topic
                await term.pause()
                operations = await self._creation(name, topic, placed, overrides or {}, term)
                await term.pause()
                is_there = partial(self._has_topic, name, topic.topic_id, term.pause)
                try:
                    await term.make_topic(name, partial(commit, self._store, operations, is_there))
                except (NodeExists, BadVersion, NoNode) as error:
                    if error.path == paths.topic(name):
                        raise _already_exists(name) from error
                    await _look_again(error, term)
                    continue
                return topic
            raise too_contended(name, MAX_ATTEMPTS)

    async def delete_topic(self, name: str, topic_id: bytes | None = None) -> bytes | None:
        """Delete a topic and its settings; returns its id. `topic_id` is the id of the topic to delete; None if the
        caller does not know the id. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        async with self._changing(name) as term:
            for _ in range(MAX_ATTEMPTS):
                topic, stat = await self._read_topic(name, term)
                if topic_id not in (None, topic.topic_id):
                    raise unknown_topic(name)
                operations = await self._deletion(name, stat, term)
                mark = await self._store.exists(paths.deletion(name))
                if mark is not None:
                    operations.append(Delete(paths.deletion(name), mark.version))
                try:
                    if len(operations) <= MAX_OPERATIONS_PER_MULTI and size_of(operations) <= MAX_MULTI_BYTES:
                        gone = partial(self._lacks_topic, name, topic.topic_id, term.pause)
                        await self._commit(term, operations, gone)
                    elif mark is None:
                        await self._mark(name, topic, term)
                        continue
                    else:
                        await self._delete_in_pieces(name, operations, term)
                except (BadVersion, NoNode, NotEmpty, NodeExists) as error:
                    await _look_again(error, term)
                    continue
                await term.topics_changed((name,))
                return topic.topic_id
            raise too_contended(name, MAX_ATTEMPTS)

    async def finish_deletions(self, term: PartitionController) -> None:
        """Continue the deletions that were begun but not finished, perhaps by another controller. Raises KafkaError."""
        with translated(paths.DELETE_TOPICS):
            for name in await self._marks():
                try:
                    await self._finish_deletion(name, term)
                except (KafkaError, NoNode) as error:  # an earlier attempt has already deleted the topic
                    if isinstance(error, KafkaError) and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise

    async def _finish_deletion(self, name: str, term: PartitionController) -> None:
        if name in term.view.doomed:
            logger.info("continuing the deletion of a topic", extra={"topic": name})
            await self.delete_topic(name, term.view.topics[name].topic_id)
        # The mark was written after its topic was deleted; a new topic may have the same name now.
        else:
            path = paths.deletion(name)
            await self._commit(term, [Delete(path)], partial(self._lacks, path))

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> TopicAssignment:
        """Grow a topic to `count` partitions in total. Returns the topic after the change; with `validate_only`, the
        topic as the change would make it.

        `assignment` lists the replicas of the new partitions. Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS
        (`count` is not larger than the present number), INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT,
        REASSIGNMENT_IN_PROGRESS; INVALID_TOPIC_EXCEPTION for an internal topic.
        """
        async with self._changing(name) as term:
            check_may_grow(name)
            for _ in range(MAX_ATTEMPTS):
                before, stat = await self._read_topic(name, term)
                if name in term.view.doomed:
                    raise unknown_topic(name)
                new = partial(_new_partitions, name, before, count=count, assignment=assignment)
                placed = await _placed(term, new)
                await term.pause()
                after = replace(before, partitions={**before.partitions, **_as_assignments(placed)})
                if validate_only:
                    return after
                data = await with_pauses(topic_encoded_in_steps(after), term.pause)
                check_topic_fits(name, data)
                operations: list[Operation] = [
                    Set(paths.topic(name), data, stat.version),
                    *_first_states(name, placed, term, len(data)),
                ]
                took_place = partial(self._holds, paths.topic(name), data)
                try:
                    await self._commit(term, operations, took_place)
                except (BadVersion, NoNode, NodeExists) as error:
                    await _look_again(error, term)
                    continue
                await term.topics_changed((name,))
                return after
            raise too_contended(name, MAX_ATTEMPTS)

    async def _creation(
        self,
        name: str,
        topic: TopicAssignment,
        placed: Assignment,
        overrides: Mapping[str, str],
        term: PartitionController,
    ) -> list[Operation]:
        """Return the operations that create a topic. One operation is an empty write to `/brokers/topics`, which raises
        the version of this node. The raised version makes a concurrent change of topic settings fail, because the topic
        may have been re-created.
        """
        data = await with_pauses(topic_encoded_in_steps(topic), term.pause)
        check_topic_fits(name, data)
        config = await self._first_config(name, overrides)
        return [
            term.controllership.fence,
            Set(paths.TOPICS, b""),
            Create(paths.topic(name), data),
            Create(paths.partitions(name)),
            *_first_states(name, placed, term, len(data) + size_of(config)),
            *config,
        ]

    async def _mark(self, name: str, topic: TopicAssignment, term: PartitionController) -> None:
        """Mark the topic for deletion: from now on no controller elects a leader for any of its partitions."""
        try:
            await self._store.create(paths.DELETE_TOPICS, make_parents=True)
        except NodeExists:
            pass
        mark = Create(paths.deletion(name), encode_mark(topic))
        await self._commit(term, [mark], partial(self._holds, mark.path, mark.data))
        await term.deletion_began(name, topic.topic_id)

    async def _delete_in_pieces(self, name: str, operations: Sequence[Operation], term: PartitionController) -> None:
        """Delete the topic in several writes, children before parents; the last write deletes the topic and its mark
        together."""
        try:
            for start in range(0, len(operations), MAX_OPERATIONS_PER_MULTI):
                piece = operations[start : start + MAX_OPERATIONS_PER_MULTI]
                await self._commit(term, piece, partial(self._lacks, piece[-1].path))
        except StoreUnavailable:
            term.distrust()  # the controller continues the deletion when the store is reachable again
            raise

    async def _marks(self) -> list[str]:
        try:
            return await self._store.children(paths.DELETE_TOPICS)
        except NoNode:
            return []

    async def _commit(
        self, term: PartitionController, operations: Sequence[Operation], took_place: Callable[[], Awaitable[bool]]
    ) -> None:
        """Write these operations with the controller's fence, a check that this broker is still controller. If the
        store's reply is lost, `took_place` reads whether the write was done.
        """
        await commit(self._store, [term.controllership.fence, *operations], took_place)

    async def _read_topic(self, name: str, term: PartitionController) -> tuple[TopicAssignment, Stat]:
        try:
            data, stat = await self._store.get(paths.topic(name))
        except (NoNode, ValueError) as error:  # ValueError: illegal path, so no topic has this name
            raise unknown_topic(name) from error
        return await with_pauses(topic_in_steps(data, paths.topic(name)), term.pause), stat

    async def _first_config(self, name: str, overrides: Mapping[str, str]) -> list[Operation]:
        """Return the operations that write the settings of a new topic, and replace settings that an earlier deletion
        left.
        """
        left = await self._store.exists(paths.topic_config(name))
        operations: list[Operation] = [] if left is None else [Delete(paths.topic_config(name), left.version)]
        if overrides:
            operations.append(Create(paths.topic_config(name), encode_config(overrides)))
        return operations

    async def _deletion(self, name: str, stat: Stat, term: PartitionController) -> list[Operation]:
        """Return the operations that delete a topic, children before parents. The operations check the version of the
        topic's node, so that a concurrent change that adds partitions makes the deletion fail.
        """
        try:
            ids = [int(child) for child in await self._store.children(paths.partitions(name))]
        except NoNode:
            ids = None
        operations: list[Operation] = []
        for start in range(0, len(ids or ()), STATES_AT_A_TIME):
            some = (ids or [])[start : start + STATES_AT_A_TIME]
            states = [paths.partition_state(name, partition) for partition in some]
            for partition, path, state in zip(some, states, await self._store.get_many(states), strict=True):
                if state is not None:
                    operations.append(Delete(path))
                operations.append(Delete(paths.partition(name, partition)))
            await term.pause()
        if ids is not None:
            operations.append(Delete(paths.partitions(name)))
        if await self._store.exists(paths.topic_config(name)) is not None:
            operations.append(Delete(paths.topic_config(name)))
        operations.append(Delete(paths.topic(name), stat.version))
        return operations

    def _place(
        self,
        view: ClusterView,
        num_partitions: int,
        replication_factor: int,
        assignment: Mapping[int, Sequence[int]] | None,
    ) -> Assignment:
        if assignment is not None:
            return check_assignment(assignment, view.live)
        live = sorted(view.staying)
        brokers = max(len(live), 1)
        start, shift = random_below(brokers, self._entropy), random_below(brokers, self._entropy)
        return assign_replicas(live, num_partitions, replication_factor, start, shift, racks=_racks(view))

    async def _has_topic(self, name: str, topic_id: bytes | None, pause: Pause) -> bool:
        found = (await self._store.get_many([paths.topic(name)]))[0]
        if found is None:
            return False
        return (await with_pauses(topic_in_steps(found[0], paths.topic(name)), pause)).topic_id == topic_id

    async def _lacks_topic(self, name: str, topic_id: bytes | None, pause: Pause) -> bool:
        return not await self._has_topic(name, topic_id, pause)

    async def _lacks(self, path: str) -> bool:
        return await self._store.exists(path) is None

    async def _holds(self, path: str, data: bytes) -> bool:
        found = (await self._store.get_many([path]))[0]
        return found is not None and found[0] == data


def too_many(partitions: int) -> KafkaError | None:
    """Return KafkaError POLICY_VIOLATION if one request would create too many `partitions` in total; otherwise None."""
    if partitions <= MAX_PARTITIONS_PER_BATCH:
        return None
    message = f"One request may make {MAX_PARTITIONS_PER_BATCH} partitions, this one asks for {partitions}."
    return KafkaError(ErrorCode.POLICY_VIOLATION, message)


async def _placed(term: PartitionController, place: Callable[[ClusterView], Assignment]) -> Assignment:
    """Assign replicas by calling `place`. If the call fails, read the registrations again and repeat the call once:
    with too few brokers, some may have just registered.
    """
    try:
        return place(term.view)
    except KafkaError:
        await term.brokers_changed()
        return place(term.view)


async def _look_again(error: MetadataError, term: PartitionController) -> None:
    """Prepare the next attempt at a change that the store has refused. Raises KafkaError NOT_CONTROLLER."""
    raise_if_fenced(error)
    if error.path.startswith(paths.INCARNATIONS):
        await term.brokers_changed()


def _first_states(name: str, placed: Assignment, term: PartitionController, taken: int) -> list[Operation]:
    """Return the operations that create the state nodes of the first partitions in `placed`: as many as fit into a
    write that already has `taken` bytes. The reconciler later creates the nodes of the other partitions.
    """
    view, epoch = term.view, term.controllership.epoch
    states: dict[int, PartitionState] = {}
    for partition, replicas in islice(placed.items(), PARTITIONS_WITH_THE_TOPIC):
        state = first_leader(replicas, view.staying, epoch)
        if state is not None:
            states[partition] = state
    operations = incarnation_checks(view.brokers, {broker for state in states.values() for broker in state.isr})
    room = MAX_REQUEST_BYTES - SPARE_BYTES - taken - size_of(operations)
    for partition, state in states.items():
        of_partition: list[Operation] = [
            Create(paths.partition(name, partition)),
            Create(paths.partition_state(name, partition), encode_partition_state(state)),
        ]
        room -= size_of(of_partition)
        if room < 0:
            break
        operations.extend(of_partition)
    return operations


def _racks(view: ClusterView) -> dict[int, str]:
    return {broker.id: broker.rack for broker in view.live.values() if broker.rack is not None}


def _new_partitions(
    name: str, topic: TopicAssignment, view: ClusterView, count: int, assignment: Sequence[Sequence[int]] | None
) -> Assignment:
    """Return the replicas of the new partitions that grow the topic to `count` partitions. Each new partition has as
    many replicas as partition 0; the round robin of leaders continues from the leader of partition 0.
    """
    if any(p.adding_replicas or p.removing_replicas for p in topic.partitions.values()):
        message = f"A partition reassignment is in progress for the topic '{name}'."
        raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, message)
    present = max(topic.partitions, default=-1) + 1
    if count <= present:
        message = f"Topic '{name}' has {present} partitions already, {count} would not be an increase."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
    live = sorted(view.staying)
    example = topic.partitions[min(topic.partitions)].replicas if topic.partitions else live[:1]
    if assignment is None:
        start = next((index for index, broker in enumerate(live) if broker >= example[0]), 0)
        return assign_replicas(live, count - present, len(example), start, start, present, _racks(view))
    if len(assignment) != count - present:
        message = f"{count - present} partitions are to be added, but {len(assignment)} assignments were given."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return check_assignment(dict(enumerate(assignment, present)), view.live, present, len(example))


def _as_assignments(placed: Assignment) -> dict[int, ReplicaAssignment]:
    shared = {replicas: ReplicaAssignment(replicas) for replicas in set(placed.values())}
    return {partition: shared[replicas] for partition, replicas in placed.items()}


def _already_exists(name: str) -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
