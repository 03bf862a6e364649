"""Scenes in which a broker lacks records, and its first start fails before it has told the cluster so."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.faults.lost_disks import exchange_disk
from oncelog_simulation.machine import BrokerMachine
from oncelog_simulation.scenes.scene import SMALL_SEGMENTS, UNSYNCED, Scene, scene
from oncelog_simulation.scenes.stage import Stage

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""
LOOK_SECONDS: Final = 0.0002
"""Virtual seconds between two looks at a start: less than the time from its first file to its registration."""
FIRST_FILE: Final = "meta.properties"
SESSION_FILE: Final = ".oncelog-session"
"""The file in which a start notes that its logs may lack records."""


@scene(
    SCENES,
    "failed first start",
    "all brokers are dead, one has lost records or its disk, and its first start fails before it registers",
    settings={**UNSYNCED, "zookeeper.session.timeout.ms": ("2000",)},
    topic=SMALL_SEGMENTS,
    seconds=24.0,
)
async def failed_first_start(stage: Stage) -> bool:
    """The sessions of all brokers have ended, so that all replicas are in sync in the metadata. The second start must
    not count as sure of its logs, whatever the first start has written. It registers before the other brokers start.
    """
    random, (machine, *others) = stage.random, stage.others()
    has_lost_disk = random.random() < 0.4
    machine.hold()
    if not has_lost_disk:
        machine.cut_power()
        await stage.pause(0.05, 0.2)
    for each in (machine, *others):
        each.hold()
        each.kill()
    if has_lost_disk:
        exchange_disk(stage.world, machine)
    await stage.until(lambda: not any(map(stage.is_registered, stage.brokers)), "their sessions end")
    machine.trouble = ""
    machine.let_start()
    await (_lose_store(stage, machine) if has_lost_disk else _fail_to_note(stage, machine))
    await stage.until_serving(machine)
    await stage.pause(0.5, 2.0)
    for each in others:
        each.let_start()
        await stage.pause(0.0, 0.5)
    await stage.until_serving()
    for place in stage.places():
        await stage.until_led(place)
    return True


async def _lose_store(stage: Stage, machine: BrokerMachine) -> None:
    """Let the start lose the metadata store shortly after it has written its first file. Raises Missed."""
    first_file = machine.directories[0] + FIRST_FILE
    await stage.until(lambda: machine.storage.find(first_file), "the start writes a file", look_seconds=LOOK_SECONDS)
    await stage.pause(0.0, 0.005)
    links = stage.around(machine, stage.store_hosts())
    stage.cut(*links)
    await stage.until(lambda: machine.trouble, "the start fails", 20.0)
    stage.mend(*links)


async def _fail_to_note(stage: Stage, machine: BrokerMachine) -> None:
    """Let the start fail because it cannot note that its logs may lack records. Raises Missed."""
    machine.disk_troubles.failing_file = SESSION_FILE
    await stage.until(lambda: machine.trouble, "the start fails", 20.0)
    machine.disk_troubles.failing_file = ""
