"""Lists the workloads by the names that plans use. Each name stands for one client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Final

from oncelog_simulation.workloads.administrators import Mover, TopicMaker, Trimmer
from oncelog_simulation.workloads.careless import CarelessWriter
from oncelog_simulation.workloads.ghosts import Ghost
from oncelog_simulation.workloads.groups import GROUP, MIXED_GROUP, NEWER_GROUP, GroupMember, OffsetsWatcher
from oncelog_simulation.workloads.late_peers import LatePeer
from oncelog_simulation.workloads.newer_ghosts import NewerGhost
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.pipelines import GROUP as PIPELINES
from oncelog_simulation.workloads.pipelines import Pipeline
from oncelog_simulation.workloads.prepared import TwoPhaseWriter
from oncelog_simulation.workloads.readers import EndsWatcher, Reader
from oncelog_simulation.workloads.repeaters import Repeater
from oncelog_simulation.workloads.retention import PassingWriter
from oncelog_simulation.workloads.sharers import Sharer
from oncelog_simulation.workloads.sleepers import (
    AgingWriter,
    SleepingGroup,
    SleepingProducer,
    SleepingTransactions,
    StayingGroup,
)
from oncelog_simulation.workloads.sleeping_sharers import SleepingSharer
from oncelog_simulation.workloads.sleeping_streams import SleepingStreams
from oncelog_simulation.workloads.strangers import Stranger
from oncelog_simulation.workloads.streams_members import StreamsMember
from oncelog_simulation.workloads.streams_wire import STREAMS_GROUP
from oncelog_simulation.workloads.tables import TableWriter
from oncelog_simulation.workloads.transactions import TransactionalWriter
from oncelog_simulation.workloads.workload import ClientWorkload
from oncelog_simulation.workloads.writers import IdempotentWriter
from oncelog_simulation.workloads.zombies import Zombie

GROUPS: Final = (
    *(GROUP, NEWER_GROUP, MIXED_GROUP, PIPELINES, "payer-1-ledger", "payer-2-ledger"),
    *("ghost-1-group", "ghost-2-group", "newer-ghost-1-group", STREAMS_GROUP),
)
"""The groups whose committed offsets are watched."""
WORKLOADS: Final[Mapping[str, Callable[[Notes, str], ClientWorkload]]] = {
    "writer-1": IdempotentWriter,
    "writer-2": IdempotentWriter,
    "payer-1": TransactionalWriter,
    "payer-2": TransactionalWriter,
    "pipeline-1": Pipeline,
    "pipeline-2": Pipeline,
    "member-1": GroupMember,
    "member-2": GroupMember,
    "newer-member-1": lambda notes, name: GroupMember(notes, name, "consumer"),
    "newer-member-2": lambda notes, name: GroupMember(notes, name, "consumer"),
    "mixed-member-1": lambda notes, name: GroupMember(notes, name, None),
    "mixed-member-2": lambda notes, name: GroupMember(notes, name, None),
    "sharer-1": Sharer,
    "sharer-2": Sharer,
    "sharer-3": Sharer,
    "stranger-1": Stranger,
    "streams-member-1": StreamsMember,
    "streams-member-2": StreamsMember,
    "ghost-1": Ghost,
    "ghost-2": Ghost,
    "newer-ghost-1": NewerGhost,
    "two-phase-1": TwoPhaseWriter,
    "two-phase-2": TwoPhaseWriter,
    "zombie-1": Zombie,
    "zombie-2": Zombie,
    "repeater-1": Repeater,
    "late-peer-1": LatePeer,
    "reader-committed": lambda notes, name: Reader(notes, name, is_committed=True),
    "reader-uncommitted": lambda notes, name: Reader(notes, name, is_committed=False),
    "ends-watcher": EndsWatcher,
    "offsets-watcher": lambda notes, name: OffsetsWatcher(notes, name, GROUPS),
    "table-writer": TableWriter,
    "trimmer": Trimmer,
    "passing-writer": PassingWriter,
    "careless-writer": CarelessWriter,
    "sleeping-producer": SleepingProducer,
    "sleeping-transactions": SleepingTransactions,
    "sleeping-group": SleepingGroup,
    "staying-group": StayingGroup,
    "aging-writer": AgingWriter,
    "sleeping-sharer": SleepingSharer,
    "sleeping-streams": SleepingStreams,
    "topic-maker": TopicMaker,
    "mover": Mover,
}
NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "pipeline-1": ("writer-1",),
    "pipeline-2": ("writer-1",),
    "member-1": ("writer-1",),
    "member-2": ("writer-1",),
    "mixed-member-1": ("writer-1",),
    "mixed-member-2": ("writer-1",),
    "newer-member-1": ("writer-1",),
    "newer-member-2": ("writer-1",),
    "sharer-1": ("writer-1",),
    "sharer-2": ("writer-1",),
    "stranger-1": ("sharer-1", "sharer-2", "writer-1"),
    "mover": ("writer-1",),
    "late-peer-1": ("payer-1",),
    "reader-committed": ("payer-1",),
    "reader-uncommitted": ("payer-1",),
    "ends-watcher": ("payer-1",),
    "offsets-watcher": ("payer-1",),
}
"""For some workloads, the other workloads without which they can do nothing."""
SLEEPERS: Final = (
    *("sleeping-producer", "sleeping-transactions", "sleeping-group", "staying-group", "aging-writer"),
    *("sleeping-sharer", "sleeping-streams"),
)
"""The workloads that only a plan of days has, because they check limits of hours and days."""
LONG_LIVED: Final = (
    *SLEEPERS,
    *("writer-1", "writer-2", "payer-1", "payer-2", "two-phase-1", "reader-committed", "reader-uncommitted"),
    *("ends-watcher", "table-writer", "passing-writer", "careless-writer", "trimmer"),
    *("pipeline-1", "pipeline-2", "ghost-1", "newer-ghost-1", "repeater-1"),
)
"""The workloads that pause for hours between two steps in a plan of days."""
SETTINGS: Final[Mapping[str, str]] = {
    "zookeeper.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "3000",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1500",
    "group.consumer.min.heartbeat.interval.ms": "1500",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.max.delivery.count.limit": "1000",
    "group.share.heartbeat.interval.ms": "1500",
    "group.share.min.heartbeat.interval.ms": "1500",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.session.timeout.ms": "6000",
    "group.streams.heartbeat.interval.ms": "1500",
    "group.streams.min.heartbeat.interval.ms": "1500",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.initial.rebalance.delay.ms": "500",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.prune.interval.ms": "3000",
    "transaction.two.phase.commit.enable": "true",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    "log.flush.scheduler.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "log.flush.start.offset.checkpoint.interval.ms": "3000",
    "replica.high.watermark.checkpoint.interval.ms": "2000",
    "log.segment.delete.delay.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
"""With these broker settings, a run of twenty seconds has effects that would otherwise take an hour."""
FEWEST, MOST = 2, 6
"""Minimum and maximum number of workloads in one plan, not counting those that are added because others need them."""


def with_needed(names: Iterable[str]) -> tuple[str, ...]:
    """Return the workloads together with the workloads that they need, in the order of the catalogue."""
    wanted = set(names)
    wanted.update(needed for name in tuple(wanted) for needed in NEEDED.get(name, ()))
    return tuple(name for name in WORKLOADS if name in wanted)


def draw_workloads(rng: Random) -> tuple[str, ...]:
    """Draw some workloads, and add those that they need: random subsets find more bugs than all workloads together
    (swarm testing).
    """
    return with_needed(rng.sample(sorted(WORKLOADS.keys() - set(SLEEPERS)), rng.randint(FEWEST, MOST)))
