"""Faults of clocks."""

from __future__ import annotations

import asyncio
from typing import Final

from oncelog_simulation.faults.fault import Fault, a_broker_or_client, fault, machine_of
from oncelog_simulation.plan import Strike
from oncelog_simulation.world import World

MAX_WALL_STEP_MS: Final = 120_000
"""Maximum milliseconds by which a wall clock is moved forward or back."""
MAX_DRIFT: Final = 0.02
"""Maximum deviation of a clock's rate; a real machine whose clock deviates more counts as broken."""

FAULTS: Final[dict[str, Fault]] = {}
"""The faults of this module, by name."""


@fault(
    FAULTS,
    "clock step",
    "the wall clock of a broker or a client is put forward or back",
    a_broker_or_client,
    (0.0, 0.0),
)
async def clock_step(world: World, strike: Strike) -> bool:
    machine = machine_of(world, strike)
    if machine is None:
        return False
    ms = int((strike.strength - 0.5) * 2 * MAX_WALL_STEP_MS)
    world.note(machine.name, "has its wall clock set", ms=ms)
    machine.clock.step_wall_ms(ms)
    return True


@fault(
    FAULTS,
    "clock drift",
    "the clocks of a broker or a client run too fast or too slow",
    a_broker_or_client,
    (2.0, 20.0),
)
async def clock_drift(world: World, strike: Strike) -> bool:
    machine = machine_of(world, strike)
    if machine is None:
        return False
    rate = 1 + (strike.strength - 0.5) * 2 * MAX_DRIFT
    world.note(machine.name, "has clocks that drift", rate=round(rate, 4))
    machine.clock.drift(rate)
    try:
        await asyncio.sleep(strike.seconds)
    finally:
        machine.clock.drift(1.0)
    return True
