"""Scenes in which a partition is moved to other replicas while these replicas are dead, slow or cut off."""

from __future__ import annotations

import asyncio
from typing import Final

from oncelog import Admin, TopicPartition
from oncelog_simulation.scenes.scene import FAST, SMALL_SEGMENTS, UNSYNCED, Scene, scene
from oncelog_simulation.scenes.stage import Missed, Stage
from oncelog_testing.history.events import Place

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""


async def move(stage: Stage, place: Place, target: list[int] | None) -> bool:
    """Request a reassignment; None cancels the present one."""
    stage.world.note("scene", "moves a partition", partition=str(place), to=target)

    async def ask(admin: Admin) -> None:
        await admin.alter_partition_reassignments({TopicPartition(*place): target})

    return await stage.admin(ask)


async def until_moved(stage: Stage, place: Place, target: list[int]) -> None:
    await stage.until(lambda: set(stage.replicas(place)) == set(target), f"{place} is moved to {target}", 20.0)


@scene(
    SCENES,
    "move to the dead",
    "a partition is moved to replicas that are in sync, but have just lost their power",
    settings={**UNSYNCED, "zookeeper.session.timeout.ms": ("4000", "6000")},
    topic=SMALL_SEGMENTS,
    seconds=20.0,
)
async def move_to_the_dead(stage: Stage) -> bool:
    """The third broker leads, is the controller, and has all records; it must not delete its log before a target
    replica has reported an open log.
    """
    random, place = stage.random, stage.place()
    keeper = stage.controller()
    await stage.lead(keeper, place)
    others = stage.others(keeper)
    dying = others if random.random() < 0.7 else others[:1]
    await stage.pause(0.1, 0.5)
    for machine in dying:
        machine.hold()
        machine.cut_power() if random.random() < 0.8 else machine.kill()
    await stage.pause(0.0, 0.2)
    accepted = await move(stage, place, [each.number for each in dying])
    await stage.pause(0.0, 2.0)
    for machine in dying:
        machine.let_start()
    await stage.until_serving(*dying)
    await stage.pause(0.0, 3.0)
    everybody = [each.number for each in stage.brokers]
    if not await move(stage, place, everybody):
        await asyncio.sleep(3.0)
        await move(stage, place, everybody)
    await until_moved(stage, place, everybody)
    return accepted or True


@scene(
    SCENES,
    "interrupted move",
    "a replica is added while its links are slow, and leaders, targets or the controller die before it is in sync",
    settings=FAST,
    topic=SMALL_SEGMENTS,
    seconds=20.0,
)
async def interrupted_move(stage: Stage) -> bool:
    """The partition first loses a replica, and writes go on. Then the replica is added again."""
    random, place = stage.random, stage.place()
    everybody = [each.number for each in stage.brokers]
    away = random.choice(everybody)
    pair = [number for number in everybody if number != away]
    random.shuffle(pair)
    if not await move(stage, place, pair):
        raise Missed("the move is refused")
    await until_moved(stage, place, pair)
    await stage.pause(0.2, 1.0)
    machine = stage.machine(away)
    stage.slow(stage.around(machine, list(stage.world.brokers)), random.choice((1.0, 100.0, 1000.0)))
    target = random.choice(([away, *pair], [*pair, away], [away, pair[0]], [away]))
    await move(stage, place, target)
    await stage.pause(0.0, 0.6)
    what = random.choice(("leader", "target", "controller", "cancel", "session", "nothing"))
    stage.world.note("scene", "interrupts a move", struck=what)
    if what == "cancel":
        await move(stage, place, None)
    elif what == "session":
        stage.end_session(stage.leader(place))
    elif what != "nothing":
        struck = {"leader": stage.leader(place), "target": machine, "controller": stage.controller()}[what]
        struck.hold()
        struck.kill()
        await stage.pause(0.0, 4.0)
        struck.let_start()
    stage.slow(stage.around(machine, list(stage.world.brokers)), 1.0)
    await stage.until_serving()
    await stage.pause(0.0, 1.0)
    for _ in range(5):
        if await move(stage, place, everybody):
            break
        await asyncio.sleep(1.0)
    await until_moved(stage, place, everybody)
    return True
