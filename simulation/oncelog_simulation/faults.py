"""The faults that may strike a world, in one table by name. Each fault defines how it is drawn and how it strikes.

A fault strikes in the director's process: it changes machines, links, disks or the store, waits while the strike lasts,
and undoes the change. `end_all` undoes all remaining faults.

`Fault.needs_whole`: the fault destroys a broker's disk, so it strikes only while all replicas are in sync, and in one
run it always strikes the same broker. Replication cannot survive more than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.payloads import parse_controller
from oncelog_simulation.machine import BrokerMachine, Killed, Machine
from oncelog_simulation.plan import Plan, Strike
from oncelog_simulation.world import World

STORE_SERVERS: Final = 3
MAX_WALL_STEP_MS: Final = 120_000
"""Maximum milliseconds by which a wall clock is moved forward or back."""
MAX_DRIFT: Final = 0.02
"""Maximum deviation of a clock's rate: a machine with a larger deviation is broken."""

CHANGED_SETTINGS: Final = (
    ("log.segment.bytes", ("4000", "1073741824")),
    ("log.flush.interval.messages", ("1", "9223372036854775807")),
    ("log.message.timestamp.type", ("CreateTime", "LogAppendTime")),
    ("replica.fetch.max.bytes", ("300", "10485760")),
)
"""Settings that a rolling restart may change without breaking what the other settings guarantee."""

SIZE_START, SIZE_END, EPOCH_END = 8, 12, 16
"""Positions of fields in a batch header: base offset, size, leader epoch."""

Draw = Callable[[Random, Plan], tuple[str, ...]]
"""Returns the names of the machines that are struck."""
Act = Callable[[World, Strike], Awaitable[bool]]
"""Lets the fault strike; returns whether it really struck."""


@dataclass(frozen=True)
class Fault:
    """One kind of fault."""

    name: str
    title: str
    """The description of the fault."""
    draw_machines: Draw
    seconds: tuple[float, float]
    """Minimum and maximum seconds that the fault lasts."""
    act: Act
    needs_whole: bool = False

    def draw(self, random: Random, plan: Plan, at: float) -> Strike:
        """Draw a strike of this kind."""
        machines = self.draw_machines(random, plan)
        return Strike(round(at, 3), self.name, machines, round(random.uniform(*self.seconds), 3), random.random())


FAULTS: dict[str, Fault] = {}
"""The faults by name."""


def fault(
    name: str, title: str, machines: Draw, seconds: tuple[float, float], *, needs_whole: bool = False
) -> Callable[[Act], Act]:
    """Return a decorator that adds a function to the table."""

    def add(act: Act) -> Act:
        FAULTS[name] = Fault(name, title, machines, seconds, act, needs_whole)
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
    """The strength of the strike selects the client, because a plan does not know the clients."""
    return ("client",)


def all_brokers(random: Random, plan: Plan) -> tuple[str, ...]:
    return tuple(f"broker-{number}" for number in range(1, plan.brokers + 1))


def a_store_server(random: Random, plan: Plan) -> tuple[str, ...]:
    return (f"store-{random.randint(1, STORE_SERVERS)}",)


def a_broker_and_its_store(random: Random, plan: Plan) -> tuple[str, ...]:
    return (*a_broker(random, plan), *(f"store-{number}" for number in range(1, STORE_SERVERS + 1)))


def a_partition(random: Random, plan: Plan) -> tuple[str, ...]:
    """The strength of the strike selects the partition."""
    return ("leader",)


def the_store(random: Random, plan: Plan) -> tuple[str, ...]:
    return ("store",)


def _brokers(world: World, strike: Strike) -> list[BrokerMachine]:
    return [world.brokers[name] for name in strike.machines if name in world.brokers]


def _machine(world: World, strike: Strike) -> Machine | None:
    """Return the machine that is struck; None if no client exists yet."""
    if strike.machines[0] in world.brokers:
        return world.brokers[strike.machines[0]]
    if strike.machines[0] in world.clients:
        return world.clients[strike.machines[0]]
    clients = list(world.clients.values())
    return clients[int(strike.strength * len(clients))] if clients else None


# --- processes


async def _down(machine: BrokerMachine, seconds: float) -> None:
    """Keep the machine down for `seconds`."""
    machine.hold()
    try:
        await asyncio.sleep(seconds)
    finally:
        machine.let_start()


@fault("kill", "kill -9 of a broker", a_broker, (0.0, 8.0))
async def kill(world: World, strike: Strike) -> bool:
    (machine,) = _brokers(world, strike)
    struck = machine.is_running
    machine.kill()
    await _down(machine, strike.seconds)
    return struck


