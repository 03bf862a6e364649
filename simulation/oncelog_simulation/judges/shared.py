"""A share group loses no record, and no record is accepted twice.

When all workloads have ended, a last group member accepts the remaining records until the group's lag is 0. Then:

- Each record of the topic was accepted by some member. (The delivery limit is so high that no record is archived.)
- At most one member got a confirmation that it has accepted a record, because no member gets the record after the
  confirmation.

A power cut of all in-sync replicas may destroy records or the state of the group; this judge then checks nothing. If
the only in-sync replica of a partition is damaged, the group need not accept all records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from oncelog import KafkaError
from oncelog.errors import ConnectionFailed, CorruptRecords
from oncelog_simulation.judges.committed import Committed
from oncelog_simulation.judges.content import Content, content
from oncelog_simulation.judges.damage import has_only_damaged
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.sharers import accept_some, lag, sharer
from oncelog_simulation.workloads.writers import LINES, PARTITIONS

if TYPE_CHECKING:
    from oncelog_simulation.world import World

SETTLE_SECONDS: Final = 90.0
"""Virtual seconds in which the last member must have accepted all remaining records."""
BIT_ROT: Final = "bit rot"
"""The name of the fault that damages synced records."""
RETRY_SECONDS: Final = 1.0
"""Virtual seconds until the last member reads again after a damaged batch."""
WORKLOAD: Final = "sharer"
"""A run is judged only if its plan has a workload whose name begins with this prefix."""


class Shared:
    """Judges the notes of the share group's members."""

    name = "shared"

    def __init__(self, notes: Notes, committed: Committed) -> None:
        self._notes = notes
        self._committed = committed

    def look_closely(self, world: World) -> Iterable[str]:
        return ()

    async def conclude(self, world: World) -> Iterable[str]:
        """Return all violations."""
        found: Content = {}

        async def read() -> None:
            while True:
                try:
                    await self._accept_the_rest(world)
                    found.update(await content(world, {LINES: PARTITIONS}))
                    return
                except (ConnectionFailed, CorruptRecords):
                    # The operator replaces the damaged disk later, or has just restarted all brokers.
                    await asyncio.sleep(RETRY_SECONDS)

        limit = SETTLE_SECONDS * world.plan.leisure
        try:
            async with asyncio.timeout(limit):
                await world.client("last-sharer").run(read)
        except (TimeoutError, KafkaError) as error:
            if self._committed.excused or has_only_damaged(world):
                return ()
            return [f"{limit:g} s after the calm the share group has not accepted all records: {error!r}"]
        # A member rejects records of a damaged batch, so the group passes over them, as in Kafka (KIP-932).
        rejects_records = world.struck.get(BIT_ROT, 0) > 0
        return () if self._committed.excused else list(self._violations(found, may_pass_over=rejects_records))

    async def _accept_the_rest(self, world: World) -> None:
        self._notes.holders.clear()  # the last member needs no record of who has acquired which records
        async with sharer(world) as consumer:
            while await lag(world) != 0:
                await accept_some(world, self._notes, consumer, None)

    def _violations(self, found: Content, *, may_pass_over: bool = False) -> Iterator[str]:
        for place, records in found.items():
            for offset, _, value in records:
                if not may_pass_over and (place, value) not in self._notes.acceptances:
                    yield f"{place}: the share group has passed over {value!r} at offset {offset}"
        for (place, value), count in self._notes.confirmed.items():
            if count > 1:
                yield f"{place}: {count} acceptances of {value!r} by members of the share group were confirmed"
