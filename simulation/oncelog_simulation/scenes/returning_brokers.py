"""Scenes in which all machines lose their power, and their brokers return one after the other."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.faults.lost_disks import exchange_disk
from oncelog_simulation.scenes.scene import SMALL_SEGMENTS, SYNCED, Scene, scene
from oncelog_simulation.scenes.stage import Stage

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""


@scene(
    SCENES,
    "returned twice",
    "a broker reports its log ends to an election that waits, loses its disk, and registers again before the election",
    settings=SYNCED,
    topic=SMALL_SEGMENTS,
    seconds=16.0,
)
async def returned_twice(stage: Stage) -> bool:
    """All machines lose their power, so that no partition has a leader until all brokers are back. All records are on
    the disks of the two other brokers.
    """
    random = stage.random
    machines = stage.others()
    for machine in machines:
        machine.hold()
        machine.cut_power()
    early, *late = machines
    if random.random() < 0.5:
        late[0].let_start()
    early.let_start()
    await stage.until_serving(early)
    await stage.pause(0.5, 4.0)
    early.hold()
    exchange_disk(stage.world, early)
    await stage.pause(0.0, 3.0)
    early.let_start()
    await stage.until_serving(early)
    await stage.pause(0.0, 1.0)
    for machine in late:
        machine.let_start()
        await stage.pause(0.0, 1.0)
    await stage.until_serving()
    for place in stage.places():
        await stage.until_led(place)
    return True


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
