"""Users' applications in the simulated world: a service, which produces one output for each input, runs under faults,
and a judge checks its outputs.

    check_service(Service(bill, "orders", "invoices", made_of=order_of), seeds=range(1, 51))

The service is any coroutine that uses oncelog's clients, or other asyncio code. The service is started, killed and
restarted while brokers fail; each input must be processed exactly once. The service sees virtual time, so a seed takes
a second or two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from oncelog import Producer
from oncelog_simulation.drawing import draw_plan
from oncelog_simulation.guard import RealAccess
from oncelog_simulation.judges.content import Content, content
from oncelog_simulation.machine import Killed
from oncelog_simulation.plan import Plan
from oncelog_simulation.run import Judge, Outcome, Workload, run
from oncelog_simulation.story import tell
from oncelog_simulation.workloads.catalogue import SETTINGS
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.workload import make_topic, producer_options
from oncelog_testing.history.checker import violations
from oncelog_testing.history.events import Place, Send

if TYPE_CHECKING:
    from oncelog_simulation.world import World

__tracebackhide__ = True  # hides this module in the traceback of a failed test

SERVICE_FAULTS: Final = ("kill a client", "kill", "pause", "partition", "resets", "session ends")
"""The kinds of faults that strike a service, unless the test names other kinds (`faults.FAULTS` has all kinds)."""
SECONDS: Final = 10.0
"""Virtual seconds in which inputs are written and faults strike."""
RESTART_SECONDS: Final = 0.5
"""Virtual seconds before an instance of the service that was killed, or that raised an exception, is restarted."""
LOOK_SECONDS: Final = 3.0
"""Virtual seconds between two checks whether all inputs are processed; the checks begin when the faults are over."""
PROCESSING: Final = "the service"
ANY_TIMESTAMPS: Final = {"log.message.timestamp.after.max.ms": str(2**63 - 1)}
"""Settings that accept records of any time: compiled clients, such as the record builder of aiokafka, read the clock of
the real machine.
"""


@dataclass(frozen=True)
class Service:
    """A service under test. `run` is called with the bootstrap servers, and the coroutine works until it is cancelled
    or killed. `made_of` takes the value of an output and returns the value of the input from which it was made; None
    means that the output belongs to no input.
    """

    run: Callable[[str], Coroutine[Any, Any, None]]
    source: str
    into: str
    made_of: Callable[[bytes], bytes | None]
    instances: int = 1
    inputs: int = 40
    partitions: int = 2


def check_service(service: Service, seeds: Iterable[int], *, faults: Sequence[str] = SERVICE_FAULTS) -> None:
    """Run the service in a simulated world for each of the seeds. Raises AssertionError with the story of the first
    seed in which an input was processed twice or not at all.
    """
    for seed in seeds:
        outcome, notes = run_service(service, seed, faults=faults)
        if outcome.violations:
            raise AssertionError(tell(outcome, notes, again=f"check_service(..., seeds=[{seed}])"))


def run_service(service: Service, seed: int, *, faults: Sequence[str] = SERVICE_FAULTS) -> tuple[Outcome, Notes]:
    """Run one seed; returns the outcome and the recorded history. Raises RealAccess if the service uses the real
    machine.
    """
    clients = tuple(f"service-{number}" for number in range(1, service.instances + 1))
    scenario = _ServiceScenario(service)
    plan = plan_of_service(seed, clients, faults)
    return run(replace(plan, workloads=("inputs", *plan.workloads)), scenario), scenario.notes


def plan_of_service(seed: int, clients: tuple[str, ...], faults: Sequence[str]) -> Plan:
    """Return the plan of a seed, whose faults strike brokers and these clients for SECONDS."""
    plan = draw_plan(seed, faults=faults)
    strikes = tuple(_on_service(strike.machines, clients, plan, number) for number, strike in enumerate(plan.strikes))
    struck = tuple(replace(each, machines=whom) for each, whom in zip(plan.strikes, strikes, strict=True))
    return replace(
        plan,
        seconds=SECONDS,
        workloads=clients,
        settings={**SETTINGS, **ANY_TIMESTAMPS, **plan.settings},
        strikes=tuple(each for each in struck if each.at < SECONDS),
    )


def _on_service(machines: tuple[str, ...], clients: tuple[str, ...], plan: Plan, number: int) -> tuple[str, ...]:
    """Return the strike; one that was drawn for a client is redirected to one of the service's processes."""
    return tuple(
        each if each.startswith("broker-") else clients[(plan.seed + number) % len(clients)] for each in machines
    )


