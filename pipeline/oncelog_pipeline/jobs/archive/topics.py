"""Describes topics for an archive, and creates them again from an archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oncelog import Admin, NewTopic, TopicPartition
from oncelog.admin import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ConfigResource, ResourceType
from oncelog.clock import now_ms
from oncelog.errors import TopicAlreadyExists
from oncelog_pipeline.jobs.archive.manifest import RETENTION, Archived, ArchiveError, check_retention
from oncelog_protocol.messages.describe_configs import ConfigSource
from oncelog_protocol.messages.fetch import IsolationLevel


async def described(bootstrap_servers: str, names: Sequence[str]) -> list[Archived]:
    """Return a description of each topic, including the offset ranges that read_committed consumers can read at this
    moment.
    """
    async with Admin(bootstrap_servers) as admin:
        topics = await admin.describe_topics(names)
        partitions = [TopicPartition(name, index) for name, topic in topics.items() for index in topic.partitions]
        earliest = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
        latest = await admin.list_offsets(
            dict.fromkeys(partitions, LATEST_TIMESTAMP), isolation_level=IsolationLevel.READ_COMMITTED
        )
        configs = await _own_configs(admin, names)
    return [
        Archived(
            name,
            len(topic.partitions),
            configs[name],
            {
                str(index): (earliest[TopicPartition(name, index)].offset, latest[TopicPartition(name, index)].offset)
                for index in sorted(topic.partitions)
            },
        )
        for name, topic in topics.items()
    ]


async def make(bootstrap_servers: str, archived: Archived, name: str, configs: Mapping[str, str]) -> None:
    """Create the topic `name` with as many partitions as the archived topic has. If the topic exists already, it must
    be empty and have the same number of partitions.

    `configs` are the topic configs that the user has given. Raises KafkaError, and ArchiveError if the existing topic
    does not fit or the topic's retention would delete the restored records.
    """
    async with Admin(bootstrap_servers) as admin:
        is_new = True
        try:
            wanted = archived.configs_to_restore(configs)
            await admin.create_topics([NewTopic(name, archived.partitions, configs=wanted)])
        except TopicAlreadyExists:
            is_new = False
            await _check_empty(admin, archived, name)
        try:
            check_retention(archived, await _retention_ms(admin, name), now_ms())
        except ArchiveError:
            if is_new:
                await admin.delete_topics([name])
            raise


async def _check_empty(admin: Admin, archived: Archived, name: str) -> None:
    """Raise ArchiveError if the topic has records or another number of partitions. Also raises KafkaError."""
    partitions = (await admin.describe_topics([name]))[name].partitions
    if len(partitions) != archived.partitions:
        raise ArchiveError(
            f"{name} exists with {len(partitions)} partitions, and the archive has {archived.partitions}: restore"
            " under another name (--as)"
        )
    ends = await admin.list_offsets({TopicPartition(name, index): LATEST_TIMESTAMP for index in partitions})
    if any(end.offset for end in ends.values()):
        raise ArchiveError(f"{name} exists and was written to: delete it, or restore under another name (--as)")


async def _own_configs(admin: Admin, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return for each topic the configs that were set on the topic itself, without defaults."""
    described = await admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
    return {
        resource.name: {
            entry.name: entry.value
            for entry in entries.values()
            if entry.source is ConfigSource.TOPIC_CONFIG and entry.value is not None
        }
        for resource, entries in described.items()
    }


async def _retention_ms(admin: Admin, name: str) -> int:
    """Return the topic's retention.ms; -1 if brokers delete no records by age."""
    resource = ConfigResource(ResourceType.TOPIC, name)
    entries = (await admin.describe_configs([resource], keys=[RETENTION, "cleanup.policy"]))[resource]
    if "delete" not in (entries["cleanup.policy"].value or ""):
        return -1
    return int(entries[RETENTION].value or -1)
