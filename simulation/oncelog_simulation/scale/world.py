"""The world of a measurement: a cluster without judges, whose virtual time contains the processor time of its work."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, Final

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.payloads import parse_controller
from oncelog_broker.metadata.stores.tree import Changes
from oncelog_simulation.machine import BrokerMachine
from oncelog_simulation.plan import Plan
from oncelog_simulation.scale.lasting_storage import LastingStorage
from oncelog_simulation.scale.metered_loop import MeteredLoop
from oncelog_simulation.scale.partition_states import PartitionStates
from oncelog_simulation.scale.size import INTERNAL_PARTITIONS, RACKS, Size
from oncelog_simulation.scale.traffic import LargestNodes, Traffic
from oncelog_simulation.sessions import ClientEnd
from oncelog_simulation.world import World

SETTINGS: Final = {
    "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
    "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
    "replica.lag.time.max.ms": "30000",
    "auto.leader.rebalance.enable": "false",
}
"""Settings of the brokers, beside those of `world.SETTINGS`. Preferred leaders are not elected, because that would
happen in the middle of a measurement.
"""
LOOK_SECONDS: Final = 0.01
"""Virtual seconds between two checks of the cluster."""
PATIENCE_SECONDS: Final = 3_600.0
"""Virtual seconds after which the cluster counts as stuck."""


class Stuck(Exception):
    """Raised if the cluster has not reached the expected state after PATIENCE_SECONDS. The message says what lacks."""


class ScaleWorld(World):
    """The world in which a cluster of some size is measured."""

    make_loop = MeteredLoop
    loop: MeteredLoop

    def __init__(self, size: Size, seed: int = 1) -> None:
        super().__init__(Plan(seed, brokers=size.brokers, settings=SETTINGS, late_share=0.0))
        self.size = size
        for machine in self.brokers.values():
            machine.settings["broker.rack"] = rack_of(machine)
            machine.storage = LastingStorage(self.loop.free_of_charge)
        self.loop.is_measured = lambda process: process.host in self.brokers and self.brokers[process.host].is_serving
        self.states = PartitionStates()
        self.largest = LargestNodes()
        self.traffic = Traffic()
        self.store.on_written = self._note_write
        self.store.joins_notifications = True
        self.store.on_packet = self.traffic.note_packet
        self.sessions_ended_at = 0.0
        """Virtual time at which the store has last ended a session that had expired."""
        self.store.on_ended = self._note_end
        self._statistics = os.open("/proc/self/statm", os.O_RDONLY)
        self._read: Callable[[int, int, int], bytes] = os.pread

    def _note_write(self, changes: Changes) -> None:
        self.states.note(changes)
        self.largest.note(changes)

    def _note_end(self, session_id: int, why: str) -> None:
        if why == "expired":
            self.sessions_ended_at = self.now

    @property
    def running(self) -> list[BrokerMachine]:
        """The machines whose brokers serve."""
        return [machine for machine in self.brokers.values() if machine.is_serving]

    @property
    def controller(self) -> BrokerMachine | None:
        """The machine of the controller, according to the store; None if there is none."""
        node = self.store.tree.node(paths.CONTROLLER)
        return None if node is None else self.brokers[f"broker-{parse_controller(node.data, '').broker_id}"]

    def resident_mb(self) -> float:
        """Return the resident memory of this process, with all brokers, in millions of bytes."""
        pages = int(self._read(self._statistics, 200, 0).split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    async def until(self, what: str, holds: Callable[[], bool]) -> float:
        """Wait until a condition holds; returns the virtual time. Raises Stuck."""
        began = self.now
        while not holds():
            if self.now - began > PATIENCE_SECONDS:
                raise Stuck(f"after {PATIENCE_SECONDS:g} virtual seconds not true: {what}")
            await asyncio.sleep(LOOK_SECONDS)
        return self.now

    async def until_led(self, gone: set[int]) -> float:
        """Wait until the store has a leader for each partition, other than the brokers that are gone."""
        return await self.until("each partition has a leader", lambda: self.states.are_led_without(gone))

    async def until_served(self) -> float:
        """Wait until each partition is led by a broker that knows it, so that clients are served."""
        return await self.until("each leader knows that it leads", lambda: self.count_led() >= self.states.partitions)

    async def until_settled(self, gone: set[int]) -> float:
        """Wait until the brokers that are gone have left all ISRs."""
        return await self.until("no lost broker is in sync", lambda: self.states.count_on_none_of(gone))

    async def until_in_sync(self) -> float:
        """Wait until all replicas of all partitions are in sync."""
        return await self.until("all replicas are in sync", lambda: self.states.are_in_sync)

    def count_led(self) -> int:
        """Return the number of partitions that the brokers lead, as they see it."""
        brokers = [machine.broker for machine in self.running]
        led = (broker.parts.replication.replicas.partitions() for broker in brokers if broker is not None)
        return sum(partition.leads for partitions in led for partition in partitions)

    def spawn_supervisors(self) -> list[asyncio.Task[None]]:
        """Start all brokers, and restart each when it ends, until the tasks are cancelled."""
        return [asyncio.create_task(machine.supervise()) for machine in self.brokers.values()]

    async def by_client(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run a coroutine on the host of the clients."""
        return await self.client("clients").run(work)

    async def release_dead(self) -> None:
        """Release the objects of processes that have just died. Their peers and the store, which learn of the death
        later, keep only what they know of the connections. A lost rack would otherwise keep its memory.
        """
        self._release_ends()
        await asyncio.sleep(LOOK_SECONDS)  # the supervisors of these brokers learn that they are dead
        self.loop.release_dead()

    def _release_ends(self) -> None:
        """Release what the connections of dead processes refer to."""
        for host in self.network.hosts.values():
            for stream in host.transports:
                if not stream.other.process.is_alive:
                    stream.other.release()
        for server in self.store.servers:
            for connection in server.connections:
                client = connection.pipe.target
                if isinstance(client, ClientEnd) and not client.process.is_alive:
                    client.release()

    def end(self) -> None:
        super().end()
        os.close(self._statistics)


def rack_of(machine: BrokerMachine) -> str:
    """Return the rack of a broker's machine."""
    return f"rack-{machine.number % RACKS}"
