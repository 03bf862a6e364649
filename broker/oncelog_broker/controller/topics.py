"""Creates, deletes and changes topics: the rim between the admin requests and the store.

Each change is one atomic `multi` behind the controller's fence, so a topic is never half made. What a request asks is
checked against the store, not against an image that may lag. Settings come validated (`oncelog_broker.config`).

All errors are `KafkaError`s. NOT_CONTROLLER: another broker is controller now. REQUEST_TIMED_OUT: the store did not
answer, and nobody knows whether the change was made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from oncelog_broker.controller.assignment import Assignment, assign_replicas, check_assignment
from oncelog_broker.controller.election import first_leader
from oncelog_broker.controller.leadership import Controllership
from oncelog_broker.controller.partition_states import create_partition_nodes
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.payloads import (
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    encode_config,
    encode_topic,
    parse_config,
    parse_topic,
)
from oncelog_broker.metadata.store import (
    BadVersion,
    Check,
    ConnectionLost,
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
from oncelog_broker.metadata.topic_names import check_no_collision, check_topic_may_be_made
from oncelog_broker.runtime.entropy import Entropy, random_below, random_uuid, system_entropy
from oncelog_protocol.errors import ErrorCode, KafkaError

MAX_ATTEMPTS = 20
"""How often a change is tried anew after somebody else changed the same nodes between our reading and writing."""
MAX_PARTITIONS_PER_BATCH: Final = 10_000
"""Made by one request, as in Kafka (KRaft's ReplicationControlManager): as many as a broker is planned for."""

ConfigChange = Callable[[dict[str, str]], Mapping[str, str]]
"""Old overrides -> new overrides. Pure, since it may be called again; may raise KafkaError to refuse."""


class TopicController:
    """The controller's work on topics and settings."""

    def __init__(self, store: MetadataStore, controller: Controllership, entropy: Entropy = system_entropy) -> None:
        self._store = store
        self._controller = controller
        self._entropy = entropy

    async def create_topic(
        self,
        name: str,
        num_partitions: int,
        replication_factor: int,
        overrides: Mapping[str, str] | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> TopicAssignment:
        """Create a topic and elect its leaders; what was, or with `validate_only` would be, created.

        An `assignment` made by hand stands instead of the two numbers. INVALID_TOPIC_EXCEPTION, INVALID_REQUEST,
        TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT.
        """
        check_topic_may_be_made(name)
        with _translated(name):
            if await self._store.exists(paths.topic(name)) is not None:
                raise _already_exists(name)
            check_no_collision(name, await self._store.children(paths.TOPICS))
            live = await self._live_brokers()
            if assignment is None:
                placed = self._spread(live, num_partitions, replication_factor)
            else:
                placed = check_assignment(assignment, live)
            topic = TopicAssignment(random_uuid(self._entropy), {p: ReplicaAssignment(r) for p, r in placed.items()})
            if validate_only:
                return topic
            operations: list[Operation] = [
                Create(paths.topic(name), encode_topic(topic)),
                Create(paths.partitions(name)),
                *create_partition_nodes(name, self._first_states(placed, live)),
                *await self._first_config(name, overrides or {}),
            ]
            try:
                await self._commit(operations, partial(self._has_topic, name, topic.topic_id))
            except NodeExists as error:
                raise _already_exists(name) from error
            return topic

    async def delete_topic(self, name: str) -> bytes | None:
        """Delete a topic and its settings; the id that it had. UNKNOWN_TOPIC_OR_PARTITION."""
        with _translated(name):
            for _ in range(MAX_ATTEMPTS):
                topic, stat = await self._read_topic(name)
                operations = await self._deletion(name, stat)
                try:
                    await self._commit(operations, partial(self._lacks_topic, name, topic.topic_id))
                except (BadVersion, NoNode, NotEmpty) as error:
                    _raise_if_fenced(error)
                    continue
                return topic.topic_id
            raise _too_contended(name)

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> TopicAssignment:
        """Let a topic have `count` partitions in all; the topic as it is, or would be, then.

        `assignment` lists the replicas of the new partitions. UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS (not more
        than there are), INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, REASSIGNMENT_IN_PROGRESS.
        """
        with _translated(name):
            for _ in range(MAX_ATTEMPTS):
                before, stat = await self._read_topic(name)
                live = await self._live_brokers()
                placed = _new_partitions(name, before, live, count, assignment)
                after = replace(before, partitions={**before.partitions, **_as_assignments(placed)})
                if validate_only:
                    return after
                operations = [
                    Set(paths.topic(name), encode_topic(after), stat.version),
                    *create_partition_nodes(name, self._first_states(placed, live)),
                ]
                try:
                    await self._commit(operations, partial(self._holds, paths.topic(name), encode_topic(after)))
                except (BadVersion, NoNode, NodeExists) as error:
                    _raise_if_fenced(error)
                    continue
                return after
            raise _too_contended(name)

    async def alter_topic_config(
        self, name: str, change: ConfigChange, validate_only: bool = False
    ) -> Mapping[str, str]:
        """Change a topic's overrides; the new ones. UNKNOWN_TOPIC_OR_PARTITION, and what `change` raises."""
        with _translated(name):
            return await self._alter_config(paths.topic_config(name), change, validate_only, topic=name)

    async def alter_broker_config(
        self, broker: int | None, change: ConfigChange, validate_only: bool = False
    ) -> Mapping[str, str]:
        """Change the overrides of a broker, or with None those for every broker; the new ones."""
        path = paths.broker_config(broker)
        with _translated(path):
            return await self._alter_config(path, change, validate_only)

    async def _alter_config(
        self, path: str, change: ConfigChange, validate_only: bool, topic: str | None = None
    ) -> Mapping[str, str]:
        for _ in range(MAX_ATTEMPTS):
            guard: list[Operation] = []
            if topic is not None:  # or the settings would outlive a topic that is deleted at this moment
                _, stat = await self._read_topic(topic)
                guard.append(Check(paths.topic(topic), stat.version))
            found = (await self._store.get_many([path]))[0]
            before = {} if found is None else parse_config(found[0], path)
            after = change(dict(before))
            if validate_only or after == before:
                return after
            data = encode_config(after)
            write = Create(path, data) if found is None else Set(path, data, found[1].version)
            try:
                await self._commit([*guard, write], partial(self._holds, path, data))
            except (BadVersion, NodeExists, NoNode) as error:
                _raise_if_fenced(error)
                continue
            return after
        raise _too_contended(path)

    async def _commit(self, operations: Sequence[Operation], took_place: Callable[[], Awaitable[bool]]) -> None:
        """Write behind the fence. When the reply was lost, `took_place` reads whether the write was done."""
        try:
            await self._store.multi([self._controller.fence, *operations])
        except ConnectionLost:
            if not await took_place():
                raise

    async def _read_topic(self, name: str) -> tuple[TopicAssignment, Stat]:
        try:
            data, stat = await self._store.get(paths.topic(name))
        except (NoNode, ValueError) as error:  # ValueError: a name that is no legal path, so no topic has it
            message = f"Topic '{name}' does not exist."
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message) from error
        return parse_topic(data, paths.topic(name)), stat

    async def _first_config(self, name: str, overrides: Mapping[str, str]) -> list[Operation]:
        """The settings of a new topic, in the place of those that a deletion may have left."""
        left = await self._store.exists(paths.topic_config(name))
        operations: list[Operation] = [] if left is None else [Delete(paths.topic_config(name), left.version)]
        if overrides:
            operations.append(Create(paths.topic_config(name), encode_config(overrides)))
        return operations

    async def _deletion(self, name: str, stat: Stat) -> list[Operation]:
        """Children before parents; the topic's version guards against partitions that are added meanwhile."""
        operations: list[Operation] = []
        try:
            partitions = [int(child) for child in await self._store.children(paths.partitions(name))]
        except NoNode:
            partitions = None
        for partition in partitions or ():
            if await self._store.exists(paths.partition_state(name, partition)) is not None:
                operations.append(Delete(paths.partition_state(name, partition)))
            operations.append(Delete(paths.partition(name, partition)))
        if partitions is not None:
            operations.append(Delete(paths.partitions(name)))
        operations.append(Delete(paths.topic(name), stat.version))
        if await self._store.exists(paths.topic_config(name)) is not None:
            operations.append(Delete(paths.topic_config(name)))
        return operations

    def _spread(self, live: Sequence[int], num_partitions: int, replication_factor: int) -> Assignment:
        brokers = max(len(live), 1)
        start, shift = random_below(brokers, self._entropy), random_below(brokers, self._entropy)
        return assign_replicas(live, num_partitions, replication_factor, start, shift)

    def _first_states(self, placed: Assignment, live: Sequence[int]) -> dict[int, PartitionState]:
        states = {p: first_leader(replicas, live, self._controller.epoch) for p, replicas in placed.items()}
        return {partition: state for partition, state in states.items() if state is not None}

    async def _live_brokers(self) -> list[int]:
        return sorted(int(name) for name in await self._store.children(paths.BROKER_IDS))

    async def _has_topic(self, name: str, topic_id: bytes | None) -> bool:
        found = (await self._store.get_many([paths.topic(name)]))[0]
        return found is not None and parse_topic(found[0], paths.topic(name)).topic_id == topic_id

    async def _lacks_topic(self, name: str, topic_id: bytes | None) -> bool:
        return not await self._has_topic(name, topic_id)

    async def _holds(self, path: str, data: bytes) -> bool:
        found = (await self._store.get_many([path]))[0]
        return found is not None and found[0] == data


def too_many(partitions: int) -> KafkaError | None:
    """POLICY_VIOLATION for a request that would make so many `partitions` in all, None for one that may."""
    if partitions <= MAX_PARTITIONS_PER_BATCH:
        return None
    message = f"One request may make {MAX_PARTITIONS_PER_BATCH} partitions, this one asks for {partitions}."
    return KafkaError(ErrorCode.POLICY_VIOLATION, message)


class _translated:  # noqa: N801  (reads as a statement)
    """Turns the store's errors that mean something to a client into KafkaErrors."""

    def __init__(self, subject: str) -> None:
        self._subject = subject

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StoreUnavailable):
            message = f"The metadata store is unavailable; whether '{self._subject}' was changed is not known: {error}"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message) from error
        if isinstance(error, MetadataError):
            _raise_if_fenced(error)


