"""Finds the partitions to audit, whether each log still has its first record, and whether each log is compacted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oncelog import Admin, TopicPartition
from oncelog.admin import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ConfigResource, ResourceType
from oncelog_pipeline.options.client_settings import common
from oncelog_pipeline.source.offsets import Offsets


@dataclass(frozen=True, slots=True)
class Extent:
    """The first offset and the end offset of each partition when the audit begins. In `compacted` topics, gaps between
    offsets are no fault.
    """

    earliest: Offsets
    latest: Offsets
    compacted: frozenset[str]

    def is_whole(self, topic: str, partition: int) -> bool:
        """Return whether the log of the partition still begins at offset 0."""
        return self.earliest[TopicPartition(topic, partition)] == 0


async def extent(bootstrap_servers: str, topics: Sequence[str], settings: Mapping[str, Any] | None = None) -> Extent:
    """Return the present offset ranges of the topics' partitions; `settings` are keyword arguments of a Consumer.
    Raises PartialFailure,
    UnknownTopicOrPartition and other KafkaErrors.
    """
    async with Admin(bootstrap_servers, **common(settings or {})) as admin:
        described = await admin.describe_topics(topics)
        partitions = [TopicPartition(name, index) for name, topic in described.items() for index in topic.partitions]
        earliest = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
        latest = await admin.list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP))
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        configs = await admin.describe_configs(resources, keys=["cleanup.policy"])
    compacted = {
        resource.name for resource, entries in configs.items() if "compact" in (entries["cleanup.policy"].value or "")
    }
    return Extent(
        {partition: found.offset for partition, found in earliest.items()},
        {partition: found.offset for partition, found in latest.items()},
        frozenset(compacted),
    )
