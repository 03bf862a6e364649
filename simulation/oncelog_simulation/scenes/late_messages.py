"""Scenes in which a message arrives when the state that it was sent for is over."""

from __future__ import annotations

import asyncio
from typing import Final

from oncelog_simulation.machine import BrokerMachine
from oncelog_simulation.scenes.scene import FAST, SMALL_SEGMENTS, Scene, scene
from oncelog_simulation.scenes.stage import TOPIC, TRANSACTIONS, Stage

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""
STALL_SECONDS: Final = 0.0003
"""Virtual seconds between two looks for new streams: less than the first response on a stream takes."""


@scene(
    SCENES,
    "late divergence",
    "a follower gets a leader's response of an earlier leader epoch, after it has led itself",
    settings={**FAST, "replica.lag.time.max.ms": ("8000",)},
    topic=SMALL_SEGMENTS,
    actors=("scene-writer-1", "scene-payer-1"),
    seconds=16.0,
)
async def late_divergence(stage: Stage) -> bool:
    """A leader with unreplicated records becomes a follower, and the response that tells it to truncate them is late.
    Meanwhile it leads again, and its records are replicated; then the sender of the late response leads. No client
    writes meanwhile, so that the log still ends where it ended when the response was requested.
    """
    random, place = stage.random, stage.place()
    ahead = stage.leader(place)
    behind, third = stage.followers(place)[:2]
    topics = (TOPIC, TRANSACTIONS, "__consumer_offsets")
    await stage.lead(third, *(each for topic in topics for each in stage.places(topic) if each != place))
    stage.cut((behind.name, ahead.name), (third.name, ahead.name))
    await stage.pause(0.1, 0.6)
    clients = [client for client in stage.world.clients if client.startswith("scene-")]
    silent = [(client, broker) for client in clients for broker in stage.world.brokers]
    stage.cut(*silent)
    await stage.pause(0.05, 0.2)
    for follower in (behind, third):
        stage.stall(ahead, follower.name, stage.world.now + 0.5, only_responses=True)
    stage.mend((behind.name, ahead.name), (third.name, ahead.name))
    until = stage.world.now + random.uniform(1.5, 4.0)
    stalling = asyncio.create_task(_stall_responses(stage, behind, ahead, until))
    try:
        await stage.lead(behind, place, seconds=3.0)
        await stage.pause(0.02, 0.3)
    finally:
        stalling.cancel()
    end = stage.end(ahead, place)
    await stage.lead(ahead, place, seconds=3.0)
    replica = stage.replica(ahead, place)
    await stage.until(lambda: replica is not None and replica.high_watermark >= end, "its records are replicated", 2.0)
    await stage.lead(behind, place, seconds=3.0)
    comes_about = stage.world.now < until and stage.end(ahead, place) == end
    await asyncio.sleep(max(0.0, until - stage.world.now))
    await stage.pause(0.0, 0.5)
    stage.mend(*silent)
    return comes_about


async def _stall_responses(stage: Stage, source: BrokerMachine, target: BrokerMachine, until: float) -> None:
    """Delay each response of the broker `source` to the broker `target` until the time `until`. Look for new streams
    between the two again and again, because their responses must be delayed, too. Ends when the task is cancelled.
    """
    while True:
        stage.stall(source, target.name, until, only_responses=True)
        await asyncio.sleep(STALL_SECONDS)


@scene(
    SCENES,
    "older image",
    "a leader gets the response to its ISR change before an older state arrives from a store server that lags",
    settings={**FAST, "replica.lag.time.max.ms": ("800",), "replica.fetch.wait.max.ms": ("100",)},
    topic=SMALL_SEGMENTS,
    seconds=14.0,
)
async def older_image(stage: Stage) -> bool:
    """A follower leaves the ISR and joins it again, while the leader's server of the store is seconds behind. Then the
    follower is slow.
    """
    random, place = stage.random, stage.place()
    controller = stage.controller()
    leader = stage.leader(place)
    if controller is leader:
        await stage.lead(stage.others(leader)[0], place)
        leader = stage.leader(place)
    follower = random.choice(stage.followers(place))
    server = stage.store_server(leader)
    server.lag = random.uniform(1.0, 3.0)
    stage.cut((follower.name, leader.name))
    await stage.until(lambda: follower.number not in stage.state(place).isr, "it leaves the ISR", 6.0)
    stage.mend((follower.name, leader.name))
    await stage.until_in_sync(place, follower, seconds=6.0)
    stage.slow(stage.around(follower, [leader.name]), random.choice((1.0, 50.0, 300.0)))
    await stage.pause(0.5, 3.5)
    stage.slow(stage.around(follower, [leader.name]), 1.0)
    server.lag = 0.0
    return True


