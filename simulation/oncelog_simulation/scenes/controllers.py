"""Scenes in which another broker becomes controller before all brokers have heard of the former controller's
decisions.
"""

from __future__ import annotations

from typing import Final

from oncelog import Admin, TopicPartition
from oncelog_simulation.scenes.scene import FAST, SMALL_SEGMENTS, Scene, scene
from oncelog_simulation.scenes.stage import Stage

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""


@scene(
    SCENES,
    "deposed controller",
    "a controller is paused or cut off while it decides elections, moves and ISRs, and another controller decides",
    settings={**FAST, "zookeeper.session.timeout.ms": ("2000",), "replica.lag.time.max.ms": ("800", "3000")},
    topic=SMALL_SEGMENTS,
    others=("topic-maker", "payer-1", "member-1"),
    seconds=16.0,
)
async def deposed_controller(stage: Stage) -> bool:
    """While the controller is paused or cut off, a leader dies, a follower is cut off, or an administrator asks for a
    move or an election, so that both controllers have something to decide.
    """
    random, place = stage.random, stage.place()
    controller = stage.controller()
    others = stage.others(controller)
    events = random.sample(("leader", "follower", "move", "elect"), 2)
    paused = random.random() < 0.5

    async def request(admin: Admin) -> None:
        order = [each.number for each in stage.others()]
        await admin.alter_partition_reassignments({TopicPartition(*place): order[: random.choice((2, 3, 3))]})
        await admin.elect_leaders(partitions=[TopicPartition(*place)])

    if "leader" in events:
        others[0].hold()
        others[0].kill()
    if "follower" in events:
        stage.cut((others[1].name, others[0].name))
    if "move" in events or "elect" in events:
        await stage.admin(request)
    await stage.pause(0.0, 0.1)
    if paused:
        controller.pause()
        stage.end_session(controller)
        await stage.pause(0.0, 2.0)
        controller.resume()
    else:
        pairs = [(controller.name, host) for host in stage.store_hosts()]
        if random.random() < 0.5:
            pairs = [pair[::-1] for pair in pairs]
        stage.cut(*pairs)
        await stage.pause(0.5, 3.5)
        stage.mend(*pairs)
    stage.world.network.mend_all()
    others[0].let_start()
    await stage.until_serving()
    everybody = [each.number for each in stage.brokers]

    async def restore(admin: Admin) -> None:
        await admin.alter_partition_reassignments({TopicPartition(*place): everybody})

    for _ in range(5):
        if await stage.admin(restore):
            break
        await stage.pause(0.5, 1.0)
    return True
