"""The data of `oncelog top`: a snapshot of a cluster, read by an admin client, and the rates between two snapshots. No
drawing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from oncelog.cli.running import describe

if TYPE_CHECKING:
    from oncelog.admin import Admin
    from oncelog.cluster import Topic, TopicPartition

T = TypeVar("T")
Partition = tuple[str, int]

MAX_GROUPS: Final = 50
"""Maximum number of groups whose lag is queried in one snapshot; each group costs requests to its coordinator."""
MAX_TRANSACTIONS: Final = 50
"""Maximum number of open transactions whose age is queried in one snapshot."""
PART_SECONDS: Final = 5.0
"""Timeout in seconds for reading each part of a snapshot (topics, offsets, groups, transactions), so that a coordinator
that is still loading does not delay the snapshot.
"""
ONGOING: Final = "Ongoing"


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker with the numbers of partitions that it leads and hosts; `out_of_sync` is the number of hosted partitions
    that are out of sync.
    """

    node_id: int
    address: str
    is_controller: bool
    leads: int
    replicas: int
    out_of_sync: int


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A consumer group; `lag` is None if unknown."""

    group_id: str
    state: str
    members: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """An open transaction; its start time is None if unknown."""

    transactional_id: str
    producer_id: int
    coordinator_id: int
    seconds: float | None
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition that is out of sync, or without a leader."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(slots=True)
class Snapshot:
    """The state of a cluster at one moment. `missing` says which parts are unavailable, and why."""

    at: float
    """The time of the snapshot, in seconds of the monotonic clock."""
    cluster_id: str | None = None
    brokers: list[BrokerRow] = field(default_factory=list)
    ends: dict[Partition, int] = field(default_factory=dict)
    """The log end offsets of the partitions with leaders."""
    leaders: dict[Partition, int] = field(default_factory=dict)
    out_of_sync: list[PartitionRow] = field(default_factory=list)
    groups: list[GroupRow] = field(default_factory=list)
    transactions: list[TransactionRow] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rates:
    """Records per second between two snapshots; empty if there is only one snapshot."""

    by_topic: Mapping[str, float]
    by_broker: Mapping[int, float]

    @property
    def total(self) -> float:
        return sum(self.by_topic.values())


def rates(before: Snapshot | None, now: Snapshot) -> Rates:
    """Return the rates, which are computed from the log end offsets. A partition counts as idle if its end offset has
    decreased, because its log was truncated or its topic re-created.
    """
    if before is None or now.at <= before.at:
        return Rates({}, {})
    by_topic: dict[str, float] = {}
    by_broker: dict[int, float] = {}
    seconds = now.at - before.at
    for where, end in now.ends.items():
        rate = max(0, end - before.ends.get(where, end)) / seconds
        by_topic[where[0]] = by_topic.get(where[0], 0.0) + rate
        leader = now.leaders[where]
        by_broker[leader] = by_broker.get(leader, 0.0) + rate
    return Rates(by_topic, by_broker)


async def look(admin: Admin) -> Snapshot:
    """Take a snapshot. Raises KafkaError if the cluster cannot be reached; parts that are unavailable or forbidden are
    listed in `missing`.
    """
    found = Snapshot(monotonic())
    cluster = await admin.describe_cluster()
    found.cluster_id = cluster.cluster_id
    names = await _had(found, "topics", admin.list_topics(include_internal=True), [])
    topics = (await _had(found, "topics", admin.describe_topics(names), {})) if names else {}
    _see_partitions(found, topics.values())
    found.brokers = broker_rows(cluster, topics.values())
    await _see_ends(found, admin)
    await _see_groups(found, admin)
    await _see_transactions(found, admin)
    return found


async def _had(found: Snapshot, what: str, asked: Awaitable[T], otherwise: T) -> T:
    from oncelog.errors import ConnectionFailed, KafkaError

    try:
        async with asyncio.timeout(PART_SECONDS):
            return await asked
    except ConnectionFailed:
        raise
    except TimeoutError:
        found.missing[what] = f"no answer within {PART_SECONDS:g} s"
        return otherwise
    except KafkaError as error:
        found.missing[what] = describe(error, "the cluster")
        return otherwise


def _see_partitions(found: Snapshot, topics: Iterable[Topic]) -> None:
    from oncelog.cluster import NO_NODE

    for topic in topics:
        for index, partition in sorted(topic.partitions.items()):
            if partition.leader != NO_NODE:
                found.leaders[topic.name, index] = partition.leader
            if partition.leader == NO_NODE or set(partition.replicas) - set(partition.isr):
                row = PartitionRow(topic.name, index, partition.leader, partition.replicas, partition.isr)
                found.out_of_sync.append(row)


def broker_rows(cluster: Any, topics: Iterable[Topic]) -> list[BrokerRow]:
    """Return a row for each live broker, and for each other broker that is assigned replicas."""
    leads: dict[int, int] = {}
    replicas: dict[int, int] = {}
    behind: dict[int, int] = {}
    for topic in topics:
        for partition in topic.partitions.values():
            leads[partition.leader] = leads.get(partition.leader, 0) + 1
            for node_id in partition.replicas:
                replicas[node_id] = replicas.get(node_id, 0) + 1
                behind[node_id] = behind.get(node_id, 0) + (node_id not in partition.isr)
    live = {broker.node_id: f"{broker.host}:{broker.port}" for broker in cluster.brokers}
    return [
        BrokerRow(
            node_id,
            live.get(node_id, "not there"),
            node_id == cluster.controller_id,
            leads.get(node_id, 0),
            replicas.get(node_id, 0),
            behind.get(node_id, 0),
        )
        for node_id in sorted(live.keys() | replicas.keys())
    ]


async def _see_ends(found: Snapshot, admin: Admin) -> None:
    from oncelog.cluster import TopicPartition
    from oncelog.metadata.list_offsets import LATEST_TIMESTAMP

    if not found.leaders:
        return
    asked = dict.fromkeys((TopicPartition(*where) for where in found.leaders), LATEST_TIMESTAMP)
    found.ends = ends_of(await _had(found, "offsets", admin.list_offsets(asked), {}))


def ends_of(offsets: Mapping[TopicPartition, Any]) -> dict[Partition, int]:
    return {(where.topic, where.partition): known.offset for where, known in offsets.items()}


async def _see_groups(found: Snapshot, admin: Admin) -> None:
    listed = await _had(found, "groups", admin.groups.list(), [])
    shown = [group.group_id for group in listed[:MAX_GROUPS]]
    if len(listed) > MAX_GROUPS:
        found.missing["groups"] = f"{len(listed) - MAX_GROUPS} more are not shown"
    described = (await _had(found, "groups", admin.groups.describe(shown), {})) if shown else {}
    asked = [_had(found, "groups", admin.groups.offsets(group_id), None) for group_id in shown]
    for group_id, committed in zip(shown, await asyncio.gather(*asked), strict=True):
        group = described.get(group_id)
        lag = None if committed is None else lag_of({tuple(w): c.offset for w, c in committed.items()}, found.ends)
        state, members = ("", 0) if group is None else (group.state, len(group.members))
        found.groups.append(GroupRow(group_id, state, members, lag))
    found.groups.sort(key=lambda row: (-(row.lag or 0), row.group_id))


def lag_of(committed: Mapping[Any, int], ends: Mapping[Partition, int]) -> int | None:
    """Return the number of records after the committed offsets; None if none of the committed partitions exists any
    more.
    """
    known = [max(0, ends[where] - offset) for where, offset in committed.items() if where in ends]
    return sum(known) if known else None


async def _see_transactions(found: Snapshot, admin: Admin) -> None:
    from oncelog.clock import now_ms

    listed = await _had(found, "transactions", admin.transactions.list(states=[ONGOING]), [])
    ids = [each.transactional_id for each in listed[:MAX_TRANSACTIONS]]
    if len(listed) > MAX_TRANSACTIONS:
        found.missing["transactions"] = f"{len(listed) - MAX_TRANSACTIONS} more are not shown"
    described = (await _had(found, "transactions", admin.transactions.describe(ids), {})) if ids else {}
    now = now_ms()
    for each in listed[:MAX_TRANSACTIONS]:
        known = described.get(each.transactional_id)
        seconds: float | None = None
        partitions: tuple[str, ...] = ()
        if known is not None and known.start_time_ms is not None:
            seconds = max(0, now - known.start_time_ms) / 1000
            partitions = tuple(map(str, sorted(known.partitions)))
        row = TransactionRow(each.transactional_id, each.producer_id, each.coordinator_id, seconds, partitions)
        found.transactions.append(row)
    found.transactions.sort(key=lambda row: -(row.seconds or 0.0))
