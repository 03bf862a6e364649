"""Faults of processes and machines: kills, stops, pauses, power cuts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.payloads import parse_controller
from oncelog_simulation.faults.fault import (
    Fault,
    a_broker,
    a_broker_or_client,
    a_client,
    a_partition,
    all_brokers,
    brokers_of,
    fault,
    keep_down,
    machine_of,
    the_store,
)
from oncelog_simulation.machine import Killed
from oncelog_simulation.plan import Strike
from oncelog_simulation.world import World

CHANGED_SETTINGS: Final = (
    ("log.segment.bytes", ("4000", "1073741824")),
    ("log.flush.interval.messages", ("1", "9223372036854775807")),
    ("log.message.timestamp.type", ("CreateTime", "LogAppendTime")),
    ("replica.fetch.max.bytes", ("300", "10485760")),
)
"""Settings that a rolling restart may change without breaking what the other settings guarantee."""

FAULTS: Final[dict[str, Fault]] = {}
"""The faults of this module, by name."""


@fault(FAULTS, "kill", "kill -9 of a broker", a_broker, (0.0, 8.0))
async def kill(world: World, strike: Strike) -> bool:
    (machine,) = brokers_of(world, strike)
    struck = machine.is_running
    machine.kill()
    await keep_down(machine, strike.seconds)
    return struck


@fault(FAULTS, "kill at a write", "kill -9 of a broker in the middle of a write to its disk", a_broker, (0.0, 5.0))
async def kill_at_a_write(world: World, strike: Strike) -> bool:
    (machine,) = brokers_of(world, strike)
    before = machine.process
    machine.disk_troubles.writes_left = int(strike.strength * 200)
    while machine.disk_troubles.is_doomed:
        await asyncio.sleep(0.1)
    if before is machine.process and machine.is_running:
        return False
    await keep_down(machine, strike.seconds)
    return True


@fault(FAULTS, "kill of all", "kill -9 of all brokers at once", all_brokers, (0.0, 2.0))
async def kill_of_all(world: World, strike: Strike) -> bool:
    """Kill all brokers. Data in files survives, but the last records of a log may be on one replica alone."""
    machines = brokers_of(world, strike)
    struck = any(machine.is_running for machine in machines)
    for machine in machines:
        machine.kill()
    random = world.random("kill of all")
    await asyncio.gather(*(keep_down(machine, strike.seconds * random.random()) for machine in machines))
    return struck


@fault(FAULTS, "kill a leader", "kill -9 of the broker that leads some partition", a_partition, (0.0, 3.0))
async def kill_a_leader(world: World, strike: Strike) -> bool:
    leaders = [
        machine
        for machine in world.brokers.values()
        if machine.broker is not None
        for _ in machine.broker.parts.replication.replicas.led()
    ]
    if not leaders:
        return False
    machine = leaders[int(strike.strength * len(leaders))]
    machine.kill()
    await keep_down(machine, strike.seconds)
    return True


@fault(FAULTS, "kill the controller", "kill -9 of the broker that is the controller", the_store, (0.0, 3.0))
async def kill_the_controller(world: World, strike: Strike) -> bool:
    node = world.store.tree.node(paths.CONTROLLER)
    if node is None:
        return False
    machine = world.brokers[f"broker-{parse_controller(node.data, paths.CONTROLLER).broker_id}"]
    struck = machine.is_running
    machine.kill()
    await keep_down(machine, strike.seconds)
    return struck


@fault(
    FAULTS,
    "rolling restart",
    "all brokers are restarted, one after another, with other settings",
    all_brokers,
    (0.1, 1.0),
)
async def rolling_restart(world: World, strike: Strike) -> bool:
    """Each broker restarts with a controlled shutdown. Meanwhile the settings differ from broker to broker."""
    random = world.random("rolling restart")
    key, values = random.choice(CHANGED_SETTINGS)
    value = random.choice(values)
    struck = False
    for machine in brokers_of(world, strike):
        if machine.broker is None:
            continue
        machine.settings[key] = value
        world.note(machine.name, "is restarted with another setting", key=key, value=value)
        with suppress(Killed):
            await machine.stop()
            if not struck:
                world.count(strike.fault)  # counted now, because the run may end before all brokers are restarted
            struck = True
        while not machine.is_serving:
            await asyncio.sleep(0.1)
        await asyncio.sleep(strike.seconds)
    return False


@fault(FAULTS, "stop", "controlled shutdown of a broker", a_broker, (0.0, 4.0))
async def stop(world: World, strike: Strike) -> bool:
    (machine,) = brokers_of(world, strike)
    if machine.broker is None:
        return False
    machine.hold()
    try:
        with suppress(Killed):
            await machine.stop(leaves=strike.strength < 0.8)
        await asyncio.sleep(strike.seconds)
    finally:
        machine.let_start()
    return True


@fault(FAULTS, "pause", "SIGSTOP of a broker or a client", a_broker_or_client, (0.1, 9.0))
async def pause(world: World, strike: Strike) -> bool:
    machine = machine_of(world, strike)
    if machine is None or not machine.is_running or machine.process is None:
        return False
    process = machine.process
    machine.pause()
    try:
        await asyncio.sleep(strike.seconds)
    finally:
        if machine.process is process:
            machine.resume()
    return True


@fault(FAULTS, "kill a client", "kill -9 of a client", a_client, (0.0, 0.0))
async def kill_a_client(world: World, strike: Strike) -> bool:
    machine = machine_of(world, strike)
    if machine is None or not machine.is_running:
        return False
    machine.kill()
    return True


@fault(FAULTS, "power cut", "a broker's machine loses its power", a_broker, (0.2, 8.0))
async def power_cut(world: World, strike: Strike) -> bool:
    (machine,) = brokers_of(world, strike)
    machine.cut_power()
    await keep_down(machine, strike.seconds)
    return True


@fault(FAULTS, "power cut of all", "all brokers' machines lose their power at once", all_brokers, (0.2, 3.0))
async def power_cut_of_all(world: World, strike: Strike) -> bool:
    machines = brokers_of(world, strike)
    for machine in machines:
        machine.cut_power()
    await asyncio.gather(*(keep_down(machine, strike.seconds) for machine in machines))
    return True
