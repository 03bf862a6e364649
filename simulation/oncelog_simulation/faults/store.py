"""Faults of the metadata store."""

from __future__ import annotations

import asyncio
from typing import Final

from oncelog_broker.metadata import paths
from oncelog_simulation.faults.fault import (
    Fault,
    a_broker,
    a_store_server,
    both_ways,
    brokers_of,
    cut_links,
    fault,
    the_store,
)
from oncelog_simulation.faults.lost_disks import is_whole
from oncelog_simulation.plan import Strike
from oncelog_simulation.world import World

HEARD_SECONDS: Final = 0.002
"""Virtual seconds between two looks at what a server of the store has heard."""
ANSWER_SECONDS: Final = 0.05
"""Maximum virtual seconds from the last packet of a broker to the death of the server."""

FAULTS: Final[dict[str, Fault]] = {}
"""The faults of this module, by name."""


@fault(FAULTS, "session ends", "the session of a broker ends, and it does not know", a_broker, (0.0, 3.0))
async def session_ends(world: World, strike: Strike) -> bool:
    """End the session while the broker cannot reach the store; the broker learns of the end when it reaches the store
    again.
    """
    (machine,) = brokers_of(world, strike)
    if machine.broker is None:
        return False
    session_id = machine.broker.parts.storage.store.session_id
    if session_id not in world.store.sessions:
        return False
    cut = asyncio.create_task(
        cut_links(world, [(server.host.name, machine.name) for server in world.store.servers], strike.seconds)
    )
    await asyncio.sleep(0)
    world.store.end_session(session_id, "ended by a fault")
    await cut
    return True


@fault(
    FAULTS,
    "lost answers of the store",
    "connections to the store break, with requests in flight",
    the_store,
    (0.1, 5.0),
)
async def lost_answers_of_the_store(world: World, strike: Strike) -> bool:
    until = world.now + strike.seconds
    random = world.random("lost answers of the store")
    world.note("store", "loses connections", seconds=strike.seconds)
    while world.now < until:
        world.store.drop_connections(strike.strength)
        await asyncio.sleep(random.random() * 0.5)
    return True


@fault(FAULTS, "store server down", "a server of the metadata store is down", a_store_server, (0.5, 10.0))
async def store_server_down(world: World, strike: Strike) -> bool:
    server = next(each for each in world.store.servers if each.host.name == strike.machines[0])
    world.note(server.host.name, "is down")
    world.store.stop_server(server)
    try:
        await asyncio.sleep(strike.seconds)
    finally:
        world.note(server.host.name, "is up")
        world.store.start_server(server)
    return True


@fault(
    FAULTS,
    "last store server dies",
    "the only server of the metadata store that a broker reaches dies just after it has heard of the broker",
    a_broker,
    (7.0, 10.0),
)
async def last_store_server_dies(world: World, strike: Strike) -> bool:
    """The server has answered the broker, and has not yet told the leader of the ensemble that the broker's session is
    alive, so the session ends earlier than the answer suggests.
    """
    (machine,) = brokers_of(world, strike)
    if machine.broker is None:
        return False
    session_id = machine.broker.parts.storage.store.session_id
    served = [each for each in world.store.servers if any(c.session_id == session_id for c in each.connections)]
    if not served:
        return False
    (last, *_), names = served, [each.host.name for each in world.store.servers if each not in served[:1]]
    cut = asyncio.create_task(cut_links(world, both_ways((machine.name,), names), strike.seconds))
    try:
        until = world.now + strike.seconds / 4
        while session_id in last.heard and world.now < until:
            await asyncio.sleep(HEARD_SECONDS)
        while session_id not in last.heard and world.now < until:
            await asyncio.sleep(HEARD_SECONDS)
        await asyncio.sleep(strike.strength * ANSWER_SECONDS)
        world.note(last.host.name, "is down")
        world.store.stop_server(last)
        await cut
    finally:
        cut.cancel()
        world.note(last.host.name, "is up")
        world.store.start_server(last)
    return True


@fault(FAULTS, "store server behind", "a server of the metadata store shows an older tree", a_store_server, (1.0, 10.0))
async def store_server_behind(world: World, strike: Strike) -> bool:
    server = next(each for each in world.store.servers if each.host.name == strike.machines[0])
    server.lag = 0.05 + strike.strength * 2
    world.note(server.host.name, "lags", seconds=round(server.lag, 3))
    try:
        await asyncio.sleep(strike.seconds)
    finally:
        server.lag = 0.0
    return True


@fault(FAULTS, "store without quorum", "the metadata store is down", the_store, (0.5, 12.0))
async def store_without_quorum(world: World, strike: Strike) -> bool:
    world.note("store", "has no quorum")
    world.store.lose_quorum()
    try:
        await asyncio.sleep(strike.seconds)
    finally:
        world.note("store", "has a quorum again")
        world.store.regain_quorum()
    return True


@fault(FAULTS, "store put back", "the metadata store is put back from a backup", the_store, (0.3, 4.0))
async def store_put_back(world: World, strike: Strike) -> bool:
    """This fault strikes only if leaders and in-sync replicas are the same as in the backup, because otherwise records
    may be lost, as the guide to backups says.
    """
    if not is_whole(world):
        return False
    backup, before = world.store.copied(), _partition_states(world)
    world.note("store", "is copied")
    await asyncio.sleep(strike.seconds)
    if not is_whole(world) or _partition_states(world) != before:
        return False
    world.note("store", "is put back from the copy")
    world.store.restore(backup, is_new_epoch=True)
    return True


def _partition_states(world: World) -> dict[str, bytes]:
    nodes = world.store.tree.nodes()
    return {path: node.data for path, node in nodes if path.startswith(paths.TOPICS)}
