"""The throttle of `oncelog reassign`, set before partitions move and removed afterwards.

Like kafka-reassign-partitions (KIP-73), the throttle sets a rate on each broker that sends or receives replicas, and a
list of throttled replicas on each topic. In-sync replicas are not throttled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from oncelog.admin import Admin
    from oncelog.cluster import TopicPartition

    Moves = Mapping[TopicPartition, tuple[Sequence[int], Sequence[int]]]
    """Partition -> (present replicas, future replicas)."""

RATE_KEYS: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"


async def set_throttle(admin: Admin, moves: Moves, bytes_per_second: int) -> None:
    """Limit the data of these replica moves to `bytes_per_second` on each broker. Raises KafkaError."""
    from oncelog.admin import AlterConfig, ConfigResource

    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for (topic, index), (current, target) in sorted(moves.items()):
        leaders.setdefault(topic, []).extend(f"{index}:{node}" for node in current)
        followers.setdefault(topic, []).extend(f"{index}:{node}" for node in target if node not in current)
    live = {broker.node_id for broker in (await admin.describe_cluster()).brokers}
    involved = {node for current, target in moves.values() for node in (*current, *target)} & live
    changes = {
        ConfigResource.topic(topic): [
            AlterConfig(LEADER_REPLICAS, ",".join(replicas)),
            AlterConfig(FOLLOWER_REPLICAS, ",".join(followers[topic])),
        ]
        for topic, replicas in leaders.items()
    }
    changes |= {
        ConfigResource.broker(node): [AlterConfig(key, str(bytes_per_second)) for key in RATE_KEYS] for node in involved
    }
    await admin.incremental_alter_configs(changes)


async def clear_throttle(admin: Admin, topics: Iterable[str]) -> None:
    """Remove the throttle from these topics, and from all live brokers. Raises KafkaError. The function does not check
    first whether a throttle exists, because the queried broker might not know a new throttle yet.
    """
    from oncelog.admin import AlterConfig, AlterOperation, ConfigResource

    keys = {ConfigResource.topic(topic): (LEADER_REPLICAS, FOLLOWER_REPLICAS) for topic in topics}
    for broker in (await admin.describe_cluster()).brokers:
        keys[ConfigResource.broker(broker.node_id)] = RATE_KEYS
    await admin.incremental_alter_configs(
        {
            resource: [AlterConfig(name, None, AlterOperation.DELETE) for name in names]
            for resource, names in keys.items()
        }
    )


async def take_throttle_back(admin: Admin, topics: Iterable[str]) -> None:
    """Remove the throttle of these topics, unless some of their partitions are still moving. Raises KafkaError."""
    topics = set(topics)
    if topics and not await admin.list_partition_reassignments():
        await clear_throttle(admin, topics)


async def throttled_topics(admin: Admin, topics: Iterable[str]) -> set[str]:
    """Return the topics that have a throttle, for example because a command was interrupted. Raises KafkaError."""
    from oncelog.admin import ConfigResource

    resources = [ConfigResource.topic(topic) for topic in topics]
    keys = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
    found = await admin.describe_configs(resources, keys=keys) if resources else {}
    return {
        resource.name
        for resource, entries in found.items()
        if any(entries[key].value for key in keys if key in entries)
    }
