"""Brokers: the partitions that they lead and host, the lag of their replicas, the free space of their directories."""

from __future__ import annotations

from dataclasses import dataclass, field

from oncelog.admin import Admin, LogDirectory
from oncelog.cli.top_snapshot import BrokerRow, PartitionRow, broker_rows
from oncelog.cluster import NO_NODE, Topic
from oncelog.errors import KafkaError, PartialFailure, StaleMetadata
from oncelog_console.lookups.missing import Missing

Directories = dict[int, dict[str, LogDirectory | KafkaError]]


@dataclass(frozen=True, slots=True)
class LaggingReplica:
    """A replica that is behind the leader of its partition."""

    topic: str
    partition: int
    broker: int
    offset_lag: int


@dataclass(slots=True)
class BrokersView:
    cluster_id: str | None
    controller_id: int
    brokers: list[BrokerRow]
    directories: Directories
    out_of_sync: list[PartitionRow]
    lagging: list[LaggingReplica]
    topics: int
    partitions: int
    missing: Missing = field(default_factory=dict)

    @property
    def offline(self) -> int:
        return sum(row.leader == NO_NODE for row in self.out_of_sync)


async def look(admin: Admin) -> BrokersView:
    """Return the state of the brokers; raises KafkaError if the cluster cannot be reached."""
    missing: Missing = {}
    cluster = await admin.describe_cluster()
    topics = await all_topics(admin)
    directories = await log_dirs(admin, missing)
    return BrokersView(
        cluster.cluster_id,
        cluster.controller_id,
        broker_rows(cluster, topics.values()),
        directories,
        _out_of_sync(topics),
        _lagging(topics, directories),
        len(topics),
        sum(len(topic.partitions) for topic in topics.values()),
        missing,
    )


async def all_topics(admin: Admin) -> dict[str, Topic]:
    """Return all visible topics, including internal topics. Raises KafkaError, so that a failure does not look like an
    empty list.
    """
    names = await admin.list_topics(include_internal=True)
    if not names:
        return {}
    try:
        return await admin.describe_topics(names)
    except PartialFailure as failure:  # topics that are being deleted cannot be described: show the others
        return dict(failure.results)
    except StaleMetadata:  # the cluster has only one topic, and it is being deleted
        return {}


async def log_dirs(admin: Admin, missing: Missing) -> Directories:
    """Return the directories by broker id and path, of the brokers that respond."""
    try:
        return await admin.describe_log_dirs()
    except PartialFailure as failure:
        missing["sizes"] = failure.message
        return dict(failure.results)
    except KafkaError as error:
        missing["sizes"] = error.message
        return {}


def _out_of_sync(topics: dict[str, Topic]) -> list[PartitionRow]:
    return [
        PartitionRow(topic.name, index, known.leader, known.replicas, known.isr)
        for topic in topics.values()
        for index, known in sorted(topic.partitions.items())
        if known.leader == NO_NODE or set(known.replicas) - set(known.isr)
    ]


def _lagging(topics: dict[str, Topic], directories: Directories) -> list[LaggingReplica]:
    """Return the lagging replicas, the largest lag first. A leader never counts as lagging, whatever it reports about
    itself.
    """
    found = [
        LaggingReplica(where.topic, where.partition, broker, replica.offset_lag)
        for broker, paths in directories.items()
        for directory in paths.values()
        if isinstance(directory, LogDirectory)
        for where, replica in directory.replicas.items()
        if replica.offset_lag > 0 and not replica.is_future
        if (topic := topics.get(where.topic)) is not None
        if (known := topic.partitions.get(where.partition)) is not None and known.leader != broker
    ]
    return sorted(found, key=lambda each: (-each.offset_lag, each.topic, each.partition, each.broker))
