"""Scenes in which all machines lose their power, and their brokers return one after the other."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.faults.lost_disks import exchange_disk
from oncelog_simulation.machine import BrokerMachine
from oncelog_simulation.scenes.scene import NEVER, SMALL_SEGMENTS, SYNCED, Scene, scene
from oncelog_simulation.scenes.stage import Stage

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""
FLUSH_SETTING: Final = "log.flush.interval.messages"


@scene(
    SCENES,
    "returned twice",
    "a broker registers twice before an election that waits: it loses its disk in between, or lost records before",
    settings={**SYNCED, FLUSH_SETTING: ("1", "1", NEVER), "zookeeper.session.timeout.ms": ("2000",)},
    topic=SMALL_SEGMENTS,
    seconds=24.0,
)
async def returned_twice(stage: Stage) -> bool:
    """All brokers die, and their sessions end before one of them starts, so that all replicas stay in the ISR. With
    group commit, the broker that registers twice loses its disk; otherwise it has lost records in a power cut.
    """
    has_group_commit = stage.world.plan.settings[FLUSH_SETTING] == "1"
    await (_loses_disk(stage) if has_group_commit else _loses_power(stage))
    await stage.until_serving()
    for place in stage.places():
        await stage.until_led(place)
    return True


async def _loses_power(stage: Stage) -> None:
    """The two other brokers are killed shortly after the power cut, so that they have all records."""
    early, *others = stage.others()
    early.hold()
    early.cut_power()
    await stage.pause(0.05, 0.2)
    for machine in others:
        machine.hold()
        machine.kill()
    await _until_gone(stage, early, *others)
    early.let_start()
    await stage.until_serving(early)
    await stage.pause(0.0, 0.5)
    early.hold()
    early.kill()
    early.let_start()
    await stage.until_serving(early)
    await stage.pause(0.5, 2.0)
    for machine in others:
        machine.let_start()
        await stage.pause(0.0, 1.0)


async def _loses_disk(stage: Stage) -> None:
    """An election asks for log ends when each broker has registered again, and waits for a broker that has registered
    and is dead again. All records are on the disks of the two other brokers.
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
