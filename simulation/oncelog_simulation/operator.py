"""The operator of a simulated cluster, who follows the guides after the faults are over (docs/guides/operations.md).

If some logs of a broker are offline, the operator restarts the broker once its disk works again, and a second time if
logs are still offline. If a broker refuses to start because of the data on its disk, the operator changes the setting
that makes the broker accept these data, because there is no backup to restore. A disk on which a bit has changed is
replaced when all replicas are in sync, so that its broker copies all data from others.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Final

from oncelog_simulation.faults.lost_disks import exchange_disk, is_whole
from oncelog_simulation.machine import BrokerMachine, Killed
from oncelog_simulation.world import World

ACCEPTED: Final = "start.accept"
NAMED: Final = re.compile(rf"{ACCEPTED}=([\w-]+:\w+)")
"""Matches the name of a setting in the error message of a broker that refuses to start; with this setting the broker
accepts the data on its disk.
"""
LOOK_SECONDS: Final = 10.0
"""Seconds before the first check of the cluster, and between two checks: enough time for automatic repairs."""


async def tend(world: World) -> None:
    """Check the cluster periodically, and repair it as described above, until this coroutine is cancelled."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        for machine in world.brokers.values():
            if machine.name in world.rotted and is_whole(world, without=machine.number):
                world.note("operator", "exchanges a disk that is damaged", broker=machine.name)
                exchange_disk(world, machine)
            elif _has_offline_logs(machine):
                world.note("operator", "restarts a broker whose logs are offline", broker=machine.name)
                with suppress(Killed):
                    await machine.stop()
            elif machine.trouble and (named := NAMED.findall(machine.trouble)):
                world.note("operator", "accepts what a start has refused", broker=machine.name, accepted=named)
                machine.settings[ACCEPTED] = ",".join(named)


def _has_offline_logs(machine: BrokerMachine) -> bool:
    broker = machine.broker
    return broker is not None and machine.is_serving and broker.parts.replication.replicas.offline > 0
