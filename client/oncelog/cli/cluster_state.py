"""The state of a cluster as `oncelog brokers` and `oncelog doctor` read it: brokers, replicas, moves, directories."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from oncelog.admin.log_dirs import LogDirectory
from oncelog.cluster import TopicPartition

if TYPE_CHECKING:
    from oncelog.admin import Admin
    from oncelog.admin.reassignments import Reassignment
    from oncelog.cli.reassignment_plan import Assignment
    from oncelog.cluster import Broker, Partition, Topic
    from oncelog.errors import KafkaError

DIRECTORY_SECONDS: Final = 10.0
"""How long a broker may take to describe its directories, unless it is left out."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What an admin client has read at about one time."""

    brokers: Mapping[int, Broker]
    """The live brokers by id."""
    controller_id: int
    """-1 if unknown."""
    topics: Mapping[str, Topic]
    """All topics, internal ones included."""
    moving: Mapping[TopicPartition, Reassignment]
    """The ongoing reassignments."""
    directories: Mapping[int, Mapping[str, LogDirectory | KafkaError]]
    """Broker -> its data directories; a broker that did not answer is missing."""

    @property
    def partitions(self) -> dict[TopicPartition, Partition]:
        return {
            TopicPartition(name, index): partition
            for name, topic in self.topics.items()
            for index, partition in topic.partitions.items()
        }

    @property
    def assignment(self) -> Assignment:
        """The replicas of each partition once the ongoing reassignments are over."""
        return {
            each: self.moving[each].target if each in self.moving else partition.replicas
            for each, partition in self.partitions.items()
        }

    @property
    def racks(self) -> dict[int, str | None]:
        return {node: broker.rack for node, broker in sorted(self.brokers.items())}

    @property
    def sizes(self) -> dict[TopicPartition, int]:
        """Bytes of the largest replica of each partition; partitions without a known replica are missing."""
        found: dict[TopicPartition, int] = {}
        for directories in self.directories.values():
            for directory in directories.values():
                if isinstance(directory, LogDirectory):
                    for each, replica in directory.replicas.items():
                        found[each] = max(found.get(each, 0), replica.size)
        return found

    @property
    def holders(self) -> set[int]:
        """The brokers with a replica, now or after the ongoing reassignments, whether they live or not."""
        planned = {node for replicas in self.assignment.values() for node in replicas}
        return planned | {node for partition in self.partitions.values() for node in partition.replicas}

    def free_bytes(self, node: int) -> int | None:
        """What a broker may still write, over all its directories; None if it is not known."""
        rooms = [
            directory.usable_bytes
            for directory in self.directories.get(node, {}).values()
            if isinstance(directory, LogDirectory)
        ]
        known = [room for room in rooms if room is not None]
        return sum(known) if known else None

    def replicas_behind(self, node: int) -> int:
        """How many replicas of this broker are not in sync."""
        return sum(node in partition.replicas and node not in partition.isr for partition in self.partitions.values())


async def read_state(admin: Admin) -> ClusterState:
    """Read the state. A broker that does not describe its directories is left out there. Raises KafkaError."""
    cluster = await admin.describe_cluster()
    names = await admin.list_topics(include_internal=True)
    nodes = [broker.node_id for broker in cluster.brokers]
    described = await asyncio.gather(*(_directories(admin, node) for node in nodes))
    return ClusterState(
        {broker.node_id: broker for broker in cluster.brokers},
        cluster.controller_id,
        await admin.describe_topics(names) if names else {},
        await admin.list_partition_reassignments(),
        {node: found for node, found in zip(nodes, described, strict=True) if found is not None},
    )


async def _directories(admin: Admin, node: int) -> Mapping[str, LogDirectory | KafkaError] | None:
    """The data directories of one broker; None if it does not answer: it may have died a moment ago."""
    from oncelog.errors import KafkaError

    try:
        return (await asyncio.wait_for(admin.describe_log_dirs([node]), DIRECTORY_SECONDS))[node]
    except (KafkaError, TimeoutError):
        return None
