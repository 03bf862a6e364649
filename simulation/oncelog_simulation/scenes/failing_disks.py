"""Scenes in which the disks of several brokers fail, one after the other, around elections."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.machine import BrokerMachine
from oncelog_simulation.scenes.scene import SMALL_SEGMENTS, UNSYNCED, Scene, scene
from oncelog_simulation.scenes.stage import Stage

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""


@scene(
    SCENES,
    "failing disks",
    "the disks of two or three brokers fail in turn around an election, and their logs are opened again",
    settings={**UNSYNCED, "log.flush.interval.messages": ("1", "100")},
    topic=SMALL_SEGMENTS,
    seconds=20.0,
)
async def failing_disks(stage: Stage) -> bool:
    """First the disk of the leader fails, or of a follower; one broker may be dead already, while its session lasts.
    The disks work again in the order of their failures, or in any order.
    """
    random, place = stage.random, stage.place()
    leader = stage.leader(place)
    followers = stage.followers(place)
    dead = followers[-1] if random.random() < 0.6 else None
    order = [leader, *(each for each in followers if each is not dead)]
    if random.random() < 0.4:
        random.shuffle(order)
    if dead is not None:
        dead.hold()
        dead.kill() if random.random() < 0.5 else dead.cut_power()
    for machine in order:
        fail(machine)
        stage.world.note("scene", "lets a disk fail", broker=machine.name)
        await stage.pause(0.0, 2.0)
    if random.random() < 0.5:
        order.reverse()
    if dead is not None and random.random() < 0.5:
        dead.let_start()
    for machine in order:
        await stage.pause(0.0, 1.5)
        machine.disk_troubles.failed = None
        stage.world.note("scene", "lets a disk work again", broker=machine.name)
    await stage.pause(0.0, 3.0)
    if dead is not None:
        dead.let_start()
    return any(machine.disk_troubles.struck.get("directory fails", 0) for machine in order)


@scene(
    SCENES,
    "lonely failed log",
    "the log of a follower fails, and its leader does not respond or is replaced when the disk works again",
    settings=UNSYNCED,
    topic=SMALL_SEGMENTS,
    seconds=20.0,
)
async def lonely_failed_log(stage: Stage) -> bool:
    """When the failed log could be opened again, its broker reaches the store, but not the leader, or an election
    without it takes place. In the end its leader dies, so that it may be elected.
    """
    random, place = stage.random, stage.place()
    leader = stage.leader(place)
    victim, other = stage.followers(place)[:2]
    fail(victim)
    await stage.until(lambda: victim.number not in stage.state(place).isr, "it leaves the ISR", 8.0)
    stage.cut(*stage.around(victim, [leader.name]))
    if random.random() < 0.5:
        await stage.lead(other, place)
        stage.cut(*stage.around(victim, [other.name]))
    await stage.pause(0.0, 1.0)
    victim.disk_troubles.failed = None
    await stage.pause(1.0, 4.0)
    now = stage.leader(place)
    if random.random() < 0.5:
        now.hold()
        now.kill() if random.random() < 0.5 else now.cut_power()
    stage.world.network.mend_all()
    await stage.pause(0.5, 3.0)
    now.let_start()
    return True


def fail(machine: BrokerMachine) -> None:
    """Let every call to the broker's first data directory fail."""
    machine.disk_troubles.failed = machine.directories[0]
