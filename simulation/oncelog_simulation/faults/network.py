"""Faults of the network: links that are cut or slow, and streams that break or stall."""

from __future__ import annotations

import asyncio
from typing import Final

from oncelog_simulation.faults.fault import (
    Fault,
    a_broker,
    a_broker_and_its_store,
    a_broker_or_client,
    all_brokers,
    both_ways,
    cut_links,
    fault,
    machine_of,
    two_brokers,
)
from oncelog_simulation.plan import Strike
from oncelog_simulation.world import World

STALL_SECONDS: Final = (0.02, 8.0)
"""Minimum and maximum seconds for which one stream stalls; short stalls are as frequent as long ones."""
STALL_PAUSE_SECONDS: Final = 0.3
"""Maximum seconds between the stalls of two streams."""

FAULTS: Final[dict[str, Fault]] = {}
"""The faults of this module, by name."""


@fault(FAULTS, "partition", "two brokers cannot reach one another", two_brokers, (0.5, 12.0))
async def partition(world: World, strike: Strike) -> bool:
    first, *rest = strike.machines
    return bool(rest) and await cut_links(world, both_ways((first,), rest), strike.seconds)


@fault(FAULTS, "one-way partition", "packets from one broker to another are lost", two_brokers, (0.5, 12.0))
async def one_way_partition(world: World, strike: Strike) -> bool:
    first, *rest = strike.machines
    return bool(rest) and await cut_links(world, [(first, other) for other in rest], strike.seconds)


@fault(FAULTS, "isolation", "a broker reaches no other broker and no client, only the store", a_broker, (0.5, 12.0))
async def isolation(world: World, strike: Strike) -> bool:
    others = [*world.brokers, *world.clients]
    return await cut_links(world, both_ways(strike.machines, others), strike.seconds)


@fault(FAULTS, "isolation from all", "a broker reaches nobody", a_broker, (0.5, 12.0))
async def isolation_from_all(world: World, strike: Strike) -> bool:
    others = [*world.brokers, *world.clients, *(server.host.name for server in world.store.servers)]
    return await cut_links(world, both_ways(strike.machines, others), strike.seconds)


@fault(FAULTS, "no store", "a broker cannot reach the metadata store", a_broker_and_its_store, (0.5, 12.0))
async def no_store(world: World, strike: Strike) -> bool:
    broker, *servers = strike.machines
    return await cut_links(world, both_ways((broker,), servers), strike.seconds)


@fault(
    FAULTS,
    "no answers of the store",
    "packets from the metadata store to a broker are lost",
    a_broker_and_its_store,
    (0.5, 12.0),
)
async def no_answers_of_the_store(world: World, strike: Strike) -> bool:
    broker, *servers = strike.machines
    return await cut_links(world, [(server, broker) for server in servers], strike.seconds)


@fault(FAULTS, "slow links", "all packets of a machine are slow", a_broker_or_client, (1.0, 10.0))
async def slow_links(world: World, strike: Strike) -> bool:
    machine = machine_of(world, strike)
    if machine is None:
        return False
    names = [*world.brokers, *world.clients, *(server.host.name for server in world.store.servers)]
    links = [world.network.link(machine.name, name) for name in names if name != machine.name]
    slowness = 10 ** (1 + 2 * strike.strength)
    world.note(machine.name, "has slow links", slowness=round(slowness))
    for link in links:
        link.slowness = slowness
    try:
        await asyncio.sleep(strike.seconds)
    finally:
        for link in links:
            link.slowness = 1.0
    return True


@fault(FAULTS, "resets", "the streams of a machine are reset", a_broker_or_client, (0.0, 0.0))
async def resets(world: World, strike: Strike) -> bool:
    machine = machine_of(world, strike)
    if machine is None:
        return False
    transports = [each for each in machine.host.transports if world.random("resets").random() < 0.7]
    world.note(machine.name, "has streams reset", count=len(transports))
    for transport in transports:
        transport.reset()
    return bool(transports)


@fault(
    FAULTS,
    "flapping",
    "links between brokers break again and again, for less than a second each",
    all_brokers,
    (1.0, 8.0),
)
async def flapping(world: World, strike: Strike) -> bool:
    random, until = world.random("flapping"), world.now + strike.seconds
    names = [*strike.machines, *(server.host.name for server in world.store.servers)]
    while world.now < until:
        source, target = random.sample(names, 2)
        await cut_links(world, [(source, target)], random.uniform(0.05, 0.8))
        await asyncio.sleep(random.uniform(0.0, 0.4))
    return True


@fault(
    FAULTS,
    "stalled streams",
    "single streams of a machine stall in one direction, and all others go on",
    a_broker_or_client,
    (1.0, 9.0),
)
async def stalled_streams(world: World, strike: Strike) -> bool:
    """A stream that loses packets delivers nothing until TCP has sent them again, while other streams between the same
    machines deliver: requests of one client or broker overtake each other. Data sent before the sender closed a stream
    may arrive later than requests of the sender's next stream.
    """
    machine = machine_of(world, strike)
    if machine is None:
        return False
    random, until, count = world.random("stalled streams"), world.now + strike.seconds, 0
    least, most = STALL_SECONDS
    world.note(machine.name, "has streams that stall", seconds=strike.seconds)
    while world.now < until:
        transports = list(machine.host.transports)
        if transports:
            near = random.choice(transports)
            pipe = (near if random.random() < 0.5 else near.other).pipe
            pipe.stalled_until = min(until, world.now + least * (most / least) ** random.random())
            count += 1
        await asyncio.sleep(random.uniform(0.0, STALL_PAUSE_SECONDS))
    return count > 0
