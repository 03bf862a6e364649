"""Scenes in which a broker dies, or its machine loses its power, in the middle of a chosen step on the disk."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.scenes.scene import FAST, SMALL_SEGMENTS, Scene, scene
from oncelog_simulation.scenes.stage import TRANSACTIONS, Stage

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""
FILES: Final = (
    *(".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".deleted", ".cleaned", ".swap"),
    *("leader-epoch-checkpoint", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"),
    *("log-start-offset-checkpoint", "cleaner-offset-checkpoint", "partition.metadata", ".tmp"),
)
"""Parts of the names of files; a broker dies when it changes such a file."""


@scene(
    SCENES,
    "death at a file",
    "a broker dies while it changes a certain kind of file, and half of the time its machine loses its power then",
    settings={**FAST, "log.cleaner.backoff.ms": ("100",)},
    topic=SMALL_SEGMENTS,
    others=("table-writer", "passing-writer", "payer-1", "member-1"),
)
async def death_at_a_file(stage: Stage) -> bool:
    """The broker opens its logs after that, sometimes dies once more while it opens them, and leads in the end."""
    random, machine = stage.random, stage.random.choice(stage.brokers)
    name = random.choice(FILES)
    if random.random() < 0.5:
        await stage.lead(machine, *stage.places())
    machine.hold()
    machine.disk_troubles.doomed_file = name
    await stage.until(lambda: not machine.is_running, f"{machine.name} changes a file {name}", 4.0)
    stage.world.note("scene", "lets a broker die at a file", broker=machine.name, file=name)
    if random.random() < 0.5:
        machine.cut_power()
    if random.random() < 0.3:
        machine.disk_troubles.writes_left = random.randrange(30)
    machine.let_start()
    await stage.until_serving(machine)
    stage.check_logs(*stage.places(), *stage.places(TRANSACTIONS))
    for place in stage.places():
        await stage.until_in_sync(place, machine)
    await stage.lead(machine, *stage.places())
    await stage.pause(0.1, 0.5)
    return True
