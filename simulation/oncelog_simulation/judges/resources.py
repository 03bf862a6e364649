"""Resources of clients are released: when all clients have ended, no broker waits, or keeps anything, for one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from oncelog_simulation.judges.running import Running, running

if TYPE_CHECKING:
    from oncelog_simulation.world import World

SETTLE_SECONDS: Final = 30.0
"""Virtual seconds after which all resources of clients must be released: broken connections are noticed, markers
written."""
LOOK_SECONDS: Final = 0.5


class Resources:
    """Checks when all clients are gone."""

    name = "resources"

    def look(self, world: World) -> Iterable[str]:
        return ()

    def look_closely(self, world: World) -> Iterable[str]:
        return ()

    async def conclude(self, world: World) -> Iterable[str]:
        """The resources that remain, after some time."""
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                while _left(world):
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            return _left(world)
        return ()


def _left(world: World) -> list[str]:
    return [left for broker in running(world) for left in _left_at(broker)]


def _left_at(broker: Running) -> Iterable[str]:
    for partition in broker.hosted():
        if len(partition.guards):
            count = len(partition.guards)
            yield f"broker {broker.number} keeps {count} guards of verification for {partition.log.name}"
        if any(not answer.done() for _, _, _, answer in partition.purgatory.appends):
            yield f"broker {broker.number} keeps waiting appends for {partition.log.name}"
    outstanding = broker.parts.coordinators.transactions.markers_outstanding
    if outstanding:
        yield f"broker {broker.number} has {outstanding} markers to write"