@scene(
    SCENES,
    "former life",
    "a follower that has restarted lags, and Fetch requests of its former process arrive",
    settings=FAST,
    topic=SMALL_SEGMENTS,
    workloads=("late-peer-1",),
    seconds=12.0,
)
async def former_life(stage: Stage) -> bool:
    """A follower with slow links has restarted. The workload `late-peer-1` sends Fetch requests that the follower could
    have sent before its restart.
    """
    random, place = stage.random, stage.place()
    leader = stage.leader(place)
    follower = random.choice(stage.followers(place))
    if random.random() < 0.5:
        follower.hold()
        follower.kill() if random.random() < 0.5 else follower.cut_power()
        await stage.pause(0.0, 1.0)
        follower.let_start()
        await stage.until_serving(follower)
    await stage.until_in_sync(place, follower)
    stage.slow(stage.around(follower, [leader.name]), random.choice((30.0, 100.0, 400.0)))
    await stage.pause(1.0, 3.0)
    return True


@scene(
    SCENES,
    "stopping follower",
    "a follower leaves the ISR because it stops, and the controller changes before it has stopped",
    settings={**FAST, "replica.lag.time.max.ms": ("1500",)},
    topic=SMALL_SEGMENTS,
)
async def stopping_follower(stage: Stage) -> bool:
    random, place = stage.random, stage.place()
    leader = stage.leader(place)
    follower = random.choice(stage.followers(place))
    how = random.choice(("power", "pause", "stop", "kill"))
    stage.world.note("scene", "lets a follower leave the ISR", broker=follower.name, how=how)
    if how == "pause":
        follower.pause()
    else:
        follower.hold()
        if how == "stop":
            await follower.stop()
        elif how == "kill":
            follower.kill()
        else:
            follower.cut_power()
    await stage.until(lambda: follower.number not in stage.state(place).isr, "it leaves the ISR", 8.0)
    controller = stage.controller()
    if controller not in (leader, follower) or random.random() < 0.3:
        stage.end_session(controller)
    follower.resume()
    follower.let_start()
    stage.slow(stage.around(follower, [leader.name]), random.choice((1.0, 100.0)))
    await stage.pause(0.0, 2.0)
    stage.slow(stage.around(follower, [leader.name]), 1.0)
    await stage.until_in_sync(place, follower)
    return True


@scene(
    SCENES,
    "stopping leader",
    "a leader that stops has resigned, and then the ISR changes in its leader epoch",
    settings=FAST,
    topic=SMALL_SEGMENTS,
    seconds=8.0,
)
async def stopping_leader(stage: Stage) -> bool:
    """A follower leaves the ISR, because it stops, too, after the leader has resigned. The leader does not announce its
    stop, so the metadata still names it, in the same leader epoch.
    """
    random, place = stage.random, stage.place()
    leader = stage.leader(place)
    if leader is stage.controller():
        await stage.lead(stage.others(leader)[0], place)
        leader = stage.leader(place)
    follower = next(each for each in stage.others(leader) if each is not stage.controller())
    broker = leader.broker
    assert broker is not None  # `Stage.leader` returns a running broker
    for machine in (leader, follower):
        machine.hold()
    leader.disk_troubles.slowness = random.choice((20.0, 100.0, 400.0))
    stops = [asyncio.create_task(leader.stop(leaves=False))]
    before, comes_about = stage.state(place), False
    while not stops[0].done():
        if broker.parts.replication.replicas._is_closed and len(stops) == 1:
            stops.append(asyncio.create_task(follower.stop()))
        comes_about = comes_about or (
            stage.state(place).leader == leader.number and stage.state(place).isr != before.isr and len(stops) > 1
        )
        await asyncio.sleep(STALL_SECONDS)
    await asyncio.gather(*stops, return_exceptions=True)
    leader.disk_troubles.slowness = 1.0
    for machine in (leader, follower):
        machine.let_start()
    await stage.until_serving(leader, follower)
    return comes_about
