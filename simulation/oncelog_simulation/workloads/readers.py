"""Readers without a group: one kind reads entire topics from the beginning, another repeatedly fetches the end offsets
of partitions.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from oncelog import Admin, Consumer, KafkaError, TopicPartition
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.workload import COMMON, ClientWorkload, long_poll_options, pause
from oncelog_testing.history.events import Place

if TYPE_CHECKING:
    from oncelog_simulation.world import World

POLL_MS: Final = 500
LOOK_SECONDS: Final = 0.7
"""Mean virtual seconds between two requests for the end offsets of all partitions."""


class Reader(ClientWorkload):
    """Reads all judged topics from the beginning after each of its starts, with read_committed or read_uncommitted."""

    def __init__(self, notes: Notes, name: str, *, is_committed: bool) -> None:
        super().__init__(notes, name)
        self._is_committed = is_committed

    async def live(self, world: World) -> None:
        places = [place for place in self.notes.places() if place not in self.notes.trimmed]
        teller = f"{self.name}/{self.lives}"
        readings = {
            place: self.notes.history.reading(teller, place, is_committed=self._is_committed) for place in places
        }
        rng = self.random(world)
        wait_ms = rng.choice((100, 500))
        options: dict[str, Any] = {
            **COMMON,
            **long_poll_options(world, wait_ms),
            "isolation_level": "read_committed" if self._is_committed else "read_uncommitted",
            "max_partition_fetch_bytes": rng.choice((700, 1_048_576)),
        }
        async with Consumer(
            world.bootstrap_servers, auto_offset_reset="none", allow_auto_create_topics=False, **options
        ) as consumer:
            partitions = [TopicPartition(*place) for place in places]
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, 0)
            while True:
                is_calm = world.calm.is_set()
                for where, records in (await consumer.poll(POLL_MS)).items():
                    self.notes.step(self.name)
                    readings[Place(*where)].records += [(each.offset, bytes(each.value or b"")) for each in records]
                await pause(world, rng.random() * 0.4)
                if is_calm and await _has_read_all(consumer, partitions):
                    return


async def _has_read_all(consumer: Consumer, partitions: list[TopicPartition]) -> bool:
    try:
        ends = await consumer.end_offsets(partitions)
    except KafkaError:
        return False
    return all([await consumer.position(partition) >= end for partition, end in ends.items()])


class EndsWatcher(ClientWorkload):
    """Fetches the first offset, the last stable offset and the high watermark of all partitions. From one request to
    the next, none of these offsets may decrease, even after a change of leader (KIP-207).
    """

    async def live(self, world: World) -> None:
        from oncelog.admin import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
        from oncelog_protocol.messages.fetch import IsolationLevel

        rng = self.random(world)
        mean = rng.choice((LOOK_SECONDS / 5, LOOK_SECONDS))
        seen: dict[tuple[str, TopicPartition], int] = {}
        kinds = (
            ("last stable offset", LATEST_TIMESTAMP, IsolationLevel.READ_COMMITTED),
            ("high watermark", LATEST_TIMESTAMP, IsolationLevel.READ_UNCOMMITTED),
            ("log start", EARLIEST_TIMESTAMP, IsolationLevel.READ_UNCOMMITTED),
        )
        async with Admin(world.bootstrap_servers, **COMMON) as admin:
            goes_on = self.counts_down(world)
            while goes_on:
                partitions = [TopicPartition(*place) for place in self.notes.places()]
                try:
                    for kind, timestamp, isolation in kinds:
                        found = await admin.list_offsets(
                            dict.fromkeys(partitions, timestamp), isolation_level=isolation
                        )
                        for partition, told in found.items():
                            self._compare(world, seen, kind, partition, told.offset)
                except KafkaError:
                    await asyncio.sleep(LOOK_SECONDS)
                else:
                    self.notes.step(self.name)
                await pause(world, rng.expovariate(1 / mean))

    def _compare(
        self, world: World, seen: dict[tuple[str, TopicPartition], int], kind: str, place: TopicPartition, offset: int
    ) -> None:
        before = seen.get((kind, place), 0)
        if offset < before:
            self.notes.complain(
                world, self.name, f"{kind} of {place.topic}-{place.partition} back to {offset} after {before}"
            )
        seen[kind, place] = max(before, offset)
