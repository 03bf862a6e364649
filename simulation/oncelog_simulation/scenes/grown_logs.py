"""Scenes in which a broker opens a log that has only grown since it was closed cleanly, without recovery."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from oncelog_simulation.machine import BrokerMachine, Killed
from oncelog_simulation.scenes.scene import FAST, SMALL_SEGMENTS, Scene, scene
from oncelog_simulation.scenes.stage import TRANSACTIONS, Stage

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""
SELDOM: Final = {
    **FAST,
    "log.flush.scheduler.interval.ms": ("60000",),
    "log.flush.offset.checkpoint.interval.ms": ("60000",),
    "replica.high.watermark.checkpoint.interval.ms": ("60000",),
}
"""Settings with which nothing but the records of a log changes: a log whose recovery point or whose index files have
changed is not opened as a grown log.
"""
COMMITTERS: Final = ("scene-writer-1", "scene-committer-1", "scene-committer-2")
"""Clients that abort no transaction: a log with an aborted transaction is opened with recovery."""
LARGE_SEGMENTS: Final = {"segment.bytes": ("4000", "1048576"), "segment.index.bytes": ("1024",)}


@scene(
    SCENES,
    "grown log",
    "a broker stops cleanly, starts, and dies after some appends: it opens the grown logs without recovery",
    settings=SELDOM,
    topic={**LARGE_SEGMENTS, "index.interval.bytes": ("100", "4096")},
    actors=COMMITTERS,
)
async def grown_log(stage: Stage) -> bool:
    """The broker dies again shortly after each start, sometimes in the middle of a write, so that logs that were opened
    with their growth grow again. In the end it leads, so that its producer states and indexes are used. Clients are cut
    off before the broker stops, because only a log whose high watermark is at its end is opened without recovery.
    """
    random, machine = stage.random, random_broker(stage)
    silent = [(client, broker) for client in stage.world.clients for broker in stage.world.brokers]
    stage.cut(*silent)
    await stage.pause(0.6, 0.9)
    machine.hold()
    with suppress(Killed):
        await machine.stop(leaves=random.random() < 0.8)
    stage.mend(*silent)
    machine.let_start()
    await stage.until_serving(machine)
    for _ in range(random.choice((1, 2, 3))):
        if random.random() < 0.4:
            await stage.lead(machine, stage.place())
        await stage.pause(0.05, 1.0)
        machine.hold()
        if random.random() < 0.3:
            machine.disk_troubles.writes_left = random.randrange(20)
            await stage.until(lambda: not machine.is_running, "it dies at a write", 3.0)
        else:
            machine.kill()
        machine.let_start()
        await stage.until_serving(machine)
        stage.check_logs(*stage.places(), *stage.places(TRANSACTIONS))
    for place in stage.places():
        await stage.until_in_sync(place, machine)
        await stage.lead(machine, place)
    await stage.pause(0.2, 1.0)
    return True


@scene(
    SCENES,
    "closed log",
    "a broker with records that only it has stops cleanly, and opens its closed logs when another broker leads",
    settings=FAST,
    topic=SMALL_SEGMENTS,
    actors=COMMITTERS,
)
async def closed_log(stage: Stage) -> bool:
    """One follower is cut off, so that the high watermark stops before records and markers that the other follower may
    have. The other brokers append different records at the same offsets meanwhile.
    """
    random, place = stage.random, stage.place()
    machine = stage.leader(place)
    first, second = stage.followers(place)[:2]
    await stage.lead_coordinators(second)
    await stage.pause(0.0, 0.3)
    stage.cut(*stage.around(machine, [first.name]))
    await stage.pause(0.05, 0.8)
    if random.random() < 0.5:
        stage.cut(*stage.around(machine, [second.name]))
        await stage.pause(0.05, 0.8)
    end = stage.end(machine, place)
    machine.hold()
    with suppress(Killed):
        await machine.stop(leaves=False)
    stage.world.network.mend_all()
    await stage.until_led(place, but_by=machine)
    if random.random() < 0.6:
        await stage.pause(0.1, 1.0)
    machine.let_start()
    await stage.until_serving(machine)
    await stage.until_in_sync(place, machine)
    await stage.lead(machine, place)
    await stage.pause(0.1, 0.6)
    return end > 0


def random_broker(stage: Stage) -> BrokerMachine:
    return stage.random.choice(stage.brokers)
