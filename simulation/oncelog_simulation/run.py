"""Runs a plan in four phases: start, work under faults, calm (no faults any more), judgement. docs/design/simulation.md
describes the phases.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from oncelog_broker.coordinator.later_imports import import_steps
from oncelog_broker.runtime.disk_troubles import DISK_TROUBLES
from oncelog_simulation.clock import HostClock
from oncelog_simulation.faults.catalogue import FAULTS, end_all
from oncelog_simulation.guard import guarded
from oncelog_simulation.judges.damage import has_only_damaged
from oncelog_simulation.judges.last_look import DIRECTOR, assignments_noted
from oncelog_simulation.log_lines import log_lines_noted
from oncelog_simulation.loop import collect_remains, complaints_ignored
from oncelog_simulation.machine import BrokerMachine
from oncelog_simulation.operator import tend
from oncelog_simulation.plan import Plan, Strike
from oncelog_simulation.process import Process
from oncelog_simulation.timeline import Timeline
from oncelog_simulation.world import Violation, World

if TYPE_CHECKING:
    from oncelog_broker.broker import Broker

START_SECONDS: Final = 60.0
"""Virtual seconds, without faults, in which all brokers must serve and all workloads must be prepared."""
CALM_SECONDS: Final = 180.0
"""Virtual seconds after the faults in which all brokers must serve and each workload must end."""
CONCLUDE_SECONDS: Final = 200.0
"""Virtual seconds that the method `conclude` of each judge may take after all workloads have ended; taking longer
counts as a violation. The judge `history` waits up to 90 s for the replicas, and then up to 90 s for open transactions.
"""
LOOK_SECONDS: Final = 0.25
"""Virtual seconds between two calls of `look_closely` of each judge."""


class Workload(Protocol):
    """Interface of a workload: the actions of one client in a run."""

    @property
    def name(self) -> str: ...

    async def prepare(self, world: World) -> None:
        """Create what the workload needs, before any fault strikes."""

    async def work(self, world: World) -> None:
        """Work until `world.calm` is set, and return soon after that."""


class Judge(Protocol):
    """Checks a rule, and reports each violation as text."""

    @property
    def name(self) -> str: ...

    def look_closely(self, world: World) -> Iterable[str]:
        """Return the violations since the last call; called every LOOK_SECONDS."""

    async def conclude(self, world: World) -> Iterable[str]:
        """Yield the violations; called when all workloads have ended. This method may use clients."""


@runtime_checkable
class Onlooker(Protocol):
    """A judge that also checks the effects of every single iteration of a broker."""

    @property
    def name(self) -> str: ...

    @property
    def sees_only_partitions(self) -> bool:
        """Whether `look` depends only on the broker's partitions, the settings of topics, the metadata store and power
        cuts; `look` is then not called as long as none of these has changed.
        """

    def look(self, world: World, machine: BrokerMachine) -> Iterable[str]:
        """Yield the violations; called after each iteration in which this machine's broker has run code, so the call
        must be cheap, above all if nothing has changed.
        """


class Scenario(Protocol):
    """Creates the workloads and judges that a plan names."""

    def workloads(self, world: World) -> Sequence[Workload]: ...

    def judges(self, world: World) -> Sequence[Judge]: ...


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    plan: Plan
    timeline: Timeline
    violations: tuple[Violation, ...]
    struck: Mapping[str, int]
    """The number of strikes that had an effect, by kind of fault."""
    virtual_seconds: float
    turns: int
    """The number of iterations of all processes."""
    digest: str
    """The sha256 of the timeline, in hex."""


def run(plan: Plan, scenario: Scenario) -> Outcome:
    """Run the plan; returns the outcome. Raises errors of the simulation itself, such as RealAccess."""
    with complaints_ignored():
        try:
            return _run(plan, scenario)
        finally:
            collect_remains()


def _run(plan: Plan, scenario: Scenario) -> Outcome:
    _freeze()
    world = World(plan)
    for _ in import_steps():
        pass  # the first run in a process would import these modules in steps, at other times than all later runs
    try:
        # DISK_TROUBLES is the only state that all brokers in one Python process share.
        DISK_TROUBLES.begin_anew(HostClock(lambda: world.loop.here))
        with guarded(world.loop), log_lines_noted(world), assignments_noted(world):
            world.loop.run_until_complete(_play(world, scenario))
            world.note("world", "ends", turns=world.loop.turns, fingerprint=world.loop.fingerprint)
            digest = world.timeline.digest()
            outcome = Outcome(
                plan,
                world.timeline,
                tuple(world.violations),
                dict(world.struck),
                world.now,
                world.loop.turns,
                digest,
            )
            world.end()
        return outcome
    finally:
        if not world.loop.is_closed():
            world.end()


@cache
def _freeze() -> None:
    """Exclude objects that existed before the first run, such as all imported modules, from the garbage collections at
    the end of runs.
    """
    gc.collect()
    gc.freeze()


async def _play(world: World, scenario: Scenario) -> None:
    judges = scenario.judges(world)
    supervisors = [asyncio.create_task(machine.supervise()) for machine in world.brokers.values()]
    workloads = scenario.workloads(world)
    if not await _prepare(world, workloads):
        return
    world.note("world", "workloads begin", names=",".join(workload.name for workload in workloads))
    world.loop.after_turn = _Looking(world, [judge for judge in judges if isinstance(judge, Onlooker)]).after_turn
    looking = asyncio.create_task(_look_closely(world, judges))
    working = {asyncio.create_task(workload.work(world)): workload for workload in workloads}
    await _strike_all(world)
    world.note("world", "calm: all faults are over")
    end_all(world)
    world.calm.set()
    operator = asyncio.create_task(tend(world))
    await _await_workloads(world, working)
    looking.cancel()
    world.loop.after_turn = None
    for judge in judges:
        await _conclude(world, judge)
    for task in (*supervisors, operator):
        task.cancel()


async def _prepare(world: World, workloads: Sequence[Workload]) -> bool:
    """Return whether everything is ready in time."""
    limit = START_SECONDS * world.plan.leisure
    try:
        async with asyncio.timeout(limit):
            await _until_serving(world)
            for workload in workloads:
                await workload.prepare(world)
    except TimeoutError:
        world.violate("start", f"not ready after {limit:g} s; {_states(world)}")
        return False
    return True


async def _until_serving(world: World) -> None:
    while not all(machine.is_serving for machine in world.brokers.values()):
        await asyncio.sleep(0.05)


def _states(world: World) -> str:
    return "; ".join(
        f"{machine.name} {'serves' if machine.is_serving else f'does not serve ({machine.trouble})'}"
        for machine in world.brokers.values()
    )


async def _strike_all(world: World) -> None:
    """Execute all strikes, until the time of the workloads is over."""
    strikes = [asyncio.create_task(_strike(world, strike)) for strike in world.plan.strikes]
    await asyncio.sleep(world.plan.seconds)
    for each in strikes:
        each.cancel()
    for ended in await asyncio.gather(*strikes, return_exceptions=True):
        if isinstance(ended, BaseException) and not isinstance(ended, asyncio.CancelledError):
            raise ended


async def _strike(world: World, strike: Strike) -> None:
    await asyncio.sleep(strike.at)
    world.striking[strike] = None
    try:
        if await FAULTS[strike.fault].act(world, strike):
            world.count(strike.fault)
    finally:
        world.striking.pop(strike, None)


async def _await_workloads(world: World, working: Mapping[asyncio.Task[None], Workload]) -> None:
    began, limit = world.now, CALM_SECONDS * world.plan.leisure
    with suppress(TimeoutError):
        async with asyncio.timeout(limit):
            await _until_serving(world)
            if working:
                await asyncio.wait(working)
            await _until_serving(world)  # a judge may be called while the operator restarts a broker
    if not all(machine.is_serving for machine in world.brokers.values()):
        world.violate("liveness", f"{limit:g} s after the faults: {_states(world)}")
    for task, workload in working.items():
        if not task.done():
            if not has_only_damaged(world):
                world.violate("liveness", f"{workload.name} has not ended {limit:g} s after the faults")
            task.cancel()
        elif not task.cancelled() and (error := task.exception()) is not None:
            raise error
    world.note("world", "workloads have ended", seconds=round(world.now - began, 3))


async def _conclude(world: World, judge: Judge) -> None:
    limit = CONCLUDE_SECONDS * world.plan.leisure
    try:
        async with asyncio.timeout(limit):
            for what in await judge.conclude(world):
                world.violate(judge.name, what)
    except TimeoutError:
        world.violate(judge.name, f"could not conclude within {limit:g} s")


class _Seen:
    """The values at the last look at a broker by the judges that see only partitions. While the values are the same,
    these judges would find nothing new. `own` and `directors` are the numbers of assignments by the broker and by the
    director (`judges.last_look`).
    """

    __slots__ = ("broker", "directors", "metadata", "own", "power_cuts", "topic_configs", "zxid")

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.metadata = broker.parts.membership.metadata
        self.own = self.directors = self.zxid = self.power_cuts = -1
        self.topic_configs: object = None


class _Looking:
    """Calls the onlookers after each turn that may have changed what they see: a turn in which the broker has run code,
    or before which the metadata store was written or a machine lost its power.
    """

    def __init__(self, world: World, onlookers: Sequence[Onlooker]) -> None:
        self._world = world
        self._all = [(judge.look, judge.name) for judge in onlookers]
        self._others = [(judge.look, judge.name) for judge in onlookers if not judge.sees_only_partitions]
        self._zxid = -1
        self._power_cuts = -1
        self._seen: dict[str, _Seen] = {}
        """Maps the name of each broker's machine to what was seen at the last look."""

    def after_turn(self, process: Process, has_run_code: bool) -> None:
        world = self._world
        zxid, power_cuts = world.store.zxid, world.power_cuts
        if not has_run_code and zxid == self._zxid and power_cuts == self._power_cuts:
            return
        self._zxid, self._power_cuts = zxid, power_cuts
        host = process.host
        machine = world.brokers[host]
        looks = self._all
        broker, assigned = machine.broker, world.assigned
        if broker is not None and assigned is not None:
            seen = self._seen.get(host)
            if seen is None or seen.broker is not broker:
                seen = self._seen[host] = _Seen(broker)
            topic_configs = seen.metadata.image.topic_configs
            own, directors = len(assigned[host]), len(assigned[DIRECTOR])
            if (
                seen.own == own
                and seen.directors == directors
                and seen.zxid == zxid
                and seen.power_cuts == power_cuts
                and seen.topic_configs is topic_configs
            ):
                looks = self._others
            else:
                seen.own, seen.directors, seen.zxid = own, directors, zxid
                seen.power_cuts, seen.topic_configs = power_cuts, topic_configs
        for look, name in looks:
            for what in look(world, machine):
                world.violate(name, what)


async def _look_closely(world: World, judges: Sequence[Judge]) -> None:
    leisure = world.plan.leisure
    while True:
        await asyncio.sleep(LOOK_SECONDS * leisure)
        for judge in judges:
            for what in judge.look_closely(world):
                world.violate(judge.name, what)