@fault("kill at a write", "kill -9 of a broker in the middle of a write to its disk", a_broker, (0.0, 5.0))
async def kill_at_a_write(world: World, strike: Strike) -> bool:
    (machine,) = _brokers(world, strike)
    before = machine.process
    machine.disk_troubles.writes_left = int(strike.strength * 200)
    while machine.disk_troubles.is_doomed:
        await asyncio.sleep(0.1)
    if before is machine.process and machine.is_running:
        return False
    await _down(machine, strike.seconds)
    return True


@fault("kill of all", "kill -9 of all brokers at once", all_brokers, (0.0, 2.0))
async def kill_of_all(world: World, strike: Strike) -> bool:
    """No data is lost, and the end of each log may be on one replica alone."""
    machines = _brokers(world, strike)
    struck = any(machine.is_running for machine in machines)
    for machine in machines:
        machine.kill()
    random = world.random("kill of all")
    await asyncio.gather(*(_down(machine, strike.seconds * random.random()) for machine in machines))
    return struck


@fault("kill a leader", "kill -9 of the broker that leads some partition", a_partition, (0.0, 3.0))
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
    await _down(machine, strike.seconds)
    return True


@fault("kill the controller", "kill -9 of the broker that is the controller", the_store, (0.0, 3.0))
async def kill_the_controller(world: World, strike: Strike) -> bool:
    node = world.store.tree.node(paths.CONTROLLER)
    if node is None:
        return False
    machine = world.brokers[f"broker-{parse_controller(node.data, paths.CONTROLLER).broker_id}"]
    struck = machine.is_running
    machine.kill()
    await _down(machine, strike.seconds)
    return struck


@fault("rolling restart", "all brokers are restarted, one after another, with other settings", all_brokers, (0.1, 1.0))
async def rolling_restart(world: World, strike: Strike) -> bool:
    """Each broker restarts with a controlled shutdown. Meanwhile the settings differ from broker to broker."""
    random = world.random("rolling restart")
    key, values = random.choice(CHANGED_SETTINGS)
    value = random.choice(values)
    struck = False
    for machine in _brokers(world, strike):
        if machine.broker is None:
            continue
        machine.settings[key] = value
        world.note(machine.name, "is restarted with another setting", key=key, value=value)
        with suppress(Killed):
            await machine.stop()
            if not struck:
                world.count(strike.fault)  # counted now, because the time may be over before all brokers are restarted
            struck = True
        while not machine.is_serving:
            await asyncio.sleep(0.1)
        await asyncio.sleep(strike.seconds)
    return False


@fault("stop", "controlled shutdown of a broker", a_broker, (0.0, 4.0))
async def stop(world: World, strike: Strike) -> bool:
    (machine,) = _brokers(world, strike)
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


@fault("pause", "SIGSTOP of a broker or a client", a_broker_or_client, (0.1, 9.0))
async def pause(world: World, strike: Strike) -> bool:
    machine = _machine(world, strike)
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


@fault("kill a client", "kill -9 of a client", a_client, (0.0, 0.0))
async def kill_a_client(world: World, strike: Strike) -> bool:
    machine = _machine(world, strike)
    if machine is None or not machine.is_running:
        return False
    machine.kill()
    return True


@fault("power cut", "a broker's machine loses its power", a_broker, (0.2, 8.0))
async def power_cut(world: World, strike: Strike) -> bool:
    (machine,) = _brokers(world, strike)
    machine.cut_power()
    await _down(machine, strike.seconds)
    return True


@fault("power cut of all", "all brokers' machines lose their power at once", all_brokers, (0.2, 3.0))
async def power_cut_of_all(world: World, strike: Strike) -> bool:
    machines = _brokers(world, strike)
    for machine in machines:
        machine.cut_power()
    await asyncio.gather(*(_down(machine, strike.seconds) for machine in machines))
    return True


# --- clocks


@fault("clock step", "the wall clock of a broker or a client is put forward or back", a_broker_or_client, (0.0, 0.0))
async def clock_step(world: World, strike: Strike) -> bool:
    machine = _machine(world, strike)
    if machine is None:
        return False
    ms = int((strike.strength - 0.5) * 2 * MAX_WALL_STEP_MS)
    world.note(machine.name, "has its wall clock set", ms=ms)
    machine.clock.step_wall_ms(ms)
    return True