class _ServiceScenario:
    """Implements `run.Scenario` with the writer of the inputs, the instances of the service, and the judge of its
    outputs.
    """

    def __init__(self, service: Service) -> None:
        self.notes = Notes()
        self._service = service

    def workloads(self, world: World) -> Sequence[Workload]:
        self.notes.history.clock = lambda: world.now
        world.outsiders.update(world.plan.workloads)
        numbers = range(1, self._service.instances + 1)
        return [
            _Inputs(self._service, self.notes),
            *(_Instance(self._service, self.notes, f"service-{number}") for number in numbers),
        ]

    def judges(self, world: World) -> Sequence[Judge]:
        return [_OnceEach(self._service, self.notes)]


class _Inputs:
    """The client that writes the inputs; faults do not strike it."""

    name = "inputs"

    def __init__(self, service: Service, notes: Notes) -> None:
        self._service = service
        self._notes = notes

    async def prepare(self, world: World) -> None:
        for topic in (self._service.source, self._service.into):
            await make_topic(world, self._notes, topic, self._service.partitions)

    async def work(self, world: World) -> None:
        await world.client("inputs").run(partial(self._write, world))

    async def _write(self, world: World) -> None:
        service, history = self._service, self._notes.history
        async with Producer(world.bootstrap_servers, **producer_options()) as producer:
            for number in range(service.inputs):
                place = Place(service.source, number % service.partitions)
                send = history.send("inputs", place, b"%s %d" % (service.source.encode(), number))
                told = await producer.send_and_wait(place.topic, send.value, partition=place.index)
                history.acknowledged(send, told.offset)
                if not world.calm.is_set():
                    await asyncio.sleep(SECONDS / service.inputs)


class _Instance:
    """One instance of the service, which is restarted whenever it ends."""

    def __init__(self, service: Service, notes: Notes, name: str) -> None:
        self.name = name
        self._service = service
        self._notes = notes

    async def prepare(self, world: World) -> None:
        """Do nothing: the client that writes the inputs creates the topics."""

    async def work(self, world: World) -> None:
        """Raises RealAccess if the service uses the real machine."""
        working = asyncio.create_task(self._work_on(world))
        processed = asyncio.create_task(self._until_processed(world))
        await asyncio.wait((working, processed), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            processed.cancel()
            return working.result()
        world.client(self.name).kill()
        working.cancel()
        await asyncio.wait([working])
        return processed.result()

    async def _until_processed(self, world: World) -> None:
        await world.calm.wait()
        while not await self._is_all_processed(world):
            await asyncio.sleep(LOOK_SECONDS)

    async def _work_on(self, world: World) -> None:
        """Start the service whenever it has ended. Raises RealAccess, because no later start would be better."""
        while True:
            try:
                await world.client(self.name).run(partial(self._service.run, world.bootstrap_servers))
            except Killed:
                world.note(self.name, "is started again")
            except RealAccess:
                raise
            except Exception as error:
                world.note(self.name, "has failed, and is started again", error=f"{type(error).__name__}: {error}")
            await asyncio.sleep(RESTART_SECONDS)

    async def _is_all_processed(self, world: World) -> bool:
        sent = [send for send in self._notes.history.sends if send.offset >= 0]
        if len(sent) < self._service.inputs:
            return False
        found = await _read(world, self._service, f"{self.name}-watcher")
        made = {self._service.made_of(value) for records in _of(found, self._service.into) for _, _, value in records}
        return {send.value for send in sent} <= made


class _OnceEach:
    """Judges that each input was processed exactly once."""

    name = "exactly once"

    def __init__(self, service: Service, notes: Notes) -> None:
        self._service = service
        self._notes = notes

    def look_closely(self, world: World) -> Iterable[str]:
        return ()

    async def conclude(self, world: World) -> Iterable[str]:
        service, history = self._service, self._notes.history
        found = await _read(world, service, "auditor")
        for place, records in found.items():
            history.finally_holds(place, [(offset, value) for offset, _, value in records])
        inputs = {value: (place, offset) for place in found if place.topic == service.source
                  for offset, _, value in found[place]}  # fmt: skip
        noted: set[bytes] = set()
        for place in sorted(place for place in found if place.topic == service.into):
            for _, _, value in found[place]:
                original = service.made_of(value)
                if value not in noted and original in inputs:
                    noted.add(value)
                    send = Send(f"{PROCESSING}, in {place}", place, value)
                    history.derived(send, PROCESSING, *inputs[original])
                    history.sends.append(send)
        for place in (place for place in found if place.topic == service.source):
            history.finally_processed(PROCESSING, place, found[place][-1][0] + 1 if found[place] else 0)
        return [str(each) for each in violations(history)]


async def _read(world: World, service: Service, reader: str) -> Content:
    """Return the content of both topics, as a client reads it when no transaction is open."""
    topics = {service.source: service.partitions, service.into: service.partitions}
    return await world.client(reader).run(lambda: content(world, topics))


def _of(found: Content, topic: str) -> list[list[tuple[int, bytes, bytes]]]:
    return [records for place, records in found.items() if place.topic == topic]
