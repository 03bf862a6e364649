"""Brokers must release all resources of clients that have ended: no broker may wait for such a client, or keep anything
for it.

The numbers of tasks, open files and streams of each broker must return to the level of a broker that has just started,
which has only the files of its logs and the streams to the other brokers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from oncelog_simulation.judges.damage import has_only_damaged
from oncelog_simulation.judges.running import Running, running
from oncelog_simulation.loop import Task

if TYPE_CHECKING:
    from oncelog_simulation.world import World

SETTLE_SECONDS: Final = 30.0
"""Virtual seconds in which all resources of clients must be released; in this time brokers notice broken connections
and write markers.
"""
LOOK_SECONDS: Final = 0.5
MOST_TASKS: Final = 30
"""Limit on the tasks of a broker without clients; a broker that has just started has 24 to 27 tasks."""
FILES_OF_A_SEGMENT: Final = 3
OTHER_FILES: Final = 6
MOST_STREAMS: Final = 20
"""Limit on the streams of a broker without clients: it has streams to and from each other broker."""


class Resources:
    """Checks the resources of all brokers when all clients have ended."""

    name = "resources"

    def look_closely(self, world: World) -> Iterable[str]:
        return ()

    async def conclude(self, world: World) -> Iterable[str]:
        """Yield the resources that remain after SETTLE_SECONDS. None is reported if only a damaged replica of some
        partition is in sync, because markers for this partition then wait until an operator restores it.
        """
        try:
            async with asyncio.timeout(SETTLE_SECONDS * world.plan.leisure):
                while _left(world):
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            return () if has_only_damaged(world) else _left(world)
        return ()


def _left(world: World) -> list[str]:
    tasks = Counter(
        task.process.host for task in asyncio.all_tasks() if isinstance(task, Task) and task.process.is_alive
    )
    return [
        left
        for broker in running(world)
        for left in (*_left_at(broker), *_beyond_level(broker, tasks[broker.machine.name]))
    ]


def _beyond_level(broker: Running, tasks: int) -> Iterable[str]:
    machine = broker.machine
    if tasks > MOST_TASKS:
        yield f"broker {broker.number} has {tasks} tasks without any client, and {MOST_TASKS} would do"
    segments = sum(len(partition.log.segment_base_offsets) for partition in broker.hosted())
    open_files = 0 if machine.disk is None else machine.disk.open_files
    if open_files > segments * FILES_OF_A_SEGMENT + OTHER_FILES:
        yield f"broker {broker.number} has {open_files} open files for {segments} segments"
    # The other end of a stream may have lost its power: the broker notices that only when the stream has been idle for
    # `connections.max.idle.ms`.
    streams = sum(stream.other.process.is_alive for stream in machine.host.transports)
    if streams > MOST_STREAMS:
        yield f"broker {broker.number} has {streams} streams without any client, and {MOST_STREAMS} would do"


def _left_at(broker: Running) -> Iterable[str]:
    for partition in broker.hosted():
        if len(partition.guards):
            count = len(partition.guards)
            yield f"broker {broker.number} keeps {count} guards of verification for {partition.log.name}"
        if any(not answer.done() for _, _, _, answer in partition.purgatory.appends):
            yield f"broker {broker.number} keeps waiting appends for {partition.log.name}"
    running = broker.parts.coordinators.present
    outstanding = 0 if running is None else running.transactions.markers_outstanding
    if outstanding:
        yield f"broker {broker.number} has {outstanding} markers to write"
