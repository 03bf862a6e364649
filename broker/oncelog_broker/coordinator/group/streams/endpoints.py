"""The partitions that members serve to interactive queries at their endpoints. Pure.

Kafka 4.3's counterpart is EndpointToPartitionsManager.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from oncelog_broker.coordinator.group.streams.configured_topology import ConfiguredTopology, PartitionsOf
from oncelog_broker.coordinator.group.streams.streams_member import StreamsMember
from oncelog_broker.coordinator.group.streams_tasks import CurrentTasks, EpochTasks, Tasks
from oncelog_protocol.messages.streams_group_heartbeat import Endpoint, StreamsGroupHeartbeatResponse

EndpointToPartitions = StreamsGroupHeartbeatResponse.EndpointToPartitions
TopicPartition = EndpointToPartitions.TopicPartition


class _Made(NamedTuple):
    """The cached endpoint entry of one member, as responses contain it, with the values from which it was computed."""

    assigned: CurrentTasks
    endpoint: tuple[str, int]
    configured: ConfiguredTopology
    entry: EndpointToPartitions


class EndpointPartitions:
    """Computes the endpoint entries of members and caches the last entry of each member, since most members do not
    change between heartbeats.
    """

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[str, _Made] = {}

    def of(
        self, members: Iterable[StreamsMember], configured: ConfiguredTopology, partitions_of: PartitionsOf
    ) -> list[EndpointToPartitions]:
        """Return the endpoint entries of all members with an endpoint."""
        entries = []
        for member in members:
            if member.endpoint is None:
                continue
            made = self._made.get(member.member_id)
            same = (member.assigned, member.endpoint)
            if made is None or made.configured is not configured or made[:2] != same:
                entry = _entry(member.endpoint, member.assigned, configured, partitions_of)
                made = self._made[member.member_id] = _Made(member.assigned, member.endpoint, configured, entry)
            entries.append(made.entry)
        return entries

    def forget(self, member_id: str) -> None:
        """Drop the cached endpoint entry of a member that has left the group."""
        self._made.pop(member_id, None)


def _entry(
    endpoint: tuple[str, int], assigned: CurrentTasks, configured: ConfiguredTopology, partitions_of: PartitionsOf
) -> EndpointToPartitions:
    return EndpointToPartitions(
        user_endpoint=Endpoint(host=endpoint[0], port=endpoint[1]),
        active_partitions=_partitions(assigned.active, configured, partitions_of),
        standby_partitions=_partitions(assigned.standby, configured, partitions_of),
    )


def _partitions(
    tasks: Tasks | EpochTasks, configured: ConfiguredTopology, partitions_of: PartitionsOf
) -> list[TopicPartition]:
    """Return the source topic partitions that these tasks read. If a topic has fewer partitions than its subtopology
    has tasks, the last tasks read no partition of this topic."""
    read: Mapping[str, list[int]] = {
        topic: numbers[: bisect_left(numbers, partitions_of(topic) or 0)]
        for subtopology_id in sorted(tasks)
        if subtopology_id in configured.subtopologies
        for numbers in [sorted(tasks[subtopology_id])]
        for topic in configured.subtopologies[subtopology_id].sources
    }
    return [TopicPartition(topic=topic, partitions=numbers) for topic, numbers in read.items() if numbers]
