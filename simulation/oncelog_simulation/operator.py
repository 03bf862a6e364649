"""The operator of a simulated cluster, who follows the guides after the faults are over (docs/guides/operations.md).

If some logs of a broker are offline, the operator restarts the broker once its disk works again, and a second time if
logs are still offline. The operator also restarts a broker that does not register again because the metadata store was
put back to a state before the broker's last start, as the broker's log says. If a broker refuses to start because of
the data on its disk or because of an older metadata store, the operator changes the setting that makes the broker
accept these data, because there is no backup to restore. A disk on which a bit has changed is replaced when each of its
replicas has another replica that is in sync, so that its broker copies all data from others. Other replicas may be out
of sync, because they cannot fetch what is damaged. If such a disk has the only replica in sync of a partition, and this
replica cannot be opened, the operator first has another replica elected: that replica has all acknowledged records,
since min.insync.replicas is 2.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Final

from oncelog import Admin, KafkaError, TopicPartition
from oncelog.admin import ElectionType
from oncelog_simulation.faults.lost_disks import exchange_disk, has_others_in_sync
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
            only_here = _partitions_only_at(machine) if machine.name in world.rotted else []
            if only_here:
                world.note("operator", "elects leaders outside the ISR", partitions=len(only_here))
                await _elect_others(world, only_here)
            elif machine.name in world.rotted and has_others_in_sync(world, machine.number):
                world.note("operator", "exchanges a disk that is damaged", broker=machine.name)
                exchange_disk(world, machine)
            elif _has_offline_logs(machine):
                world.note("operator", "restarts a broker whose logs are offline", broker=machine.name)
                with suppress(Killed):
                    await machine.stop()
            elif machine.broker is not None and machine.broker.parts.membership.member.wrong_store:
                world.note("operator", "restarts a broker whose store is older", broker=machine.name)
                with suppress(Killed):
                    await machine.stop()
            elif machine.trouble and (named := NAMED.findall(machine.trouble)):
                world.note("operator", "accepts what a start has refused", broker=machine.name, accepted=named)
                machine.settings[ACCEPTED] = ",".join(named)


def _partitions_only_at(machine: BrokerMachine) -> list[TopicPartition]:
    """Return the partitions without a leader of which this broker has the only replica in sync, and cannot open it."""
    broker = machine.broker
    if broker is None or not _has_offline_logs(machine):
        return []
    return [
        TopicPartition(topic.name, index)
        for topic in broker.parts.membership.metadata.image.topics.values()
        for index, state in topic.partitions.items()
        if state.leader < 0 and tuple(state.isr) == (machine.number,) and set(state.replicas) != {machine.number}
    ]


async def _elect_others(world: World, partitions: list[TopicPartition]) -> None:
    """Make the most complete of the other replicas of each partition its leader."""

    async def elect() -> None:
        async with Admin(world.bootstrap_servers, request_timeout_ms=5_000) as admin:
            await admin.elect_leaders(ElectionType.UNCLEAN, partitions)

    with suppress(Killed, KafkaError):
        await world.client("operator").run(elect)


def _has_offline_logs(machine: BrokerMachine) -> bool:
    broker = machine.broker
    return broker is not None and machine.is_serving and broker.parts.replication.replicas.offline > 0
