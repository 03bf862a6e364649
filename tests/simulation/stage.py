"""Scripted scenarios in the simulated cluster: a test says step by step what clients and faults do, in virtual time,
and all judges of the simulation look on.

`play` runs a script with three brokers. The script gets a `Stage`, which has the world and the usual steps. All
acknowledged records are in the history that the judge `history` checks at the end, together with the contents of all
replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import repeat
from typing import Any, Final, TypeVar

from oncelog import Admin, Producer
from oncelog.admin import NewTopic
from oncelog.errors import RequestTimedOut, TopicAlreadyExists
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.payloads import PartitionState, parse_controller, parse_partition_state
from oncelog_broker.replication.partition import Partition
from oncelog_simulation.machine import BrokerMachine
from oncelog_simulation.plan import Plan
from oncelog_simulation.run import Outcome, run
from oncelog_simulation.scenario import WholeCluster
from oncelog_simulation.workloads.catalogue import SETTINGS
from oncelog_simulation.workloads.wire import Wire
from oncelog_simulation.workloads.workload import COMMON, ClientWorkload, producer_options
from oncelog_simulation.world import World
from oncelog_testing.history.events import Place, Send

T = TypeVar("T")

SECONDS: Final = 40.0
"""Virtual seconds that a script may take."""
STEP_SECONDS: Final = 20.0
"""Virtual seconds that one step may take."""
PAUSE_SECONDS: Final = 0.05
"""Virtual seconds between two records of a `Writing`, and between two checks of a condition."""
TRIES: Final = 20
"""How often a request to create a topic is repeated while its outcome is unknown."""
REPLICAS: Final = (1, 2, 3)
SESSION_SECONDS: Final = int(SETTINGS["zookeeper.session.timeout.ms"]) / 1000


class Stage:
    """The simulated cluster, with the steps of scripts."""

    def __init__(self, world: World, scenario: WholeCluster) -> None:
        self.world = world
        self.notes = scenario.notes
        self.history = scenario.notes.history

    # --- what is there

    def broker(self, number: int) -> BrokerMachine:
        return self.world.brokers[f"broker-{number}"]

    def others(self, *numbers: int) -> list[int]:
        return [number for number in REPLICAS if number not in numbers]

    def state(self, topic: str, index: int = 0) -> PartitionState:
        """Return the state of a partition in the metadata store."""
        path = paths.partition_state(topic, index)
        node = self.world.store.tree.node(path)
        assert node is not None, f"{topic}-{index} has no state"
        return parse_partition_state(node.data, path)

    def replica(self, number: int, topic: str, index: int = 0) -> Partition | None:
        """Return a broker's replica of a partition; None if it is not hosted, or its broker does not run."""
        broker = self.broker(number).broker
        return None if broker is None else broker.parts.replication.replicas.hosted(topic, index)

    def log_end(self, number: int, topic: str, index: int = 0) -> int:
        """Return the log end offset of a replica; -1 if the broker does not host it now."""
        replica = self.replica(number, topic, index)
        return -1 if replica is None else replica.log.log_end_offset

    @property
    def controller(self) -> int:
        """The id of the broker that is controller; -1 if there is none."""
        node = self.world.store.tree.node(paths.CONTROLLER)
        return -1 if node is None else parse_controller(node.data, paths.CONTROLLER).broker_id

    # --- waiting

    async def until(
        self,
        condition: Callable[[], object],
        what: str,
        seconds: float = STEP_SECONDS,
        *,
        pause: float = PAUSE_SECONDS,
    ) -> None:
        """Wait for a condition, which is checked every `pause` virtual seconds."""
        deadline = self.world.now + seconds
        while not condition():
            assert self.world.now < deadline, f"not within {seconds:g} virtual seconds: {what}"
            await asyncio.sleep(pause)

    async def until_led(self, topic: str, index: int = 0, *, but_by: int = -1) -> int:
        """Wait until a broker other than `but_by` leads the partition; returns its id."""

        def leader() -> int:
            return next((number for number in REPLICAS if self._leads(number, topic, index)), -1)

        await self.until(lambda: leader() not in (-1, but_by), f"{topic}-{index} is led, but not by {but_by}")
        return leader()

    def _leads(self, number: int, topic: str, index: int) -> bool:
        replica = self.replica(number, topic, index)
        return replica is not None and replica.leads and self.state(topic, index).leader == number

    async def until_isr(self, topic: str, isr: set[int], index: int = 0) -> None:
        await self.until(lambda: set(self.state(topic, index).isr) == isr, f"the ISR of {topic}-{index} is {isr}")

    # --- clients

    async def call(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in a process of the client host `name`."""
        return await self.world.client(name).run(work)

    async def topic(self, name: str, *replicas: Sequence[int], **configs: str) -> None:
        """Create a topic with these replicas of its partitions, the preferred leader first."""
        assigned = dict(enumerate(replicas or [REPLICAS]))
        changes = {key.replace("_", "."): value for key, value in configs.items()}

        async def make() -> None:
            async with Admin(self.world.bootstrap_servers, **COMMON) as admin:
                for is_again in (False, *repeat(True, TRIES)):
                    try:
                        await admin.create_topics([NewTopic(name, configs=changes, replica_assignments=assigned)])
                        return
                    except RequestTimedOut:  # the outcome is unknown
                        await asyncio.sleep(PAUSE_SECONDS)
                    except TopicAlreadyExists:
                        assert is_again
                        return

        await self.call("operator", make)
        self.notes.topics[name] = len(assigned)
        for index in assigned:
            await self.until_led(name, index)

    async def on_wire(
        self, work: Callable[[Wire], Awaitable[T]], *topics: str, name: str = "wire", wire_type: type[Wire] = Wire
    ) -> T:
        """Call `work` with raw connections to all brokers, in a process of its own."""

        async def call() -> T:
            async with wire_type(self.world.bootstrap_servers) as wire:
                await wire.follow(topics)
                return await work(wire)

        return await self.call(name, call)

    @asynccontextmanager
    async def writing(self, *places: Place, name: str = "anna") -> AsyncIterator[Writing]:
        """Write records with an idempotent producer until the end of the block; all must be acknowledged then."""
        writing = Writing(self, places, name)
        task = asyncio.create_task(self.call(name, writing.run))
        try:
            yield writing
        finally:
            writing.is_over = True
            await asyncio.wait([task])
        task.result()
        assert writing.acknowledged == len(writing.sends)


class Writing:
    """A producer that writes one record after another to its partitions, without waiting for acknowledgements."""

    def __init__(self, stage: Stage, places: Sequence[Place], name: str) -> None:
        self._stage = stage
        self._places = places
        self._name = name
        self.sends: list[Send] = []
        self.acknowledged = 0
        self.is_over = False

    async def run(self) -> None:
        history = self._stage.history
        async with Producer(self._stage.world.bootstrap_servers, **producer_options()) as producer:
            under_way: set[asyncio.Future[Any]] = set()
            while not self.is_over:
                place = self._places[len(self.sends) % len(self._places)]
                send = history.send(self._name, place, f"{self._name}/{len(self.sends)}".encode())
                self.sends.append(send)
                future = await producer.send(place.topic, send.value, partition=place.index)
                under_way.add(future)
                future.add_done_callback(lambda future, send=send: self._answered(send, future))
                await asyncio.sleep(PAUSE_SECONDS)
            await asyncio.wait(under_way)

    def _answered(self, send: Send, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._stage.history.acknowledged(send, future.result().offset)
            self.acknowledged += 1

    async def until_more(self, records: int) -> None:
        """Wait until this number of further records is acknowledged."""
        goal = self.acknowledged + records
        await self._stage.until(lambda: self.acknowledged >= goal, f"{records} more records are acknowledged")


Script = Callable[[Stage], Coroutine[Any, Any, None]]


class _Scripted(WholeCluster):
    """The scenario of a script: all judges, the workloads of the plan, and the script as a further workload."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script
        self.is_finished = False
        self.failure: BaseException | None = None

    def workloads(self, world: World) -> Sequence[ClientWorkload]:
        return [*super().workloads(world), _ScriptWorkload(self, self._script)]


class _ScriptWorkload(ClientWorkload):
    def __init__(self, scenario: _Scripted, script: Script) -> None:
        super().__init__(scenario.notes, "script")
        self._scenario = scenario
        self._script = script

    async def work(self, world: World) -> None:
        try:
            await self._script(Stage(world, self._scenario))
        except BaseException as error:
            self._scenario.failure = error
            raise
        assert not world.calm.is_set(), f"the script took longer than {world.plan.seconds:g} virtual seconds"
        self._scenario.is_finished = True

    async def live(self, world: World) -> None:
        raise NotImplementedError


def play(
    script: Script,
    *,
    settings: Mapping[str, str] | None = None,
    workloads: Sequence[str] = (),
    seconds: float = SECONDS,
    pace: float = 1.0,
) -> Outcome:
    """Run a script for this number of virtual seconds, and check that it came to its end and that no judge found a
    violation. `pace` slows the workloads down, as in a plan.
    """
    plan = Plan(
        seed=5,
        seconds=seconds,
        settings={**SETTINGS, **(settings or {})},
        workloads=tuple(workloads),
        late_share=0.0,
        pace=pace,
    )
    scenario = _Scripted(script)
    outcome = run(plan, scenario)
    assert not outcome.violations, outcome.violations
    assert scenario.is_finished
    return outcome
