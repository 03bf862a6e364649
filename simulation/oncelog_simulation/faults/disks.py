"""Faults of disks that fail for some time and then work again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from oncelog_simulation.faults.fault import Fault, a_broker, brokers_of, fault, two_brokers
from oncelog_simulation.machine import BrokerMachine
from oncelog_simulation.plan import Strike
from oncelog_simulation.world import World

MOST_GAP_SECONDS: Final = 2.0
"""Most seconds between the failures of two disks that fail in turn."""

FAULTS: Final[dict[str, Fault]] = {}
"""The faults of this module, by name."""


async def _trouble(world: World, machine: BrokerMachine, strike: Strike, what: str, end: Callable[[], None]) -> bool:
    """Wait while the disk has a fault; returns whether a call was affected."""
    before = machine.disk_troubles.struck.get(what, 0)
    world.note(machine.name, f"has a trouble of the disk: {what}")
    try:
        await asyncio.sleep(strike.seconds)
    finally:
        end()
        world.note(machine.name, f"has that no more: {what}")
    return machine.disk_troubles.struck.get(what, 0) > before


@fault(FAULTS, "disk full", "the disk of a broker is full", a_broker, (0.5, 8.0))
async def disk_full(world: World, strike: Strike) -> bool:
    (machine,) = brokers_of(world, strike)
    troubles = machine.disk_troubles
    troubles.is_full = True
    return await _trouble(world, machine, strike, "disk full", lambda: setattr(troubles, "is_full", False))


@fault(FAULTS, "EIO on read", "reads of a broker's disk fail", a_broker, (0.2, 5.0))
async def eio_on_read(world: World, strike: Strike) -> bool:
    (machine,) = brokers_of(world, strike)
    troubles = machine.disk_troubles
    troubles.fails_reads = 0.02 + strike.strength / 4
    return await _trouble(world, machine, strike, "EIO on read", lambda: setattr(troubles, "fails_reads", 0.0))


@fault(FAULTS, "EIO on write", "writes to a broker's disk fail", a_broker, (0.2, 5.0))
async def eio_on_write(world: World, strike: Strike) -> bool:
    (machine,) = brokers_of(world, strike)
    troubles = machine.disk_troubles
    troubles.fails_writes = 0.02 + strike.strength / 4
    return await _trouble(world, machine, strike, "EIO on write", lambda: setattr(troubles, "fails_writes", 0.0))


@fault(FAULTS, "EIO on fsync", "fsync of a broker's disk fails", a_broker, (0.2, 5.0))
async def eio_on_fsync(world: World, strike: Strike) -> bool:
    (machine,) = brokers_of(world, strike)
    troubles = machine.disk_troubles
    troubles.fails_syncs = 0.1 + strike.strength * 0.9
    return await _trouble(world, machine, strike, "EIO on fsync", lambda: setattr(troubles, "fails_syncs", 0.0))


@fault(
    FAULTS, "directory fails", "every call to a data directory of a broker fails, and works again", a_broker, (0.5, 8.0)
)
async def directory_fails(world: World, strike: Strike) -> bool:
    (machine,) = brokers_of(world, strike)
    troubles, directories = machine.disk_troubles, machine.directories
    troubles.failed = directories[int(strike.strength * len(directories))]
    return await _trouble(world, machine, strike, "directory fails", lambda: setattr(troubles, "failed", None))


@fault(FAULTS, "slow disk", "everything takes long that a broker's disk does", a_broker, (1.0, 10.0))
async def slow_disk(world: World, strike: Strike) -> bool:
    (machine,) = brokers_of(world, strike)
    machine.disk_troubles.slowness = 10 ** (1 + 2 * strike.strength)
    world.note(machine.name, "has a slow disk", slowness=round(machine.disk_troubles.slowness))
    try:
        await asyncio.sleep(strike.seconds)
    finally:
        machine.disk_troubles.slowness = 1.0
    return True


@fault(
    FAULTS,
    "disks in turn",
    "the disks of two brokers fail, one shortly after the other, and the first one works again first",
    two_brokers,
    (0.5, 8.0),
)
async def disks_in_turn(world: World, strike: Strike) -> bool:
    """The second disk fails when the first broker has given up its partitions, and sometimes while it opens its logs
    again.
    """
    random, before = world.random("disks in turn"), dict[str, int]()
    first, *second = brokers_of(world, strike)
    gap = min(strike.seconds * random.random(), MOST_GAP_SECONDS)
    for machine in (first, *second):
        before[machine.name] = _calls_failed(machine)
        machine.disk_troubles.failed = machine.directories[int(strike.strength * len(machine.directories))]
        world.note(machine.name, "has a disk that fails")
        await asyncio.sleep(gap)
    for machine in (first, *second):
        await asyncio.sleep((strike.seconds - gap) / 2)
        machine.disk_troubles.failed = None
        world.note(machine.name, "has a disk that works again")
    return any(_calls_failed(world.brokers[name]) > count for name, count in before.items())


def _calls_failed(machine: BrokerMachine) -> int:
    return machine.disk_troubles.struck.get("directory fails", 0)
