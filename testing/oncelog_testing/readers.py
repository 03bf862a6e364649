"""Reads the final content of topics with a read_committed consumer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Final

from oncelog_testing.history.events import Place
from oncelog_testing.topics import run

__tracebackhide__ = True  # hides this module in the traceback of a failed test

STABLE_SECONDS: Final = 60.0
"""Default limit in seconds on the wait until all transactions have ended, because markers may be in flight, or a
coordinator may be starting.
"""
POLL_SECONDS: Final = 0.05
POLL_MS: Final = 500

Content = dict[Place, list[tuple[int, bytes]]]
"""Maps each partition to the offset and value of each of its records; a null value becomes b""."""


class StillOpen(AssertionError):
    """Raised if a transaction is still open, so that the final content is unknown."""


def content(bootstrap_servers: str, topics: Iterable[str], seconds: float = STABLE_SECONDS) -> Content:
    """Return the content of all partitions of these topics, when no transaction is open in them. Raises StillOpen or
    KafkaError.
    """
    return run(lambda: _content(bootstrap_servers, list(topics), seconds))


async def _content(bootstrap_servers: str, topics: list[str], seconds: float) -> Content:
    from oncelog import Consumer, TopicPartition

    ends = await _stable_ends(bootstrap_servers, topics, seconds)
    found: Content = {Place(*partition): [] for partition in ends}
    async with Consumer(
        bootstrap_servers, isolation_level="read_committed", auto_offset_reset="none", allow_auto_create_topics=False
    ) as consumer:
        partitions = [TopicPartition(*partition) for partition in ends]
        consumer.assign(partitions)
        for partition, start in (await consumer.beginning_offsets(partitions)).items():
            consumer.seek(partition, start)
        for partition in partitions:
            while await consumer.position(partition) < ends[partition]:
                for source, records in (await consumer.poll(POLL_MS)).items():
                    found[Place(*source)] += [(record.offset, bytes(record.value or b"")) for record in records]
    return found


async def _stable_ends(bootstrap_servers: str, topics: list[str], seconds: float) -> dict[tuple[str, int], int]:
    from oncelog import Admin, TopicPartition
    from oncelog.admin import LATEST_TIMESTAMP
    from oncelog_protocol.messages.fetch import IsolationLevel

    deadline = time.monotonic() + seconds
    async with Admin(bootstrap_servers) as admin:
        described = await admin.describe_topics(topics)
        partitions = [TopicPartition(topic, index) for topic in topics for index in described[topic].partitions]
        latest = dict.fromkeys(partitions, LATEST_TIMESTAMP)
        while True:
            stable = await admin.list_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED)
            ends = await admin.list_offsets(latest)
            moving = [each for each in partitions if stable[each].offset != ends[each].offset]
            if not moving:
                return {partition: end.offset for partition, end in ends.items()}
            if time.monotonic() > deadline:
                shown = ", ".join(f"{topic}-{index}" for topic, index in moving[:5])
                raise StillOpen(
                    f"after {seconds:g} s a transaction is still open in {shown} (oncelog explain shows its owner)"
                )
            await asyncio.sleep(POLL_SECONDS)


def committed_offsets(bootstrap_servers: str, group_id: str) -> dict[tuple[str, int], int]:
    """Return the committed offsets of a group. Raises KafkaError."""

    async def ask() -> dict[tuple[str, int], int]:
        from oncelog import Admin

        async with Admin(bootstrap_servers) as admin:
            offsets = await admin.groups.offsets(group_id, require_stable=True)
        return {(where.topic, where.partition): each.offset for where, each in offsets.items()}

    return run(ask)
