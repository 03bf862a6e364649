"""The state of a cluster as `oncelog brokers` and `oncelog doctor` read it: brokers, replicas, moves, directories."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
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
"""Seconds to wait for a broker to describe its data directories; a slower broker's directories are left out of the
state.
"""

HEARSAY_SECONDS: Final = 5.0
"""Maximum seconds for which the state is read again, because brokers may learn late that a reassignment is over."""
HEARSAY_PAUSE_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The state of a cluster as an admin client has read it, all parts at about the same time."""

    brokers: Mapping[int, Broker]
    """The live brokers by id."""
    controller_id: int
    """Broker id of the controller, -1 if unknown."""
    topics: Mapping[str, Topic]
    """All topics, internal ones included."""
    moving: Mapping[TopicPartition, Reassignment]
    """The ongoing reassignments."""
    directories: Mapping[int, Mapping[str, LogDirectory | KafkaError]]
    """Broker -> its data directories; a broker that did not respond is missing."""

    @property
    def partitions(self) -> dict[TopicPartition, Partition]:
        return {
            TopicPartition(name, index): partition
            for name, topic in self.topics.items()
            for index, partition in topic.partitions.items()
        }

    @property
    def assignment(self) -> Assignment:
        """The replicas that each partition has after the ongoing reassignments."""
        return {
            each: self.moving[each].target if each in self.moving else partition.replicas
            for each, partition in self.partitions.items()
        }

    @property
    def racks(self) -> dict[int, str | None]:
        return {node: broker.rack for node, broker in sorted(self.brokers.items())}

    @property
    def sizes(self) -> dict[TopicPartition, int]:
        """Return the bytes of the largest replica of each partition; partitions without a known replica are missing."""
        found: dict[TopicPartition, int] = {}
        for directories in self.directories.values():
            for directory in directories.values():
                if isinstance(directory, LogDirectory):
                    for each, replica in directory.replicas.items():
                        found[each] = max(found.get(each, 0), replica.size)
        return found

    @property
    def holders(self) -> set[int]:
        """Return the brokers, live or not, that hold a replica now or after the ongoing reassignments."""
        planned = {node for replicas in self.assignment.values() for node in replicas}
        return planned | {node for partition in self.partitions.values() for node in partition.replicas}

    def free_bytes(self, node: int) -> int | None:
        """Return the bytes that a broker may still write, summed over its directories; None means unknown."""
        rooms = [
            directory.usable_bytes
            for directory in self.directories.get(node, {}).values()
            if isinstance(directory, LogDirectory)
        ]
        known = [room for room in rooms if room is not None]
        return sum(known) if known else None

    def replicas_behind(self, node: int) -> int:
        """Return the number of replicas of this broker that are not in sync."""
        return sum(node in partition.replicas and node not in partition.isr for partition in self.partitions.values())


async def read_state(admin: Admin, expected: Mapping[TopicPartition, Sequence[int]] | None = None) -> ClusterState:
    """Read the state. A broker that does not describe its directories is missing from `directories`. Raises KafkaError.

    Brokers learn a moment after the controller that a reassignment is over, so a broker may still report the replicas
    of both the old and the new assignment. The state is therefore read again for up to HEARSAY_SECONDS while it looks
    outdated, or while partitions that are not moving differ from the `expected` assignment.
    """
    cluster = await admin.describe_cluster()
    names = await admin.list_topics(include_internal=True)
    nodes = [broker.node_id for broker in cluster.brokers]
    described = await asyncio.gather(*(_directories(admin, node) for node in nodes))
    tries = int(HEARSAY_SECONDS / HEARSAY_PAUSE_SECONDS)
    while True:
        state = ClusterState(
            {broker.node_id: broker for broker in cluster.brokers},
            cluster.controller_id,
            await _topics(admin, names),
            await admin.list_partition_reassignments(),
            {node: found for node, found in zip(nodes, described, strict=True) if found is not None},
        )
        tries -= 1
        if tries <= 0 or not _looks_late(state, expected or {}):
            return state
        await asyncio.sleep(HEARSAY_PAUSE_SECONDS)


def _looks_late(state: ClusterState, expected: Mapping[TopicPartition, Sequence[int]]) -> bool:
    """Return whether a broker may have reported a reassignment that is already over: partitions differ from `expected`,
    or partitions of one topic differ in their number of replicas.
    """
    resting = {each: it.replicas for each, it in state.partitions.items() if each not in state.moving}
    if any(each in resting and tuple(target) != resting[each] for each, target in expected.items()):
        return True
    counts: dict[str, int] = {}
    return any(counts.setdefault(each.topic, len(replicas)) != len(replicas) for each, replicas in resting.items())


async def _topics(admin: Admin, names: list[str]) -> Mapping[str, Topic]:
    """Return the topics; topics that are being deleted are left out. Raises KafkaError."""
    from oncelog.errors import KafkaError, PartialFailure
    from oncelog_protocol.errors import ErrorCode

    if not names:
        return {}
    try:
        return await admin.describe_topics(names)
    except PartialFailure as failure:
        if not all(error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for error in failure.errors.values()):
            raise
        return failure.results
    except KafkaError as error:  # only one topic was requested, and it was deleted after the listing
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return {}


async def _directories(admin: Admin, node: int) -> Mapping[str, LogDirectory | KafkaError] | None:
    """Return the data directories of one broker; None if the broker does not respond."""
    from oncelog.errors import KafkaError

    try:
        return (await asyncio.wait_for(admin.describe_log_dirs([node]), DIRECTORY_SECONDS))[node]
    except (KafkaError, TimeoutError):
        return None