@fault("clock drift", "the clocks of a broker or a client run too fast or too slow", a_broker_or_client, (2.0, 20.0))
async def clock_drift(world: World, strike: Strike) -> bool:
    machine = _machine(world, strike)
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


# --- faults of the network


async def _cut(world: World, pairs: list[tuple[str, str]], seconds: float) -> bool:
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


def _both_ways(names: tuple[str, ...], others: list[str]) -> list[tuple[str, str]]:
    there = [(name, other) for name in names for other in others if name != other]
    return [*there, *((target, source) for source, target in there)]


@fault("partition", "two brokers cannot reach one another", two_brokers, (0.5, 12.0))
async def partition(world: World, strike: Strike) -> bool:
    first, *rest = strike.machines
    return bool(rest) and await _cut(world, _both_ways((first,), rest), strike.seconds)


@fault("one-way partition", "packets from one broker to another are lost", two_brokers, (0.5, 12.0))
async def one_way_partition(world: World, strike: Strike) -> bool:
    first, *rest = strike.machines
    return bool(rest) and await _cut(world, [(first, other) for other in rest], strike.seconds)


@fault("isolation", "a broker reaches no other broker and no client, only the store", a_broker, (0.5, 12.0))
async def isolation(world: World, strike: Strike) -> bool:
    others = [*world.brokers, *world.clients]
    return await _cut(world, _both_ways(strike.machines, others), strike.seconds)


@fault("isolation from all", "a broker reaches nobody", a_broker, (0.5, 12.0))
async def isolation_from_all(world: World, strike: Strike) -> bool:
    others = [*world.brokers, *world.clients, *(server.host.name for server in world.store.servers)]
    return await _cut(world, _both_ways(strike.machines, others), strike.seconds)


@fault("no store", "a broker cannot reach the metadata store", a_broker_and_its_store, (0.5, 12.0))
async def no_store(world: World, strike: Strike) -> bool:
    broker, *servers = strike.machines
    return await _cut(world, _both_ways((broker,), servers), strike.seconds)


@fault(
    "no answers of the store",
    "packets from the metadata store to a broker are lost",
    a_broker_and_its_store,
    (0.5, 12.0),
)
async def no_answers_of_the_store(world: World, strike: Strike) -> bool:
    broker, *servers = strike.machines
    return await _cut(world, [(server, broker) for server in servers], strike.seconds)


@fault("slow links", "all packets of a machine are slow", a_broker_or_client, (1.0, 10.0))
async def slow_links(world: World, strike: Strike) -> bool:
    machine = _machine(world, strike)
    if machine is None:
        return False
    names = [*world.brokers, *world.clients, *(server.host.name for server in world.store.servers)]
    links = [world.network.link(machine.name, name) for name in names if name != machine.name]
    slowness = 10 ** (1 + 2 * strike.strength)
    world.note(machine.name, "has slow links", slowness=round(slowness))
    for link in links:
        link.slowness = slowness
    try:
        await asyncio.sleep(strike.seconds)
    finally:
        for link in links:
            link.slowness = 1.0
    return True


@fault("resets", "the streams of a machine are reset", a_broker_or_client, (0.0, 0.0))
async def resets(world: World, strike: Strike) -> bool:
    machine = _machine(world, strike)
    if machine is None:
        return False
    transports = [each for each in machine.host.transports if world.random("resets").random() < 0.7]
    world.note(machine.name, "has streams reset", count=len(transports))
    for transport in transports:
        transport.reset()
    return bool(transports)


@fault("flapping", "links between brokers break again and again, for less than a second each", all_brokers, (1.0, 8.0))
async def flapping(world: World, strike: Strike) -> bool:
    random, until = world.random("flapping"), world.now + strike.seconds
    names = [*strike.machines, *(server.host.name for server in world.store.servers)]
    while world.now < until:
        source, target = random.sample(names, 2)
        await _cut(world, [(source, target)], random.uniform(0.05, 0.8))
        await asyncio.sleep(random.uniform(0.0, 0.4))
    return True


# --- faults of the metadata store


@fault("session ends", "the session of a broker ends, and it does not know", a_broker, (0.0, 3.0))
async def session_ends(world: World, strike: Strike) -> bool:
    """The broker learns of the expiry when it can reach the store again."""
    (machine,) = _brokers(world, strike)
    if machine.broker is None:
        return False
    session_id = machine.broker.parts.storage.store.session_id
    if session_id not in world.store.sessions:
        return False
    cut = asyncio.create_task(
        _cut(world, [(server.host.name, machine.name) for server in world.store.servers], strike.seconds)
    )
    await asyncio.sleep(0)
    world.store.end_session(session_id, "ended by a fault")
    await cut
    return True


