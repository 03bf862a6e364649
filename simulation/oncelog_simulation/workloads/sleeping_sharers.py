"""A member of a share group that accepts some records, leaves, and comes back after hours or days.

The acceptances of a share group do not expire: the share coordinator keeps the state of a group without members, also
when segments of its log are deleted. So accepted records are not delivered again, and the others are, however long the
group had no member. A member that was killed or has left holds no locks.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from oncelog import Admin, Producer, ShareConsumer
from oncelog.admin import AlterConfig, ConfigResource
from oncelog.errors import KafkaError
from oncelog_simulation.workloads.notes import PATIENCE_MS, Notes
from oncelog_simulation.workloads.workload import COMMON, ClientWorkload, make_topic, pause, producer_options
from oncelog_testing.history.events import Place

if TYPE_CHECKING:
    from oncelog_simulation.world import World

NAPS: Final = "naps"
"""The topic of this workload, whose records never expire."""
GROUP: Final = "sleeping-sharers"
LOCK_MS: Final = 30_000
GROUP_CONFIGS: Final = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": str(LOCK_MS),
    "share.delivery.count.limit": "1000",
}
POLL_MS: Final = 2_000
MOST_POLLS: Final = 60
"""Polls after which a record that is not delivered counts as lost, multiplied by `Plan.leisure`, because faults last as
many times longer. The locks of a killed member expire before that.
"""
RECORDS: Final = 4
ACCEPTED: Final = 0.6
"""Fraction of the records that a member accepts before it sleeps; it releases the others."""


class SleepingSharer(ClientWorkload):
    """The only member of its group. `_open` has the values of the records that the group must still deliver."""

    def __init__(self, notes: Notes, name: str) -> None:
        super().__init__(notes, name)
        self._number = 0
        self._open: set[bytes] = set()
        self._accepted: set[bytes] = set()
        """The values of the records whose acceptance was confirmed."""

    async def prepare(self, world: World) -> None:
        async def configure() -> None:
            changes = [AlterConfig(key, value) for key, value in GROUP_CONFIGS.items()]
            async with Admin(world.bootstrap_servers, **COMMON) as admin:
                await admin.incremental_alter_configs({ConfigResource.group(GROUP): changes})

        await make_topic(world, self.notes, NAPS, 1)
        await world.client("operator").run(configure)

    async def live(self, world: World) -> None:
        rng = self.random(world)
        goes_on = self.counts_down(world)
        while goes_on:
            try:
                await self._write(world)
                await self._stay(world, rng, ACCEPTED)
                await pause(world, rng.choice((0.5, 1.0, 12.0)) * rng.random())
                await self._stay(world, rng, 1.0)
            except KafkaError as error:
                world.note(self.name, "a case was broken off", error=error.code.name)
            else:
                self.notes.step(self.name)
            await pause(world, rng.expovariate(1))

    async def _write(self, world: World) -> None:
        teller = f"{self.name}/{self.lives}"
        async with Producer(world.bootstrap_servers, **producer_options()) as producer:
            for _ in range(RECORDS):
                self._number += 1
                value = f"{self.name}/{self._number}".encode()
                send = self.notes.history.send(teller, Place(NAPS), value)
                told = await producer.send_and_wait(NAPS, value, partition=0)
                self.notes.history.acknowledged(send, told.offset)
                self._open.add(value)

    async def _stay(self, world: World, rng: Random, share: float) -> None:
        """Join, and poll until each open record was delivered; accept this share of them. Raises KafkaError."""
        async with ShareConsumer(
            world.bootstrap_servers,
            **COMMON,
            group_id=GROUP,
            share_acknowledgement_mode="explicit",
            default_api_timeout_ms=PATIENCE_MS,
        ) as consumer:
            consumer.subscribe([NAPS])
            awaited = set(self._open)
            for _ in range(round(MOST_POLLS * world.plan.leisure)):
                records = await consumer.poll(POLL_MS)
                kept = set[bytes]()
                for record in records:
                    value = bytes(record.value or b"")
                    if value in self._accepted:
                        what = f"{value!r} at offset {record.offset} was accepted, and is delivered again"
                        self.notes.complain(world, self.name, what)
                    if rng.random() < share:
                        record.accept()
                        kept.add(value)
                    else:
                        record.release()
                        awaited.discard(value)
                # From here on the records in `kept` may be accepted, even if this member gets no response.
                self._open -= kept
                outcomes = await consumer.commit() if records else {}
                if any(error is not None for error in outcomes.values()):
                    kept.clear()
                self._accepted |= kept
                awaited -= kept
                if not awaited & self._open:
                    return
            self.notes.complain(world, self.name, f"{sorted(awaited & self._open)} are not delivered")
