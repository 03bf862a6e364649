"""Arguments that name partitions: `TOPIC` for all partitions of a topic, `TOPIC:PARTITION` for one partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import click

from oncelog.cli.options import parsed

if TYPE_CHECKING:
    from oncelog.admin import Admin
    from oncelog.cluster import TopicPartition

Target = tuple[str, int | None]
"""A topic and a partition; a partition of None means all partitions."""


def parse_target(text: str) -> Target:
    """Parse `topic` or `topic:partition`. Raises ValueError."""
    topic, separator, partition = text.rpartition(":")
    if not separator:
        return text, None
    if not topic or not partition.isascii() or not partition.isdigit():
        raise ValueError(f"{text!r} is neither TOPIC nor TOPIC:PARTITION")
    return topic, int(partition)


TARGET: Final = parsed("TOPIC[:PARTITION]", parse_target)


def parse_partition(text: str) -> tuple[str, int]:
    """Parse `topic:partition`. Raises ValueError."""
    topic, partition = parse_target(text)
    if partition is None:
        raise ValueError(f"{text!r} names no partition: TOPIC:PARTITION is needed")
    return topic, partition


PARTITION: Final = parsed("TOPIC:PARTITION", parse_partition)


async def check_brokers(admin: Admin, broker_ids: Iterable[int]) -> None:
    """Raises UsageError if one of the ids is not a broker of the cluster. Commands call this function before they
    send a request to a broker, because a client waits for a missing broker in case that broker is starting.
    """
    wanted = set(broker_ids)
    if not wanted:
        return
    known = {broker.node_id for broker in (await admin.describe_cluster()).brokers}
    if missing := sorted(wanted - known):
        names = ", ".join(map(str, sorted(known)))
        raise click.UsageError(f"unknown broker {', '.join(map(str, missing))}: the brokers are {names}")


async def partitions_of(admin: Admin, targets: Iterable[Target]) -> list[TopicPartition]:
    """Return the partitions that the arguments name, without duplicates. Raises KafkaError for an unknown topic, and
    UsageError for an unknown partition. The function uses an admin client, because an admin client, unlike a producer
    or consumer, does not wait for an unknown topic to appear.
    """
    from oncelog.cluster import TopicPartition

    wanted = list(dict.fromkeys(targets))
    topics = await admin.describe_topics({topic for topic, _ in wanted})
    partitions: list[TopicPartition] = []
    for topic, index in wanted:
        known = sorted(topics[topic].partitions)
        if index is not None and index not in known:
            raise click.UsageError(f"{topic} has the partitions 0 to {len(known) - 1}, not {index}")
        partitions += [TopicPartition(topic, each) for each in (known if index is None else [index])]
    return list(dict.fromkeys(partitions))
