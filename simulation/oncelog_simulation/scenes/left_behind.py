"""Scenes in which the oldest records of a log are deleted while one of its replicas is away."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from oncelog import Admin, TopicPartition
from oncelog_simulation.machine import Killed
from oncelog_simulation.scenes.scene import FAST, SMALL_SEGMENTS, Scene, scene
from oncelog_simulation.scenes.stage import Stage

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""


@scene(
    SCENES,
    "left behind",
    "records are deleted while a replica is away, so that its log restarts at the log start of the leader",
    settings={**FAST, "log.flush.start.offset.checkpoint.interval.ms": ("200", "3000")},
    topic={**SMALL_SEGMENTS, "retention.bytes": ("-1", "2000"), "file.delete.delay.ms": ("100",)},
    deletes=True,
)
async def left_behind(stage: Stage) -> bool:
    """The replica is dead, stopped or cut off, and sometimes dies again while it restarts its log. Then it leads."""
    random, place = stage.random, stage.place()
    leader = stage.leader(place)
    away = random.choice(stage.followers(place))
    how = random.choice(("kill", "stop", "power", "cut"))
    stage.world.note("scene", "deletes records while a replica is away", broker=away.name, how=how)
    if how == "cut":
        stage.cut(*stage.around(away, [leader.name]))
        if random.random() < 0.5:
            stage.end_session(away)
    else:
        away.hold()
        if how == "stop":
            with suppress(Killed):
                await away.stop()
        else:
            away.kill() if how == "kill" else away.cut_power()
    await stage.until(lambda: away.number not in stage.state(place).isr, "it leaves the ISR", 8.0)
    await stage.pause(0.1, 0.8)
    replica = stage.replica(leader, place)
    high_watermark = 0 if replica is None else replica.high_watermark
    below = random.choice((high_watermark, random.randint(0, max(high_watermark, 0))))

    async def delete(admin: Admin) -> None:
        await admin.delete_records({TopicPartition(*place): below})

    await stage.admin(delete)
    await stage.pause(0.0, 0.5)
    if random.random() < 0.3:
        away.disk_troubles.writes_left = random.randrange(40)
    stage.world.network.mend_all()
    away.let_start()
    await stage.until_serving(away)
    await stage.until_in_sync(place, away)
    stage.check_logs(place)
    await stage.lead(away, place)
    await stage.pause(0.1, 0.6)
    return below > 0
