"""Members of a share group (KIP-932), which join and leave, and accept or release the records that they acquire.

A member records each acceptance before it is sent, and again when the leader has confirmed it. The judge `shared`
compares the notes with the content of the topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Final

from oncelog import Admin, KafkaError, ShareConsumer
from oncelog.admin import AlterConfig, ConfigResource
from oncelog_simulation.workloads.notes import PATIENCE_MS, Notes
from oncelog_simulation.workloads.workload import COMMON, ClientWorkload, make_topic, pause
from oncelog_simulation.workloads.writers import LINES, PARTITIONS, SMALL_SEGMENTS
from oncelog_testing.history.events import Place

if TYPE_CHECKING:
    from oncelog_simulation.world import World

SHARE_GROUP: Final = "sharers"
GROUP_CONFIGS: Final = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": "4000",
    "share.delivery.count.limit": "1000",  # with a low limit, records of members that die would be archived
}
POLL_MS: Final = 300
PAUSE_SECONDS: Final = 0.2
"""Virtual seconds between two polls, in which members process their records."""
STAY_SECONDS: Final = (2.0, 10.0)
"""Minimum and maximum virtual seconds after which a member leaves the group, before it joins again."""
SLOW: Final = 0.3
"""Fraction of the polls whose records a member processes slowly; applies only until the faults are over."""
PROCESSING_SECONDS: Final = 2.0
"""Mean virtual seconds of slow processing, during which some locks expire."""
RELEASED: Final = 0.2
"""Fraction of the records that a member releases instead of accepting them; applies only until the faults are over."""


class Sharer(ClientWorkload):
    """A member that accepts most records, and repeatedly leaves the group."""

    async def prepare(self, world: World) -> None:
        await make_topic(world, self.notes, LINES, PARTITIONS, SMALL_SEGMENTS)
        await world.client("operator").run(lambda: _configure(world))

    async def live(self, world: World) -> None:
        rng = self.random(world)
        while True:
            is_calm = world.calm.is_set()
            stay = asyncio.create_task(self._stay(world, rng))
            if is_calm:
                await stay
                return
            calm = asyncio.create_task(world.calm.wait())
            await asyncio.wait([stay, calm], timeout=rng.uniform(*STAY_SECONDS), return_when="FIRST_COMPLETED")
            calm.cancel()
            stay.cancel()
            await asyncio.wait([stay])
            if not stay.cancelled() and (error := stay.exception()) is not None:
                raise error

    async def _stay(self, world: World, rng: Random) -> None:
        async with sharer(world) as consumer:
            while True:
                is_calm = world.calm.is_set()
                await pause(world, PAUSE_SECONDS)
                count = await accept_some(world, self.notes, consumer, None if is_calm else rng)
                if count:
                    self.notes.step(self.name)
                elif is_calm:
                    return


@asynccontextmanager
async def sharer(world: World) -> AsyncIterator[ShareConsumer]:
    """Provide a consumer that is a member of the share group, subscribed to the group's topic. Raises KafkaError."""
    async with ShareConsumer(
        world.bootstrap_servers,
        **COMMON,
        group_id=SHARE_GROUP,
        share_acknowledgement_mode="explicit",
        max_poll_records=20,
        default_api_timeout_ms=PATIENCE_MS,
    ) as consumer:
        consumer.subscribe([LINES])
        yield consumer


async def accept_some(world: World, notes: Notes, consumer: ShareConsumer, rng: Random | None) -> int:
    """Poll once, and accept the records, or release some of them if `rng` draws so. Returns the number of records in
    the poll. Raises KafkaError.

    The leader must refuse an acceptance if it has delivered the record to another member before the acceptance was
    sent. If the other member has already accepted the record, so that the record is below the start offset, the leader
    ignores the late acceptance without an error; such an acceptance does not count as confirmed.
    """
    accepted: list[tuple[Place, int, bytes]] = []
    records = await consumer.poll(POLL_MS)
    if records and rng is not None and rng.random() < SLOW:
        await pause(world, rng.expovariate(1 / PROCESSING_SECONDS))
    for record in records:
        if rng is not None and rng.random() < RELEASED:
            record.release()
            continue
        accepted.append((Place(record.topic, record.partition), record.offset, bytes(record.value or b"")))
        record.accept()
    notes.acceptances.update((place, value) for place, _, value in accepted)
    asked = world.now
    outcomes = await consumer.commit()
    confirmed = {Place(*partition) for partition, error in outcomes.items() if error is None}
    for place, offset, value in accepted:
        if place not in confirmed:
            continue
        holder = notes.holders.get((place, offset))
        if holder is None or holder.member_id == consumer.member_id:
            notes.confirmed[place, value] = notes.confirmed.get((place, value), 0) + 1
        elif holder.since < asked and offset >= notes.share_starts.get(place, 0):
            what = f"accepted offset {offset} of {place} for {consumer.member_id}, which {holder.member_id} has"
            notes.complain(world, SHARE_GROUP, what)
    return len(records)


async def _configure(world: World) -> None:
    """Set the group's configuration. Repeated changes have no further effect."""
    changes = [AlterConfig(key, value) for key, value in GROUP_CONFIGS.items()]
    async with Admin(world.bootstrap_servers, **COMMON) as admin:
        await admin.incremental_alter_configs({ConfigResource.group(SHARE_GROUP): changes})


async def lag(world: World) -> int | None:
    """Return the number of records that the share group has not accepted yet; None if the coordinator does not know it
    now.
    """
    async with Admin(world.bootstrap_servers, **COMMON) as admin:
        try:
            offsets = (await admin.shares.offsets(SHARE_GROUP)).values()
        except KafkaError:
            return None
    lags = [each.lag for each in offsets]
    return None if len(lags) < PARTITIONS or None in lags else sum(each or 0 for each in lags)