def _raise_if_fenced(error: MetadataError) -> None:
    if error.path == paths.CONTROLLER_EPOCH:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "Another broker has become controller.") from error


def _new_partitions(
    name: str, topic: TopicAssignment, live: Sequence[int], count: int, assignment: Sequence[Sequence[int]] | None
) -> Assignment:
    """Where the partitions that make it `count` go: as many replicas as partition 0, round robin on from it."""
    if any(p.adding_replicas or p.removing_replicas for p in topic.partitions.values()):
        message = f"A partition reassignment is in progress for the topic '{name}'."
        raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, message)
    present = max(topic.partitions, default=-1) + 1
    if count <= present:
        message = f"Topic '{name}' has {present} partitions already, {count} would not be an increase."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
    example = topic.partitions[min(topic.partitions)].replicas if topic.partitions else live[:1]
    if assignment is None:
        start = next((index for index, broker in enumerate(live) if broker >= example[0]), 0)
        return assign_replicas(live, count - present, len(example), start, start, present)
    if len(assignment) != count - present:
        message = f"{count - present} partitions are to be added, but {len(assignment)} assignments were given."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return check_assignment(dict(enumerate(assignment, present)), live, present, len(example))


def _as_assignments(placed: Assignment) -> dict[int, ReplicaAssignment]:
    return {partition: ReplicaAssignment(replicas) for partition, replicas in placed.items()}


def _already_exists(name: str) -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _too_contended(subject: str) -> KafkaError:
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT, f"'{subject}' was changed by others in each of {MAX_ATTEMPTS} attempts."
    )
