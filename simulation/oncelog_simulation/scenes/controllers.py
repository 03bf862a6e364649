"""Scenes in which another broker becomes controller before all brokers have heard of the former controller's
decisions.
"""

from __future__ import annotations

from typing import Final

from oncelog import Admin, TopicPartition
from oncelog_broker.metadata import paths
from oncelog_simulation.scenes.scene import FAST, SMALL_SEGMENTS, Scene, scene
from oncelog_simulation.scenes.stage import Missed, Stage
from oncelog_testing.history.events import Place

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""
LEAVE_SECONDS: Final = 8.0
"""Virtual seconds in which a follower that lags must leave the ISR although the store was put back."""


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


@scene(
    SCENES,
    "lost store writes",
    "the metadata store is put back to a state before a leader's last ISR changes, and then a follower lags",
    settings={**FAST, "replica.lag.time.max.ms": ("800",)},
    topic=SMALL_SEGMENTS,
    seconds=16.0,
)
async def lost_store_writes(stage: Stage) -> bool:
    """The follower has left the ISR and joined it again, so the leader knows a newer version of the state than the
    store, with the same content. The controller must nevertheless let the follower leave the ISR when it lags again.
    """
    place, store = stage.place(), stage.world.store
    leader = stage.leader(place)
    controller = stage.controller()  # if it were the follower, the cut link would keep its responses from the leader
    follower = next(each for each in stage.others(leader) if each is not controller)
    backup, before = store.copied(), _roles(stage)
    stage.cut((follower.name, leader.name))
    await stage.until(lambda: follower.number not in stage.state(place).isr, "it leaves the ISR", 6.0)
    stage.mend((follower.name, leader.name))
    await stage.until(lambda: _roles(stage) == before, "all states are as before", 6.0)
    stage.world.note("scene", "puts the store back")
    store.restore(backup, is_new_epoch=True)
    await stage.pause(0.5, 2.0)
    stage.cut((follower.name, leader.name))
    try:
        await stage.until(lambda: follower.number not in stage.state(place).isr, "it leaves the ISR", LEAVE_SECONDS)
    except Missed:
        if stage.state(place).leader == leader.number and stage.controller().is_serving:
            what = f"{follower.name} lags behind the leader of {place} and stays in the ISR"
            stage.notes.complain(stage.world, "scene", what)
        raise
    stage.mend((follower.name, leader.name))
    return True


def _roles(stage: Stage) -> dict[Place, tuple[int, int, frozenset[int]]]:
    """Return leader, leader epoch and ISR of all partitions according to the metadata store."""
    places = [place for topic in stage.world.store.tree.children(paths.TOPICS) for place in stage.places(topic)]
    states = {place: stage.state(place) for place in sorted(places)}
    return {place: (state.leader, state.leader_epoch, frozenset(state.isr)) for place, state in states.items()}
