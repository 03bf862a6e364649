"""A topic whose oldest segments are deleted when it has become too large: newer segments must remain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog import Admin, KafkaError, Producer, TopicPartition
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.workload import COMMON, ClientWorkload, make_topic, pause, producer_options
from oncelog_testing.history.events import Place

if TYPE_CHECKING:
    from oncelog_simulation.world import World

PASSING: Final = "passing"
RECORD_BYTES: Final = 100
"""Minimum size in bytes of a record together with its batch."""
KEPT_RECORDS: Final = 30
CONFIGS: Final = {
    "retention.bytes": str(10 * KEPT_RECORDS * RECORD_BYTES // 8),
    "segment.bytes": "1024",
    "segment.index.bytes": "1024",
    "file.delete.delay.ms": "500",
}
"""The batch of each record has more than RECORD_BYTES bytes, and less than 1.25 times as many."""
LEAST_KEPT: Final = 30
"""The number of last records that `retention.bytes` must never delete."""


class PassingWriter(ClientWorkload):
    """Writes records, and checks that the log start offset never decreases, and never comes too close to the end."""

    def __init__(self, notes: Notes, name: str) -> None:
        super().__init__(notes, name)
        self._number = 0
        self._start = 0

    async def prepare(self, world: World) -> None:
        await make_topic(world, self.notes, PASSING, 1, CONFIGS)
        self.notes.trimmed[Place(PASSING)] = 0
        self.notes.passing.add(Place(PASSING))

    async def live(self, world: World) -> None:
        rng = self.random(world)
        async with (
            Admin(world.bootstrap_servers, **COMMON) as admin,
            Producer(world.bootstrap_servers, **producer_options()) as producer,
        ):
            goes_on = self.counts_down(world)
            while goes_on:
                for _ in range(rng.choice((1, 8))):
                    await self._write(producer)
                await self._look(world, admin)
                self.notes.step(self.name)
                await pause(world, rng.expovariate(1))

    async def _write(self, producer: Producer) -> None:
        self._number += 1
        place, teller = Place(PASSING), f"{self.name}/{self.lives}"
        value = f"{teller}/{self._number}".ljust(RECORD_BYTES - 61, ".").encode()
        send = self.notes.history.send(teller, place, value)
        told = await producer.send_and_wait(PASSING, value, partition=0)
        self.notes.history.acknowledged(send, told.offset)

    async def _look(self, world: World, admin: Admin) -> None:
        from oncelog.admin import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

        partition, place = TopicPartition(PASSING, 0), Place(PASSING)
        try:
            start = (await admin.list_offsets({partition: EARLIEST_TIMESTAMP}))[partition].offset
            end = (await admin.list_offsets({partition: LATEST_TIMESTAMP}))[partition].offset
        except KafkaError:
            return
        if start < self._start:
            self.notes.complain(world, self.name, f"the log began at {self._start}, and begins at {start}")
        if start > 0 and end - start < LEAST_KEPT:
            self.notes.complain(world, self.name, f"the log begins at {start} and ends at {end}: too much is deleted")
        self._start = max(self._start, start)
        self.notes.trimmed[place] = max(self.notes.trimmed[place], start)