@fault("lost answers of the store", "connections to the store break, with requests in flight", the_store, (0.1, 5.0))
async def lost_answers_of_the_store(world: World, strike: Strike) -> bool:
    until = world.now + strike.seconds
    random = world.random("lost answers of the store")
    world.note("store", "loses connections", seconds=strike.seconds)
    while world.now < until:
        world.store.drop_connections(strike.strength)
        await asyncio.sleep(random.random() * 0.5)
    return True


@fault("store server down", "a server of the metadata store is down", a_store_server, (0.5, 10.0))
async def store_server_down(world: World, strike: Strike) -> bool:
    server = next(each for each in world.store.servers if each.host.name == strike.machines[0])
    world.note(server.host.name, "is down")
    world.store.stop_server(server)
    try:
        await asyncio.sleep(strike.seconds)
    finally:
        world.note(server.host.name, "is up")
        world.store.start_server(server)
    return True


@fault("store server behind", "a server of the metadata store shows an older tree", a_store_server, (1.0, 10.0))
async def store_server_behind(world: World, strike: Strike) -> bool:
    server = next(each for each in world.store.servers if each.host.name == strike.machines[0])
    server.lag = 0.05 + strike.strength * 2
    world.note(server.host.name, "lags", seconds=round(server.lag, 3))
    try:
        await asyncio.sleep(strike.seconds)
    finally:
        server.lag = 0.0
    return True


@fault("store without quorum", "the metadata store is down", the_store, (0.5, 12.0))
async def store_without_quorum(world: World, strike: Strike) -> bool:
    world.note("store", "has no quorum")
    world.store.lose_quorum()
    try:
        await asyncio.sleep(strike.seconds)
    finally:
        world.note("store", "has a quorum again")
        world.store.regain_quorum()
    return True


@fault("store put back", "the metadata store is put back from a backup", the_store, (0.3, 4.0))
async def store_put_back(world: World, strike: Strike) -> bool:
    """Strikes only if leaders and in-sync replicas are those of the backup, because otherwise records may be lost, as
    the guide says.
    """
    if not is_whole(world):
        return False
    backup, before = world.store.copied(), _partition_states(world)
    world.note("store", "is copied")
    await asyncio.sleep(strike.seconds)
    if not is_whole(world) or _partition_states(world) != before:
        return False
    world.note("store", "is put back from the copy")
    world.store.restore(backup, is_new_epoch=True)
    return True


def _partition_states(world: World) -> dict[str, bytes]:
    nodes = world.store.tree.nodes()
    return {path: node.data for path, node in nodes if path.startswith(paths.TOPICS)}


# --- disks


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


@fault("disk full", "the disk of a broker is full", a_broker, (0.5, 8.0))
async def disk_full(world: World, strike: Strike) -> bool:
    (machine,) = _brokers(world, strike)
    troubles = machine.disk_troubles
    troubles.is_full = True
    return await _trouble(world, machine, strike, "disk full", lambda: setattr(troubles, "is_full", False))


@fault("EIO on read", "reads of a broker's disk fail", a_broker, (0.2, 5.0))
async def eio_on_read(world: World, strike: Strike) -> bool:
    (machine,) = _brokers(world, strike)
    troubles = machine.disk_troubles
    troubles.fails_reads = 0.02 + strike.strength / 4
    return await _trouble(world, machine, strike, "EIO on read", lambda: setattr(troubles, "fails_reads", 0.0))


@fault("EIO on write", "writes to a broker's disk fail", a_broker, (0.2, 5.0))
async def eio_on_write(world: World, strike: Strike) -> bool:
    (machine,) = _brokers(world, strike)
    troubles = machine.disk_troubles
    troubles.fails_writes = 0.02 + strike.strength / 4
    return await _trouble(world, machine, strike, "EIO on write", lambda: setattr(troubles, "fails_writes", 0.0))


@fault("EIO on fsync", "fsync of a broker's disk fails", a_broker, (0.2, 5.0))
async def eio_on_fsync(world: World, strike: Strike) -> bool:
    (machine,) = _brokers(world, strike)
    troubles = machine.disk_troubles
    troubles.fails_syncs = 0.1 + strike.strength * 0.9
    return await _trouble(world, machine, strike, "EIO on fsync", lambda: setattr(troubles, "fails_syncs", 0.0))


