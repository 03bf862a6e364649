"""Faults of leadership: the leader of a partition changes while messages of its replicas are late."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from oncelog import Admin, KafkaError, TopicPartition
from oncelog_simulation.faults.fault import Fault, a_partition, both_ways, fault
from oncelog_simulation.links import Link
from oncelog_simulation.machine import Killed
from oncelog_simulation.plan import Strike
from oncelog_simulation.world import World

FLAP_SECONDS: Final = 0.3
"""Mean seconds between two elections while the leadership of a partition flaps."""
SLOW_SHARE: Final = 0.7
"""Fraction of the periods between two elections in which the links of one replica are slow."""
SLOWNESS: Final = (10.0, 1000.0)
"""Minimum and maximum factor by which the links of that replica are slower than usual."""
LATE_SHARE: Final = 0.8
"""Fraction of a replica's streams that stall while its messages are late."""
MOVE_SECONDS: Final = (0.05, 1.0)
"""Minimum and maximum seconds before each election while messages are late."""

FAULTS: Final[dict[str, Fault]] = {}
"""The faults of this module, by name."""


@fault(
    FAULTS,
    "leadership flaps",
    "the leadership of a partition moves to and fro, and its replicas are slow by turns",
    a_partition,
    (1.0, 6.0),
)
async def leadership_flaps(world: World, strike: Strike) -> bool:
    """An operator makes one replica after another the preferred leader, and has it elected. During some of the
    elections the links of a replica are slow, so that its fetches arrive some leader epochs later.
    """
    partitions = _partitions(world)
    if not partitions:
        return False
    place, replicas = partitions[int(strike.strength * len(partitions))]
    host = world.client(f"flapping-{place[0]}-{place[1]}")
    if host.is_running:
        return False
    world.note("operator", "moves the leadership of a partition to and fro", partition="-".join(map(str, place)))
    random, until, elections = world.random("leadership flaps"), world.now + strike.seconds, 0
    order, slow = list(replicas), list[Link]()

    async def flap() -> None:
        nonlocal elections, order
        async with Admin(world.bootstrap_servers, request_timeout_ms=2_000) as admin:
            while world.now < until:
                _set_slowness(slow, 1.0)
                slow[:] = _links_of(world, random.choice(replicas)) if random.random() < SLOW_SHARE else []
                _set_slowness(slow, SLOWNESS[0] * (SLOWNESS[1] / SLOWNESS[0]) ** random.random())
                order = [*order[1:], order[0]]
                elections += await _elect(admin, place, order)
                await asyncio.sleep(random.expovariate(1 / FLAP_SECONDS))

    try:
        with suppress(Killed, KafkaError):
            await host.run(flap)
    finally:
        _set_slowness(slow, 1.0)
    return elections > 0


@fault(
    FAULTS,
    "late messages",
    "what a replica of a partition sends arrives seconds later, when the leadership has moved",
    a_partition,
    (1.5, 6.0),
)
async def late_messages(world: World, strike: Strike) -> bool:
    """All streams from one replica to the other brokers stall: requests and responses that the replica has sent arrive
    only when the fault is over. Meanwhile an operator moves the leadership of the partition once or several times. New
    streams do not stall, so that later messages overtake the late ones.
    """
    partitions = _partitions(world)
    partitions = [each for each in partitions if not each[0][0].startswith("__")] or partitions
    if not partitions:
        return False
    place, replicas = partitions[int(strike.strength * len(partitions))]
    host = world.client(f"moving-{place[0]}-{place[1]}")
    if host.is_running:
        return False
    random, until, elections = world.random("late messages"), world.now + strike.seconds, 0
    late, order = world.brokers[f"broker-{random.choice(replicas)}"], list(replicas)
    world.note("operator", "moves the leadership of a partition", partition="-".join(map(str, place)), late=late.name)
    for near in list(late.host.transports):
        if near.other.host.name in world.brokers and random.random() < LATE_SHARE:
            near.pipe.stalled_until = until

    async def move() -> None:
        nonlocal elections, order
        async with Admin(world.bootstrap_servers, request_timeout_ms=2_000) as admin:
            while world.now < until and not elections > random.randint(0, 2):
                await asyncio.sleep(random.uniform(*MOVE_SECONDS))
                order = [*order[1:], order[0]]
                elections += await _elect(admin, place, order)

    with suppress(Killed, KafkaError):
        await host.run(move)
    await asyncio.sleep(max(0.0, until - world.now))
    return elections > 0


async def _elect(admin: Admin, place: tuple[str, int], order: list[int]) -> int:
    """Make the first replica of `order` the preferred leader, and have it elected; returns the number of elections."""
    with suppress(KafkaError):
        await admin.alter_partition_reassignments({TopicPartition(*place): order})
        return len(await admin.elect_leaders(partitions=[TopicPartition(*place)]))
    return 0


def _set_slowness(links: Iterable[Link], slowness: float) -> None:
    for link in links:
        link.slowness = slowness


def _partitions(world: World) -> list[tuple[tuple[str, int], tuple[int, ...]]]:
    """Return all partitions that have records and several replicas, each as (topic, index) and the replicas."""
    found = {
        (partition.topic, partition.index): tuple(sorted({partition.broker_id, *partition.followers}))
        for machine in world.brokers.values()
        if machine.broker is not None
        for partition in machine.broker.parts.replication.replicas.led()
        if partition.followers and partition.log.log_end_offset > 0
    }
    return sorted(found.items())


def _links_of(world: World, broker: int) -> list[Link]:
    """Return the links between this broker and the other brokers, in both directions."""
    name = f"broker-{broker}"
    return [world.network.link(*ends) for ends in both_ways((name,), [each for each in world.brokers if each != name])]
