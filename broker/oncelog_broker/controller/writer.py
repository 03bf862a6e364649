"""Writes changes of partition states and assignments. A *piece* is a set of changes that one ZooKeeper `multi` request
writes. The request also checks that this broker is still controller, and that no broker in the written ISRs has
registered again.

The store refuses a piece (changes that are written together) if another broker is controller, a broker in an ISR has
registered again, or a topic was deleted. After a write with an unknown outcome, the caller reads the view again and
decides again. If the write with the unknown outcome takes effect late, it either fails because of outdated node
versions, or it writes the same state as the write that was decided again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from oncelog_broker.controller.known_broker import KnownBroker
from oncelog_broker.controller.leadership import Controllership
from oncelog_broker.controller.partition_decisions import PartitionChange
from oncelog_broker.controller.view import ClusterView, KnownState
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.metadata.model.payloads import (
    PartitionState,
    ReplicaAssignment,
    encode_partition_state,
    topic_encoded_in_steps,
)
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.metadata.stores.store import (
    Check,
    Create,
    MetadataError,
    MetadataStore,
    Operation,
    RequestTooLarge,
    Set,
    StoreUnavailable,
)
from oncelog_broker.runtime.slices import Pause, no_pause, with_pauses

logger = logging.getLogger(__name__)

MAX_PARTITIONS_PER_MULTI: Final = 250
"""Maximum number of partitions in one write; encoding these partitions blocks the event loop for some milliseconds."""
MAX_MULTI_BYTES: Final = 700_000
"""Maximum bytes of one write to the store. ZooKeeper closes the connection of a client that sends more than 1 MiB
(jute.maxbuffer).
"""
OPERATION_BYTES: Final = 80
"""Upper bound of the bytes of an operation without its path and data."""
NAMES_IN_A_LINE: Final = 10
"""Maximum number of partitions that a log line names."""
_LONGEST_STATE: Final = 300
"""Upper bound of the bytes of an operation with a state whose ISR has some ten brokers."""


class Deposed(Exception):
    """Raised if a write was refused because another broker has become controller."""


class Refused(Exception):
    """The store refused a write of partition changes, and none of these changes was written. `brokers` is True if the
    write was refused because a broker has registered again, and False if another node has changed.
    """

    def __init__(self, error: MetadataError) -> None:
        super().__init__(str(error))
        self.brokers = error.path.startswith(paths.INCARNATIONS)


def in_pieces(changes: Sequence[PartitionChange]) -> Iterator[Sequence[PartitionChange]]:
    """Split changes into pieces; each piece fits into one write of the store. A piece (changes for one write) that
    contains assignments has changes of one topic only, because all assignments of a topic are in one node, which may be
    large.
    """
    piece: list[PartitionChange] = []
    size = 0
    for change in changes:
        expected = 2 * len(change.key.topic) + len(change.state.isr) * 12 + _LONGEST_STATE
        if piece and (
            len(piece) == MAX_PARTITIONS_PER_MULTI
            or size + expected > MAX_MULTI_BYTES
            or _reassigned_topic(change) != _reassigned_topic(piece[-1])
        ):
            yield piece
            piece, size = [], 0
        piece.append(change)
        size += expected
    if piece:
        yield piece


def _reassigned_topic(change: PartitionChange) -> str | None:
    return None if change.assignment is None else change.key.topic


def size_of(operations: Sequence[Operation]) -> int:
    """Estimated bytes of the operations in a write."""
    return sum(len(o.path) + len(getattr(o, "data", b"")) + OPERATION_BYTES for o in operations)


def incarnation_checks(known: Mapping[int, KnownBroker], brokers: set[int]) -> list[Operation]:
    """Return operations that make the write fail if one of the brokers has registered again since the decision. `known`
    has the registrations that the decision used.
    """
    counted = [known[broker] for broker in sorted(brokers) if broker in known]
    return [Check(paths.incarnation(b.id), b.incarnation) for b in counted if b.incarnation is not None]


class StateWriter:
    """Writes changes of partitions during one term as controller."""

    def __init__(self, store: MetadataStore, controllership: Controllership, pause: Pause = no_pause) -> None:
        self._store = store
        self._controllership = controllership
        self._pause = pause

    async def write(
        self, view: ClusterView, piece: Sequence[PartitionChange], brokers: Mapping[int, KnownBroker]
    ) -> None:
        """Write one piece that `in_pieces` returned (changes for one write), and update the view with the written
        changes. Raises Deposed, Refused, RequestTooLarge, StoreUnavailable.

        `brokers`: the mapping of known brokers that the decisions used. The write must not check the newer incarnations
        that the view may have by now, because a broker that has registered again may have lost records that the
        decision relied on.
        """
        operations: list[Operation] = [
            self._controllership.fence,
            *incarnation_checks(brokers, set().union(*(change.brokers() for change in piece))),
            *await self._missing_parents([change.key for change in piece if change.version is None]),
        ]
        assigned = _assignments(piece)
        where = len(operations)
        for name, changed in assigned.items():
            operations.append(await self._topic_operation(view, name, changed))
        first = len(operations)
        operations.extend(map(_operation, piece))
        try:
            stats = await self._store.multi(operations)
        except (StoreUnavailable, RequestTooLarge):
            raise
        except MetadataError as error:
            if error.path == paths.CONTROLLER_EPOCH:
                raise Deposed from error
            raise Refused(error) from error
        for (name, changed), stat in zip(assigned.items(), stats[where:first], strict=True):
            assert stat is not None
            view.put_assignments(name, changed, stat.version)
        moves = IsrMoves()
        for change, stat in zip(piece, stats[first:], strict=True):
            assert stat is not None
            moves.note(change.key, view.states.get(change.key), change.state)
            view.put_state(change.key, KnownState(change.state, stat.version, stat.mzxid))
            _tell(change)
        moves.tell()

    async def _topic_operation(
        self, view: ClusterView, name: str, changed: Mapping[int, ReplicaAssignment]
    ) -> Operation:
        topic = view.topics[name]
        reassigned = replace(topic, partitions={**topic.partitions, **changed})
        data = await with_pauses(topic_encoded_in_steps(reassigned), self._pause)
        return Set(paths.topic(name), data, view.topic_versions[name])

    async def _missing_parents(self, keys: Sequence[PartitionKey]) -> list[Operation]:
        """Return the operations that create the missing nodes above the state nodes of these partitions, parents
        first."""
        ordered = sorted({paths.partitions(key.topic) for key in keys} | {paths.partition(*key) for key in keys})
        found = await self._store.get_many(ordered) if ordered else []
        return [Create(path) for path, node in zip(ordered, found, strict=True) if node is None]


def _assignments(piece: Sequence[PartitionChange]) -> dict[str, dict[int, ReplicaAssignment]]:
    """Return the new assignments, by topic and partition."""
    assigned: dict[str, dict[int, ReplicaAssignment]] = {}
    for change in piece:
        if change.assignment is not None:
            assigned.setdefault(change.key.topic, {})[change.key.partition] = change.assignment
    return assigned


def _operation(change: PartitionChange) -> Operation:
    path, data = paths.partition_state(*change.key), encode_partition_state(change.state)
    return Create(path, data) if change.version is None else Set(path, data, change.version)


class IsrMoves:
    """Logs the replicas that left and joined ISRs in one write, with one log line for each broker, however many
    partitions the broker has."""

    def __init__(self) -> None:
        self._left: dict[int, list[str]] = {}
        self._joined: dict[int, list[str]] = {}

    def note(self, key: PartitionKey, before: KnownState | None, after: PartitionState) -> None:
        """Add a partition state that was written, so that its ISR changes are logged."""
        if before is None:
            return
        then, now = set(before.state.isr), set(after.isr)
        for moved, to in ((then - now, self._left), (now - then, self._joined)):
            for broker in moved:
                to.setdefault(broker, []).append(f"{key.topic}-{key.partition}")

    def tell(self) -> None:
        """Write the log lines: a warning for replicas that left an ISR, an info line for replicas that joined an ISR
        again."""
        for moves, level, what in (
            (self._left, logging.WARNING, "a replica is no longer in sync"),
            (self._joined, logging.INFO, "a replica is in sync again"),
        ):
            for broker, partitions in sorted(moves.items()):
                extra = {"broker": broker, "count": len(partitions), "partitions": shortened(partitions)}
                logger.log(level, what, extra=extra)


def shortened(names: Sequence[str]) -> str:
    """Return the first names of `names` as one string, for a log line."""
    shown = " ".join(sorted(names[:NAMES_IN_A_LINE]))
    return f"{shown} ..." if len(names) > NAMES_IN_A_LINE else shown


def _tell(change: PartitionChange) -> None:
    extra = {"partition": f"{change.key.topic}-{change.key.partition}", "leader": change.state.leader}
    if change.assignment is not None:
        assigned = change.assignment
        logger.info(
            "reassignment began" if assigned.is_reassigned else "reassignment completed",
            extra={**extra, "replicas": assigned.target, "removing": assigned.removing_replicas},
        )
    if change.may_lose:
        logger.error("the new leader may lack committed records", extra=extra)
    elif change.state.leader == NO_LEADER:
        logger.warning("the partition has no leader: no in-sync replica is available", extra=extra)
