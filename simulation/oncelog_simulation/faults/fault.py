"""Defines a kind of fault: how a strike is drawn, and how it takes effect. Also has functions that several faults use.

The code of a fault runs in the director's process: it changes machines, links, disks or the metadata store, waits while
the strike lasts, and undoes the change. `catalogue.end_all` undoes all remaining faults.

`Fault.needs_whole`: the fault destroys a broker's disk, so it strikes only while all replicas are in sync, and in one
run it always strikes the same broker. Replication cannot survive the loss of more than one disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from oncelog_simulation.machine import BrokerMachine, Machine
from oncelog_simulation.plan import Plan, Strike
from oncelog_simulation.world import World

STORE_SERVERS: Final = 3


Draw = Callable[[Random, Plan], tuple[str, ...]]
"""A function that draws the names of the machines that a strike affects."""
Act = Callable[[World, Strike], Awaitable[bool]]
"""A function that carries out a strike; it returns whether the fault had an effect."""


@dataclass(frozen=True)
class Fault:
    """One kind of fault, which may strike several times in a run."""

    name: str
    title: str
    """A short description of the fault, for lists and reports."""
    draw_machines: Draw
    seconds: tuple[float, float]
    """Minimum and maximum seconds that the fault lasts."""
    act: Act
    needs_whole: bool = False

    def draw(self, random: Random, plan: Plan, at: float) -> Strike:
        """Draw a strike of this kind."""
        machines = self.draw_machines(random, plan)
        return Strike(round(at, 3), self.name, machines, round(random.uniform(*self.seconds), 3), random.random())


def fault(
    faults: dict[str, Fault],
    name: str,
    title: str,
    machines: Draw,
    seconds: tuple[float, float],
    *,
    needs_whole: bool = False,
) -> Callable[[Act], Act]:
    """Return a decorator that adds a function to the table `faults`."""

    def add(act: Act) -> Act:
        faults[name] = Fault(name, title, machines, seconds, act, needs_whole)
        return act

    return add


# --- functions that choose the machine


def a_broker(random: Random, plan: Plan) -> tuple[str, ...]:
    return (f"broker-{random.randint(1, plan.brokers)}",)


def two_brokers(random: Random, plan: Plan) -> tuple[str, ...]:
    both = random.sample(range(1, plan.brokers + 1), min(2, plan.brokers))
    return tuple(f"broker-{number}" for number in both)


def a_broker_or_client(random: Random, plan: Plan) -> tuple[str, ...]:
    return a_broker(random, plan) if random.random() < 0.7 else a_client(random, plan)


def a_client(random: Random, plan: Plan) -> tuple[str, ...]:
    """Return a placeholder: the strength of the strike selects the client later, because a plan does not know the
    clients.
    """
    return ("client",)


def all_brokers(random: Random, plan: Plan) -> tuple[str, ...]:
    return tuple(f"broker-{number}" for number in range(1, plan.brokers + 1))


def a_store_server(random: Random, plan: Plan) -> tuple[str, ...]:
    return (f"store-{random.randint(1, STORE_SERVERS)}",)


def a_broker_and_its_store(random: Random, plan: Plan) -> tuple[str, ...]:
    return (*a_broker(random, plan), *(f"store-{number}" for number in range(1, STORE_SERVERS + 1)))


def a_partition(random: Random, plan: Plan) -> tuple[str, ...]:
    """Return a placeholder: the strength of the strike selects a partition, and with it its leader, later."""
    return ("leader",)


def the_store(random: Random, plan: Plan) -> tuple[str, ...]:
    return ("store",)


def brokers_of(world: World, strike: Strike) -> list[BrokerMachine]:
    return [world.brokers[name] for name in strike.machines if name in world.brokers]


def machine_of(world: World, strike: Strike) -> Machine | None:
    """Return the machine that is struck; None if no client exists yet."""
    if strike.machines[0] in world.brokers:
        return world.brokers[strike.machines[0]]
    if strike.machines[0] in world.clients:
        return world.clients[strike.machines[0]]
    clients = list(world.clients.values())
    return clients[int(strike.strength * len(clients))] if clients else None


# --- functions that several faults use


async def keep_down(machine: BrokerMachine, seconds: float) -> None:
    """Keep the machine down for `seconds`."""
    machine.hold()
    try:
        await asyncio.sleep(seconds)
    finally:
        machine.let_start()


async def cut_links(world: World, pairs: list[tuple[str, str]], seconds: float) -> bool:
    for source, target in pairs:
        world.note("network", "is cut", source=source, target=target)
        world.network.cut(source, target)
    try:
        await asyncio.sleep(seconds)
    finally:
        for source, target in pairs:
            world.note("network", "is mended", source=source, target=target)
            world.network.mend(source, target)
    return True


def both_ways(names: tuple[str, ...], others: list[str]) -> list[tuple[str, str]]:
    there = [(name, other) for name in names for other in others if name != other]
    return [*there, *((target, source) for source, target in there)]
