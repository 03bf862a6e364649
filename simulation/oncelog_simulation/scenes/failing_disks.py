"""Scenes in which the disks of several brokers fail, one after the other, around elections."""

from __future__ import annotations

import asyncio
from typing import Final

from oncelog_simulation.faults.lost_disks import exchange_disk
from oncelog_simulation.machine import BrokerMachine
from oncelog_simulation.scenes.scene import SMALL_SEGMENTS, UNSYNCED, Scene, scene
from oncelog_simulation.scenes.stage import Stage
from oncelog_testing.history.events import Place

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""
MOST_EPOCHS: Final = 12
"""Limit on the leader epochs of a partition from the first failure until all replicas are in sync again."""
LOOK_SECONDS: Final = 0.0003
"""Virtual seconds between two looks whether a follower has caught up: less than its next Fetch takes."""
ON_ITS_WAY_SECONDS: Final = 0.005
"""Virtual seconds within which each packet that is on its way arrives."""


@scene(
    SCENES,
    "failing disks",
    "the disks of two or three brokers fail in turn around an election, and their logs are opened again",
    settings={**UNSYNCED, "log.flush.interval.messages": ("1", "100")},
    topic=SMALL_SEGMENTS,
    seconds=26.0,
)
async def failing_disks(stage: Stage) -> bool:
    """First the disk of the leader fails, or of a follower; one broker may be dead already, while its session lasts.
    The disks work again in the order of their failures, or in any order. Elections must wait for an open log: a
    broker whose log has failed gives the partition up at once, and could be elected again without end.
    """
    random, place = stage.random, stage.place()
    epochs = {each: stage.state(each).leader_epoch for each in stage.places()}
    leader = stage.leader(place)
    followers = stage.followers(place)
    dead = followers[-1] if random.random() < 0.6 else None
    order = [leader, *(each for each in followers if each is not dead)]
    if random.random() < 0.4:
        random.shuffle(order)
    if dead is not None:
        dead.hold()
        dead.kill() if random.random() < 0.5 else dead.cut_power()
    for machine in order:
        fail(machine)
        stage.world.note("scene", "lets a disk fail", broker=machine.name)
        await stage.pause(0.0, 2.0)
    if random.random() < 0.5:
        order.reverse()
    if dead is not None and random.random() < 0.5:
        dead.let_start()
    for machine in order:
        await stage.pause(0.0, 1.5)
        machine.disk_troubles.failed = None
        stage.world.note("scene", "lets a disk work again", broker=machine.name)
    await stage.pause(0.0, 3.0)
    if dead is not None:
        dead.let_start()
    await stage.until_whole()
    for each, epoch in epochs.items():
        elections = stage.state(each).leader_epoch - epoch
        stage.world.note("scene", "counts leader epochs", partition=str(each), number=elections)
        if elections > MOST_EPOCHS:
            stage.notes.complain(stage.world, "scene", f"{each} has had {elections} leader epochs while disks failed")
    return any(machine.disk_troubles.struck.get("directory fails", 0) for machine in order)


@scene(
    SCENES,
    "lonely failed log",
    "the log of a follower fails, and its leader does not respond or is replaced when the disk works again",
    settings={**UNSYNCED, "zookeeper.session.timeout.ms": ("6000",)},
    topic=SMALL_SEGMENTS,
    seconds=24.0,
)
async def lonely_failed_log(stage: Stage) -> bool:
    """When the failed log could be opened again, its broker reaches the controller, but not the leader, or a Fetch that
    it sent before the failure arrives.
    """
    random, place, controller = stage.random, stage.place(), stage.controller()
    if stage.leader(place) is controller:
        await stage.lead(stage.others(controller)[0], place)
    leader = stage.leader(place)
    victim = stage.followers(place)[0]
    how = random.choice((_replaced, _late_fetch, _exchanged))
    stage.world.note("scene", "lets the log of a follower fail", broker=victim.name, how=how.__name__)
    await how(stage, place, leader, victim)
    return True


async def _replaced(stage: Stage, place: Place, leader: BrokerMachine, victim: BrokerMachine) -> None:
    """The leader does not respond, or is replaced. In the end it dies, so that the victim may be elected."""
    random, (other,) = stage.random, stage.others(leader, victim)
    await _until_failed(stage, place, victim)
    stage.cut(*stage.around(victim, [leader.name]))
    if random.random() < 0.5:
        await stage.lead(other, place)
        stage.cut(*stage.around(victim, [other.name]))
    await stage.pause(0.0, 1.0)
    victim.disk_troubles.failed = None
    await stage.pause(1.0, 4.0)
    now = stage.leader(place)
    if random.random() < 0.5:
        now.hold()
        now.kill() if random.random() < 0.5 else now.cut_power()
    stage.world.network.mend_all()
    await stage.pause(0.5, 3.0)
    now.let_start()


async def _late_fetch(stage: Stage, place: Place, leader: BrokerMachine, victim: BrokerMachine) -> None:
    """The victim has left the ISR, and has just caught up when its disk fails. The Fetch that tells the leader so
    arrives when the log is open again with fewer records. No client writes meanwhile, so that a leader that counts this
    Fetch lets the victim join the ISR.
    """
    random, link = stage.random, (victim.name, leader.name)
    stage.cut(link)
    await stage.until(lambda: victim.number not in stage.state(place).isr, "it leaves the ISR", 8.0)
    clients = [client for client in stage.world.clients if client.startswith("scene-")]
    silent = [(client, broker) for client in clients for broker in stage.world.brokers]
    stage.cut(*silent)
    await stage.pause(0.3, 0.5)
    stage.mend(link)
    await stage.until(
        lambda: stage.end(victim, place) == stage.end(leader, place), "it catches up", 4.0, look_seconds=LOOK_SECONDS
    )
    stage.cut(link)
    fail(victim)
    await asyncio.sleep(ON_ITS_WAY_SECONDS)
    until = stage.world.now + random.uniform(6.0, 8.0)
    stage.stall(victim, leader.name, until)
    stage.mend(link)
    await stage.until(lambda: _has_failed(stage, victim, place), "its log is offline", 4.0)
    victim.disk_troubles.failed = None
    await asyncio.sleep(max(0.0, until - stage.world.now))
    await stage.pause(0.2, 1.0)
    stage.mend(*silent)


def _has_failed(stage: Stage, machine: BrokerMachine, place: Place) -> bool:
    replica = stage.replica(machine, place)
    return replica is not None and replica.log.is_offline


async def _exchanged(stage: Stage, place: Place, leader: BrokerMachine, victim: BrokerMachine) -> None:
    """The logs of both followers fail, and then the only replica in sync loses its disk. Its session still lasts when
    the disks of the followers work again, so that it is the leader in the metadata.
    """
    (other,) = stage.others(leader, victim)
    for machine in (victim, other):
        await stage.pause(0.1, 1.5)
        await _until_failed(stage, place, machine)
    leader.hold()
    exchange_disk(stage.world, leader)
    for machine in (victim, other):
        machine.disk_troubles.failed = None
    await stage.pause(3.0, 5.0)
    leader.let_start()


async def _until_failed(stage: Stage, place: Place, machine: BrokerMachine) -> None:
    """Let the disk of a follower fail, and wait until it has left the ISR."""
    fail(machine)
    await stage.until(lambda: machine.number not in stage.state(place).isr, "it leaves the ISR", 8.0)


def fail(machine: BrokerMachine) -> None:
    """Let every call to the broker's first data directory fail."""
    machine.disk_troubles.failed = machine.directories[0]
