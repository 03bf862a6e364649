"""Scenes in which all machines lose their power, and their brokers return one after the other."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.faults.lost_disks import exchange_disk
from oncelog_simulation.machine import BrokerMachine
from oncelog_simulation.scenes.scene import SMALL_SEGMENTS, SYNCED, Scene, scene
from oncelog_simulation.scenes.stage import Stage

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""


@scene(
    SCENES,
    "returned twice",
    "a broker reports its log ends to an election that waits, loses its disk, and registers again before the election",
    settings={**SYNCED, "zookeeper.session.timeout.ms": ("2000",)},
    topic=SMALL_SEGMENTS,
    seconds=24.0,
)
async def returned_twice(stage: Stage) -> bool:
    """All machines lose their power, and their sessions end before one of them starts, so that all replicas stay in the
    ISR. An election then asks for log ends when each broker has registered again, and waits for a broker that has
    registered and is dead again. All records are on the disks of the two other brokers.
    """
    random = stage.random
    keeper, early, late = stage.others()
    for machine in (keeper, early, late):
        machine.hold()
        machine.cut_power()
    await _until_gone(stage, keeper, early, late)
    keeper.let_start()
    await stage.until_serving(keeper)
    late.let_start()
    await stage.until_serving(late)
    late.hold()
    late.kill() if random.random() < 0.5 else late.cut_power()
    await _until_gone(stage, late)
    early.let_start()
    await stage.until_serving(early)
    await stage.pause(0.5, 2.0)
    early.hold()
    exchange_disk(stage.world, early)
    await stage.pause(0.0, 3.0)
    early.let_start()
    await stage.until_serving(early)
    await stage.pause(0.0, 1.0)
    late.let_start()
    await stage.until_serving()
    for place in stage.places():
        await stage.until_led(place)
    return True


async def _until_gone(stage: Stage, *machines: BrokerMachine) -> None:
    """Wait until the sessions of these dead brokers have ended."""
    await stage.until(lambda: not any(map(stage.is_registered, machines)), "their sessions end")


@scene(
    SCENES,
    "power cuts in turn",
    "the machines lose their power one after the other, and some lose it again while they start",
    settings=SYNCED,
    topic=SMALL_SEGMENTS,
    seconds=16.0,
)
async def power_cuts_in_turn(stage: Stage) -> bool:
    random = stage.random
    for machine in stage.others():
        machine.hold()
        machine.cut_power()
        await stage.pause(0.0, 1.0)
        if random.random() < 0.5:
            machine.let_start()
            await stage.pause(0.0, 2.0)
    for machine in stage.others():
        if random.random() < 0.4:
            machine.hold()
            machine.cut_power()
        machine.let_start()
        await stage.pause(0.0, 1.0)
    await stage.until_serving()
    return True
