"""Faults that destroy the contents of disks. A fault of this kind strikes only while all replicas are in sync."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Final

from oncelog_broker.metadata.model.image import PartitionState
from oncelog_simulation.faults.fault import Fault, a_broker, brokers_of, fault, keep_down
from oncelog_simulation.machine import BrokerMachine
from oncelog_simulation.plan import Strike
from oncelog_simulation.world import World

SIZE_START, SIZE_END, EPOCH_END = 8, 12, 16
"""Positions in a batch header: where the size starts, where it ends and the leader epoch starts, and where the leader
epoch ends.
"""

FAULTS: Final[dict[str, Fault]] = {}
"""The faults of this module, by name."""


def is_whole(world: World) -> bool:
    """Return whether all brokers serve, all replicas are in sync, and every broker knows that."""
    return _all_know(world, lambda state: set(state.replicas) <= set(state.isr))


def has_others_in_sync(world: World, number: int) -> bool:
    """Return whether all brokers serve and know that each replica of broker `number` has another replica in sync."""
    return _all_know(world, lambda state: number not in state.replicas or bool(set(state.isr) - {number}))


def _all_know(world: World, holds: Callable[[PartitionState], bool]) -> bool:
    """Return whether all brokers serve, and in the metadata of each broker every partition has a leader and `holds`."""
    if not all(machine.is_serving for machine in world.brokers.values()):
        return False
    for machine in world.brokers.values():
        assert machine.broker is not None
        image = machine.broker.parts.membership.metadata.image
        states = (state for topic in image.topics.values() for state in topic.partitions.values())
        if not all(state.leader >= 0 and holds(state) for state in states):
            return False
    return True


@fault(FAULTS, "bit rot", "a bit of a synced file of a broker changes", a_broker, (0.0, 0.0), needs_whole=True)
async def bit_rot(world: World, strike: Strike) -> bool:
    (machine,) = brokers_of(world, strike)
    random = world.random("bit rot")
    files = [(path, inode) for path, inode in machine.storage.files() if path.endswith(".log") and inode.durable_size]
    if not files or not is_whole(world):
        return False
    path, inode = random.choice(files)
    position, bit = random.randrange(inode.durable_size), random.randrange(8)
    if not _is_checked(inode.durable, position):
        return False
    world.note(machine.name, "has a bit changed", path=path, position=position, bit=bit)
    inode.rot(position, bit)
    world.rotted.setdefault(machine.name, set()).add(PurePosixPath(path).parent.name)
    return True


def _is_checked(content: bytes, position: int) -> bool:
    """Return whether the size or the CRC of a batch covers this byte. They do not cover base offset and leader epoch,
    which the broker sets itself, so nobody can detect a change of these two fields.
    """
    start = 0
    while start + SIZE_END <= len(content):
        end = start + SIZE_END + int.from_bytes(content[start + SIZE_START : start + SIZE_END], "big")
        if position < end:
            place = position - start
            return SIZE_START <= place < SIZE_END or place >= EPOCH_END
        start = end
    return False


@fault(FAULTS, "emptied disk", "a broker's disk is changed for an empty one", a_broker, (0.2, 3.0), needs_whole=True)
async def emptied_disk(world: World, strike: Strike) -> bool:
    (machine,) = brokers_of(world, strike)
    if not is_whole(world):
        return False
    exchange_disk(world, machine)
    await keep_down(machine, strike.seconds)
    return True


def exchange_disk(world: World, machine: BrokerMachine) -> None:
    """Kill the broker, and replace its machine's disk with an empty one."""
    machine.kill()
    machine.storage.empty()
    world.rotted.pop(machine.name, None)
    world.note(machine.name, "gets an empty disk")


@fault(FAULTS, "older disk", "a broker's disk is restored from a copy", a_broker, (1.0, 8.0), needs_whole=True)
async def older_disk(world: World, strike: Strike) -> bool:
    """The copy of the disk is taken while the broker is down, as the guide to backups requires. A broker cannot detect
    that its disk has an older state, if that state is newer than the broker's last registration.
    """
    (machine,) = brokers_of(world, strike)
    machine.kill()
    copy = machine.storage.copied()
    world.note(machine.name, "has its disk copied")
    await asyncio.sleep(strike.seconds)
    if not is_whole(world):
        return False
    machine.kill()
    machine.storage.restore(copy)
    world.note(machine.name, "gets its disk from the copy")
    await keep_down(machine, strike.strength)
    return True
