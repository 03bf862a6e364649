"""The cluster as scenes see and change it: which broker leads what, elections, cut links, disks and requests of an
administrator. All waits have a limit; a wait that fails raises `Missed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from itertools import chain
from random import Random
from typing import Final

from oncelog import Admin, KafkaError, TopicPartition
from oncelog.errors import ConnectionFailed
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.payloads import PartitionState, parse_controller, parse_partition_state, parse_topic
from oncelog_broker.replication.partition import Partition
from oncelog_simulation.ensemble import Server
from oncelog_simulation.faults.lost_disks import is_whole
from oncelog_simulation.judges.logs import wrong_in
from oncelog_simulation.machine import BrokerMachine, Killed
from oncelog_simulation.streams import FIRST_EPHEMERAL_PORT
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.world import World
from oncelog_testing.history.events import Place

TOPIC: Final = "scene"
"""The topic to which the actors of a scene write, with two partitions."""
TRANSACTIONS: Final = "__transaction_state"
WAIT_SECONDS: Final = 10.0
"""Most virtual seconds that one step of a scene takes, unless it says another limit."""
LOOK_SECONDS: Final = 0.02
"""Virtual seconds between two checks of a condition."""
REPAIR_SECONDS: Final = 8.0
"""Virtual seconds after a scene before brokers with offline logs are restarted."""
ADMIN_TIMEOUT_MS: Final = 2_000


class Missed(Exception):
    """Raised if the situation of a scene does not come about; the text says what was missing."""


class Stage:
    """The cluster of one run, with the usual steps of scenes."""

    def __init__(self, world: World, notes: Notes) -> None:
        self.world = world
        self.notes = notes
        self.random: Random = world.random("scene")
        self._hosts = 0

    # --- what is there

    @property
    def brokers(self) -> list[BrokerMachine]:
        return list(self.world.brokers.values())

    def machine(self, number: int) -> BrokerMachine:
        return self.world.brokers[f"broker-{number}"]

    def others(self, *machines: BrokerMachine) -> list[BrokerMachine]:
        """Return the other brokers in random order."""
        others = [each for each in self.brokers if each not in machines]
        self.random.shuffle(others)
        return others

    def places(self, topic: str = TOPIC) -> list[Place]:
        """Return the partitions of a topic, internal topics included."""
        at = paths.partitions(topic)
        tree = self.world.store.tree
        found = tree.children(at) if tree.node(at) is not None else ()
        return [Place(topic, index) for index in sorted(map(int, found))]

    def place(self, topic: str = TOPIC) -> Place:
        """Draw one partition of a topic. Raises Missed if the topic does not exist."""
        places = self.places(topic)
        if not places:
            raise Missed(f"no topic {topic}")
        return self.random.choice(places)

    def state(self, place: Place) -> PartitionState:
        """Return the state of a partition in the metadata store."""
        path = paths.partition_state(*place)
        node = self.world.store.tree.node(path)
        if node is None:
            raise Missed(f"{place} has no state")
        return parse_partition_state(node.data, path)

    def replicas(self, place: Place) -> tuple[int, ...]:
        """Return the ids of the brokers with a replica of the partition, the preferred leader first."""
        node = self.world.store.tree.node(paths.topic(place.topic))
        if node is None:
            raise Missed(f"no topic {place.topic}")
        return tuple(parse_topic(node.data, place.topic).partitions[place.index].replicas)

    def leader(self, place: Place) -> BrokerMachine:
        """Return the broker that leads the partition. Raises Missed if none does."""
        number = self.state(place).leader
        if number < 0 or self.replica(self.machine(number), place) is None:
            raise Missed(f"{place} has no leader")
        return self.machine(number)

    def followers(self, place: Place) -> list[BrokerMachine]:
        """Return the followers of a partition that are in sync, in random order."""
        state = self.state(place)
        found = [self.machine(number) for number in state.isr if number != state.leader]
        self.random.shuffle(found)
        return found

    def replica(self, machine: BrokerMachine, place: Place) -> Partition | None:
        """Return a broker's replica of a partition; None if it is not hosted, or the broker does not run."""
        broker = machine.broker
        return None if broker is None else broker.parts.replication.replicas.hosted(*place)

    def end(self, machine: BrokerMachine, place: Place) -> int:
        """Return the log end offset of a replica; -1 if the broker does not host it now."""
        replica = self.replica(machine, place)
        return -1 if replica is None else replica.log.log_end_offset

    def controller(self) -> BrokerMachine:
        """Return the broker that is the controller. Raises Missed if there is none."""
        node = self.world.store.tree.node(paths.CONTROLLER)
        if node is None:
            raise Missed("there is no controller")
        return self.machine(parse_controller(node.data, paths.CONTROLLER).broker_id)

    def store_server(self, machine: BrokerMachine) -> Server:
        """Return the server of the metadata store to which the broker is connected. Raises Missed."""
        session = self.session(machine)
        for server in self.world.store.servers:
            if any(connection.session_id == session for connection in server.connections):
                return server
        raise Missed(f"{machine.name} is not connected to the store")

    def is_registered(self, machine: BrokerMachine) -> bool:
        """Return whether the broker is registered in the metadata store; its session may be that of a dead process."""
        return self.world.store.tree.node(paths.broker_id(machine.number)) is not None

    def session(self, machine: BrokerMachine) -> int:
        """Return the id of the broker's session with the metadata store. Raises Missed if the broker does not run."""
        if machine.broker is None:
            raise Missed(f"{machine.name} does not run")
        return machine.broker.parts.storage.store.session_id

    # --- waiting

    async def pause(self, least: float, most: float) -> None:
        """Wait for a random time between the two numbers of virtual seconds."""
        await asyncio.sleep(self.random.uniform(least, most))

    async def until(
        self,
        condition: Callable[[], object],
        what: str,
        seconds: float = WAIT_SECONDS,
        *,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """Wait for a condition. Raises Missed if it does not hold in time."""
        deadline = self.world.now + seconds
        while not condition():
            if self.world.now >= deadline:
                raise Missed(f"not within {seconds:g} s: {what}")
            await asyncio.sleep(look_seconds)

    async def until_serving(self, *machines: BrokerMachine, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the brokers, by default all brokers, serve."""
        await self.until(lambda: all(each.is_serving for each in machines or self.brokers), "brokers serve", seconds)

    async def until_led(
        self, place: Place, *, but_by: BrokerMachine | None = None, seconds: float = WAIT_SECONDS
    ) -> BrokerMachine:
        """Wait until a broker, but not `but_by`, leads the partition; returns that broker."""

        def leader() -> BrokerMachine | None:
            number = self.state(place).leader
            machine = None if number < 0 else self.machine(number)
            if machine is None or machine is but_by:
                return None
            replica = self.replica(machine, place)
            return machine if replica is not None and replica.leads else None

        await self.until(leader, f"{place} has a leader", seconds)
        found = leader()
        assert found is not None
        return found

    async def until_in_sync(self, place: Place, *machines: BrokerMachine, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the brokers are in the ISR of the partition."""
        wanted = {each.number for each in machines}
        await self.until(lambda: wanted <= set(self.state(place).isr), f"{sorted(wanted)} are in sync", seconds)

    async def until_whole(self) -> None:
        """Wait until all replicas are in sync, and restart brokers whose logs stay offline, as an operator does."""
        since = self.world.now
        while not is_whole(self.world):
            await asyncio.sleep(0.1)
            if self.world.now - since > REPAIR_SECONDS:
                since = self.world.now
                for machine in self.brokers:
                    broker = machine.broker
                    if broker is not None and machine.is_serving and broker.parts.replication.replicas.offline > 0:
                        self.world.note("scene", "restarts a broker with offline logs", broker=machine.name)
                        with suppress(Killed):
                            await machine.stop()

    # --- changes

    async def admin(self, work: Callable[[Admin], Awaitable[object]]) -> bool:
        """Run requests of an administrator in a client process; returns whether all of them succeeded."""
        name = next(name for name in map("operator-{}".format, range(99)) if not self.world.client(name).is_running)

        async def call() -> None:
            async with Admin(self.world.bootstrap_servers, request_timeout_ms=ADMIN_TIMEOUT_MS) as admin:
                await work(admin)

        try:
            await self.world.client(name).run(call)
        except (Killed, KafkaError, ConnectionFailed) as error:
            self.world.note("scene", "a request of the administrator fails", error=str(error))
            return False
        return True

    async def lead(self, machine: BrokerMachine, *places: Place, seconds: float = WAIT_SECONDS) -> None:
        """Make this broker the leader of the partitions by a preferred election. Raises Missed."""
        orders = {}
        for place in places:
            others = [number for number in self.replicas(place) if number != machine.number]
            orders[TopicPartition(*place)] = [machine.number, *others]

        async def elect(admin: Admin) -> None:
            await admin.alter_partition_reassignments(orders)
            await admin.elect_leaders(partitions=list(orders))

        def is_done() -> bool:
            replicas = [self.replica(machine, place) for place in places]
            return all(each is not None and each.leads for each in replicas)

        if not is_done():
            await self.admin(elect)
            await self.until(is_done, f"{machine.name} leads {', '.join(map(str, places))}", seconds)

    async def lead_coordinators(self, machine: BrokerMachine) -> None:
        """Make this broker the coordinator of all transactions. Raises Missed."""
        places = self.places(TRANSACTIONS)
        if places:
            await self.lead(machine, *places)

    def cut(self, *pairs: tuple[str, str]) -> None:
        """Stop delivering packets from the first to the second host of each pair."""
        for source, target in pairs:
            self.world.note("scene", "cuts a link", source=source, target=target)
            self.world.network.cut(source, target)

    def mend(self, *pairs: tuple[str, str]) -> None:
        """Deliver packets again."""
        for source, target in pairs:
            self.world.network.mend(source, target)

    def around(self, machine: BrokerMachine, hosts: Iterable[str] | None = None) -> list[tuple[str, str]]:
        """Return the links between the broker and other hosts, in both directions; by default all hosts."""
        names = self.everybody() if hosts is None else hosts
        pairs = ((machine.name, name) for name in names if name != machine.name)
        return list(chain.from_iterable((pair, pair[::-1]) for pair in pairs))

    def everybody(self) -> list[str]:
        """Return the names of all brokers, clients and servers of the store."""
        return [*self.world.brokers, *self.world.clients, *self.store_hosts()]

    def store_hosts(self) -> list[str]:
        return [server.host.name for server in self.world.store.servers]

    def slow(self, pairs: Collection[tuple[str, str]], slowness: float) -> None:
        """Make all transfers on these links slower by this factor; 1 means as usual."""
        for pair in pairs:
            self.world.network.link(*pair).slowness = slowness

    def stall(self, source: BrokerMachine, target: str, until: float, *, only_responses: bool = False) -> int:
        """Let nothing that `source` sends on its present streams to `target` arrive before the virtual time `until`;
        returns the number of streams. With `only_responses`, streams that `source` has opened do not stall, so that its
        requests arrive.
        """
        streams = [each for each in source.host.transports if each.peer_host.name == target]
        if only_responses:
            streams = [each for each in streams if each.get_extra_info("sockname")[1] < FIRST_EPHEMERAL_PORT]
        for stream in streams:
            stream.pipe.stalled_until = until
        return len(streams)

    def end_session(self, machine: BrokerMachine) -> None:
        """End the broker's session with the metadata store, as if it had expired. Raises Missed."""
        self.world.store.end_session(self.session(machine), "ended by the scene")

    def check_logs(self, *places: Place) -> None:
        """Check now, and not only at the end, that what each replica stores beside its batches agrees with them."""
        for machine in self.brokers:
            for place in places:
                replica = self.replica(machine, place)
                if (
                    replica is None
                    or replica.log.is_offline
                    or replica.log.state.is_truncating
                    or replica.log.is_paused
                ):
                    continue
                for what in wrong_in(replica, may_lack_markers=True):
                    self.world.violate("logs", f"{replica.log.name}: broker {machine.number} {what}")
