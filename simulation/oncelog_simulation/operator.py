"""The operator of a simulated cluster, who follows the guides when faults are over (docs/guides/operations.md).

A broker some of whose logs are offline is restarted once its disk works again, and again if they still are. A broker
that refuses to start with what is left of its disk is told to accept that: there is nothing else to put back. A disk on
which a bit has changed is exchanged when all replicas are in sync, so that its broker copies everything from others.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Final

from oncelog_simulation.faults import exchange_disk, is_whole
from oncelog_simulation.machine import BrokerMachine, Killed
from oncelog_simulation.world import World

ACCEPTED: Final = "start.accept"
NAMED: Final = re.compile(rf"{ACCEPTED}=([\w-]+:\w+)")
"""How a refused start names the setting that accepts what it found."""
LOOK_SECONDS: Final = 10.0
"""Seconds between two checks of the cluster, and before the first: enough for automatic repairs."""


async def tend(world: World) -> None:
    """Look after the cluster until this is cancelled."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        for machine in world.brokers.values():
            if _has_offline_logs(machine):
                world.note("operator", "restarts a broker whose logs are offline", broker=machine.name)
                with suppress(Killed):
                    await machine.stop()
            elif machine.trouble and (named := NAMED.findall(machine.trouble)):
                world.note("operator", "accepts what a start has refused", broker=machine.name, accepted=named)
                machine.settings[ACCEPTED] = ",".join(named)
            elif machine.name in world.rotted and is_whole(world):
                world.note("operator", "exchanges a disk that is damaged", broker=machine.name)
                exchange_disk(world, machine)


def _has_offline_logs(machine: BrokerMachine) -> bool:
    broker = machine.broker
    return broker is not None and machine.is_serving and broker.parts.replication.replicas.offline > 0
