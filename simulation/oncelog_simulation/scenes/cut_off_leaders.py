"""Scenes in which a leader has records that its followers do not have, and comes back when another one leads."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from oncelog_simulation.machine import BrokerMachine, Killed
from oncelog_simulation.scenes.scene import ACTORS, FAST, SMALL_SEGMENTS, Scene, scene
from oncelog_simulation.scenes.stage import Stage

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""


@scene(
    SCENES,
    "cut-off leader",
    "a leader appends records, markers and segments that nobody replicates, another leads, and the first one truncates",
    settings=FAST,
    topic=SMALL_SEGMENTS,
    actors=(*ACTORS, "stable-watcher"),
)
async def cut_off_leader(stage: Stage) -> bool:
    """The followers are cut off one after the other, so that the high watermark stops before the log ends of all
    replicas, and each replica ends at another offset. Then the leader loses its session.
    """
    random, place = stage.random, stage.place()
    leader = stage.leader(place)
    first, second = stage.followers(place)[:2]
    await stage.lead_coordinators(second)
    await stage.pause(0.0, 0.3)
    stage.cut((first.name, leader.name), (leader.name, first.name))
    await stage.pause(0.02, 0.6)
    stage.cut((second.name, leader.name), (leader.name, second.name))
    await stage.pause(0.05, 1.2)
    log = stage.replica(leader, place)
    generation = -1 if log is None else log.log.trimmer.generation
    await _depose(stage, leader, random.choice(("session", "stop", "pause", "kill", "power")))
    await stage.until_led(place, but_by=leader)
    await stage.pause(0.0, 1.0)
    stage.world.network.mend_all()
    leader.let_start()
    leader.resume()
    await stage.until_serving(leader)
    await stage.until_in_sync(place, leader)
    after = stage.replica(leader, place)
    if random.random() < 0.7:
        await stage.lead(leader, place)
        await stage.pause(0.2, 0.8)
    return log is not after or (after is not None and after.log.trimmer.generation > generation)


async def _depose(stage: Stage, leader: BrokerMachine, how: str) -> None:
    """Let the leader lose its session, and perhaps its process. A leader that stops saves the state of its logs."""
    session = stage.session(leader)
    stage.world.note("scene", "deposes a leader", broker=leader.name, how=how)
    if how == "pause":
        leader.pause()
    elif how == "stop":
        leader.hold()
        with suppress(Killed):
            await leader.stop(leaves=False)
        return
    elif how in ("kill", "power"):
        leader.hold()
        leader.kill() if how == "kill" else leader.cut_power()
    stage.cut(*stage.around(leader))
    stage.world.store.end_session(session, "ended by the scene")
