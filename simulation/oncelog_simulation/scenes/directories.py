"""Scenes in which a log is moved to another data directory of its broker, and the move is interrupted."""

from __future__ import annotations

from typing import Final

from oncelog import Admin, TopicPartition
from oncelog_simulation.machine import BrokerMachine
from oncelog_simulation.scenes.scene import FAST, SMALL_SEGMENTS, Scene, scene
from oncelog_simulation.scenes.stage import Missed, Stage
from oncelog_testing.history.events import Place

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""


@scene(
    SCENES,
    "moved directory",
    "a log is moved to another data directory, and the broker dies, truncates or loses a disk meanwhile",
    settings=FAST,
    topic={**SMALL_SEGMENTS, "segment.bytes": ("300", "1500", "100000")},
    directories=2,
    seconds=14.0,
)
async def moved_directory(stage: Stage) -> bool:
    random, place = stage.random, stage.place()
    leader = stage.leader(place)
    machine = leader if random.random() < 0.5 else random.choice(stage.followers(place))
    target = _other_directory(stage, machine, place)
    how = random.choice(("nothing", "kill", "write", "power", "disk", "truncate", "elect"))
    stage.world.note("scene", "moves a log to another directory", broker=machine.name, partition=str(place), how=how)
    if how == "truncate" and machine is leader:
        for other in stage.others(machine):
            stage.cut((other.name, machine.name))
        await stage.pause(0.1, 0.6)
    if how == "write":
        machine.disk_troubles.writes_left = random.randrange(40)
    if random.random() < 0.3:
        machine.disk_troubles.slowness = 100.0
    is_moved = await _move(stage, machine, place, target)
    await stage.pause(0.0, 0.1)
    if how == "disk":
        machine.disk_troubles.failed = random.choice(machine.directories)
        await stage.pause(0.1, 2.0)
        machine.disk_troubles.failed = None
    elif how == "elect":
        await stage.lead(stage.others(machine)[0], place)
    elif how == "truncate":
        stage.end_session(machine)
        stage.world.network.mend_all()
    elif how != "nothing":
        machine.kill() if how == "kill" else machine.cut_power() if how == "power" else None
    machine.disk_troubles.slowness = 1.0
    await stage.pause(0.2, 1.0)
    machine.disk_troubles.writes_left = None
    await stage.until_serving()
    await stage.pause(0.2, 1.0)
    stage.check_logs(*stage.places())
    await stage.until_in_sync(place, machine)
    if random.random() < 0.5:
        await stage.lead(machine, place)
    return is_moved


def _other_directory(stage: Stage, machine: BrokerMachine, place: Place) -> str:
    replica = stage.replica(machine, place)
    if replica is None:
        raise Missed("the replica is not open")
    return next(each for each in machine.directories if not replica.log.directory.startswith(each)).rstrip("/")


async def _move(stage: Stage, machine: BrokerMachine, place: Place, target: str) -> bool:
    """Return whether the broker has accepted the request."""

    async def ask(admin: Admin) -> None:
        await admin.alter_replica_log_dirs(machine.number, {TopicPartition(*place): target})

    return await stage.admin(ask)
