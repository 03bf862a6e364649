"""The throttle of `oncelog reassign`: how fast partitions may move, set before they do and taken back when they have.

As kafka-reassign-partitions does it (KIP-73): a rate on each broker that gives or takes, and on each topic the replicas
that it is for. What is in sync is not held up by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from oncelog.admin import Admin
    from oncelog.cluster import TopicPartition

    Moves = Mapping[TopicPartition, tuple[Sequence[int], Sequence[int]]]
    """Who holds each partition now, and who is to."""

RATE_KEYS: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"


async def set_throttle(admin: Admin, moves: Moves, bytes_per_second: int) -> None:
    """Let these moves take so many bytes a second of each broker. Raises KafkaError."""
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
    """Take back the throttle of these topics, and of all brokers that live. Raises KafkaError.

    Without a look at what there is: a broker might not have heard of it yet.
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
