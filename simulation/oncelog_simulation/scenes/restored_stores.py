"""Scenes in which the metadata store is put back from a backup, so that the logs know later leader epochs."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from oncelog_simulation.faults.lost_disks import is_whole
from oncelog_simulation.scenes.scene import FAST, SMALL_SEGMENTS, Scene, scene
from oncelog_simulation.scenes.stage import Missed, Stage
from oncelog_testing.history.events import Place

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""
TRIES: Final = 4
"""How often an election is requested; the first request may meet brokers that have no connection to the store."""


@scene(
    SCENES,
    "lost elections",
    "the metadata store is put back to a state before several elections, and a partition is led again at once",
    settings=FAST,
    topic=SMALL_SEGMENTS,
    seconds=16.0,
)
async def lost_elections(stage: Stage) -> bool:
    """All replicas are in sync in the backup and when it is put back, so no record may be lost. The next leader would
    get a leader epoch in which another broker has led already.
    """
    random, place, store = stage.random, stage.place(), stage.world.store
    backup, epoch = store.copied(), stage.state(place).leader_epoch
    for _ in range(random.choice((2, 3, 4))):
        await stage.lead(stage.followers(place)[0], place)
        await stage.pause(0.1, 0.6)
    await stage.until(lambda: is_whole(stage.world), "all replicas are in sync")
    lost = stage.state(place).leader_epoch - epoch
    stage.world.note("scene", "puts the store back", partition=str(place), lost_epochs=lost)
    store.restore(backup, is_new_epoch=True)
    if random.random() < 0.7:
        await _lead_at_once(stage, place)
    await stage.until(lambda: is_whole(stage.world), "all replicas are in sync again")
    await stage.until_led(place)
    await stage.pause(0.2, 1.0)
    return lost > 0


async def _lead_at_once(stage: Stage, place: Place) -> None:
    """Let a follower lead as soon as a request of the administrator succeeds. Raises Missed."""
    machine = stage.followers(place)[0]
    for _ in range(TRIES):
        await stage.pause(0.0, 0.2)
        with suppress(Missed):
            return await stage.lead(machine, place, seconds=2.0)
    raise Missed(f"{machine.name} does not lead {place}")
