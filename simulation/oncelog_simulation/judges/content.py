"""The final content of topics, as any read_committed consumer reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from oncelog import Admin, Consumer, KafkaError, TopicPartition
from oncelog.errors import OffsetOutOfRange
from oncelog_simulation.workloads.workload import COMMON
from oncelog_testing.history.events import Place

if TYPE_CHECKING:
    from oncelog_simulation.world import World

LOOK_SECONDS: Final = 0.5

Content = dict[Place, list[tuple[int, bytes, bytes]]]


async def content(world: World, topics: Mapping[str, int]) -> Content:
    """Return offset, key and value of all records that a read_committed consumer reads when no transaction is open.
    `topics`: the number of partitions by topic name. Must be run in a client process. Raises KafkaError.

    If retention deletes records before they are read, the read begins again.
    """
    while True:
        try:
            return await _content_now(world, topics)
        except OffsetOutOfRange:
            await asyncio.sleep(LOOK_SECONDS)


async def _content_now(world: World, topics: Mapping[str, int]) -> Content:
    ends = await _stable_ends(world, topics)
    found: Content = {Place(*partition): [] for partition in ends}
    async with Consumer(
        world.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="none",
        allow_auto_create_topics=False,
        **COMMON,
    ) as consumer:
        partitions = list(ends)
        consumer.assign(partitions)
        for partition, start in (await consumer.beginning_offsets(partitions)).items():
            consumer.seek(partition, start)
        for partition in partitions:
            while await consumer.position(partition) < ends[partition]:
                for source, records in (await consumer.poll(500)).items():
                    found[Place(*source)] += [
                        (record.offset, bytes(record.key or b""), bytes(record.value or b"")) for record in records
                    ]
    return found


async def _stable_ends(world: World, topics: Mapping[str, int]) -> dict[TopicPartition, int]:
    from oncelog.admin import LATEST_TIMESTAMP
    from oncelog_protocol.messages.fetch import IsolationLevel

    latest = {TopicPartition(topic, index): LATEST_TIMESTAMP for topic in topics for index in range(topics[topic])}
    async with Admin(world.bootstrap_servers, **COMMON) as admin:
        while True:
            try:
                stable = await admin.list_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED)
                ends = await admin.list_offsets(latest)
            except KafkaError:
                await asyncio.sleep(LOOK_SECONDS)
                continue
            if all(stable[each].offset == ends[each].offset for each in latest):
                return {partition: end.offset for partition, end in ends.items()}
            await asyncio.sleep(LOOK_SECONDS)