@fault("directory fails", "every call to a data directory of a broker fails, and works again", a_broker, (0.5, 8.0))
async def directory_fails(world: World, strike: Strike) -> bool:
    (machine,) = _brokers(world, strike)
    troubles, directories = machine.disk_troubles, machine.directories
    troubles.failed = directories[int(strike.strength * len(directories))]
    return await _trouble(world, machine, strike, "directory fails", lambda: setattr(troubles, "failed", None))


@fault("slow disk", "everything takes long that a broker's disk does", a_broker, (1.0, 10.0))
async def slow_disk(world: World, strike: Strike) -> bool:
    (machine,) = _brokers(world, strike)
    machine.disk_troubles.slowness = 10 ** (1 + 2 * strike.strength)
    world.note(machine.name, "has a slow disk", slowness=round(machine.disk_troubles.slowness))
    try:
        await asyncio.sleep(strike.seconds)
    finally:
        machine.disk_troubles.slowness = 1.0
    return True


# --- faults that destroy the contents of disks


def is_whole(world: World) -> bool:
    """Return whether all brokers serve, all replicas are in sync, and every broker knows it."""
    if not all(machine.is_serving for machine in world.brokers.values()):
        return False
    for machine in world.brokers.values():
        assert machine.broker is not None
        image = machine.broker.parts.membership.metadata.image
        for topic in image.topics.values():
            for state in topic.partitions.values():
                if set(state.isr) != set(state.replicas) or state.leader < 0:
                    return False
    return True


@fault("bit rot", "a bit of a synced file of a broker changes", a_broker, (0.0, 0.0), needs_whole=True)
async def bit_rot(world: World, strike: Strike) -> bool:
    (machine,) = _brokers(world, strike)
    random = world.random("bit rot")
    files = [(path, inode) for path, inode in machine.storage.files() if path.endswith(".log") and inode.durable]
    if not files or not is_whole(world):
        return False
    path, inode = random.choice(files)
    position, bit = random.randrange(len(inode.durable)), random.randrange(8)
    if not _is_checked(bytes(inode.durable), position):
        return False
    world.note(machine.name, "has a bit changed", path=path, position=position, bit=bit)
    inode.rot(position, bit)
    world.rotted.add(machine.name)
    return True


def _is_checked(content: bytes, position: int) -> bool:
    """Return whether the size or the CRC of a batch covers this byte. Base offset and leader epoch, which the broker
    sets, are not covered: nobody can detect a change there.
    """
    start = 0
    while start + SIZE_END <= len(content):
        end = start + SIZE_END + int.from_bytes(content[start + SIZE_START : start + SIZE_END], "big")
        if position < end:
            place = position - start
            return SIZE_START <= place < SIZE_END or place >= EPOCH_END
        start = end
    return False


@fault("emptied disk", "a broker's disk is changed for an empty one", a_broker, (0.2, 3.0), needs_whole=True)
async def emptied_disk(world: World, strike: Strike) -> bool:
    (machine,) = _brokers(world, strike)
    if not is_whole(world):
        return False
    exchange_disk(world, machine)
    await _down(machine, strike.seconds)
    return True


def exchange_disk(world: World, machine: BrokerMachine) -> None:
    """Kill the broker, and replace its machine's disk with an empty one."""
    machine.kill()
    machine.storage.empty()
    world.rotted.discard(machine.name)
    world.note(machine.name, "gets an empty disk")


@fault("older disk", "a broker's disk is restored from a copy", a_broker, (1.0, 8.0), needs_whole=True)
async def older_disk(world: World, strike: Strike) -> bool:
    """The copy is taken while the broker is down, as the guide to backups requires. A broker cannot detect an older
    state of its disk if the state is from after its last registration.
    """
    (machine,) = _brokers(world, strike)
    machine.kill()
    copy = machine.storage.copied()
    world.note(machine.name, "has its disk copied")
    await asyncio.sleep(strike.seconds)
    if not is_whole(world):
        return False
    machine.kill()
    machine.storage.restore(copy)
    world.note(machine.name, "gets its disk from the copy")
    await _down(machine, strike.strength)
    return True


def end_all(world: World) -> None:
    """Undo all faults that are not undone yet."""
    world.network.mend_all()
    for machine in world.brokers.values():
        machine.disk_troubles.end()
        machine.clock.drift(1.0)
        machine.resume()
        machine.let_start()
    for client in world.clients.values():
        client.clock.drift(1.0)
        client.resume()
    for server in world.store.servers:
        server.lag = 0.0
        world.store.start_server(server)
    world.store.regain_quorum()
