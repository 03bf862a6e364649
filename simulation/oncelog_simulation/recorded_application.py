"""A user's application of any kind in the simulated world: it records in a history what it writes, and a judge compares
the history with the content of the topics.

    check_application(lambda: Application(Outbox().run, {"orders": 2}), seeds=range(1, 21))

`application` is for services that make one output from each input, which need no history of their own. The application
sees virtual time; it is killed and restarted while brokers fail, until it returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from oncelog_simulation.application import RESTART_SECONDS, SERVICE_FAULTS, plan_of_service
from oncelog_simulation.guard import RealAccess
from oncelog_simulation.judges.content import content
from oncelog_simulation.machine import Killed
from oncelog_simulation.run import Judge, Outcome, Workload, run
from oncelog_simulation.story import tell
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.workload import make_topic
from oncelog_testing.history.checker import violations
from oncelog_testing.history.recorder import History

if TYPE_CHECKING:
    from oncelog_simulation.world import World

__tracebackhide__ = True  # hides this module in the traceback of a failed test

NAME = "application"


@dataclass(frozen=True)
class Application:
    """An application under test. `run` is called with the bootstrap servers and the history, and returns when its work
    is done. It is called again after each kill and each exception, so what must survive, such as a simulated database,
    belongs to the object whose method it is.
    """

    run: Callable[[str, History], Coroutine[Any, Any, None]]
    topics: Mapping[str, int]
    """The number of partitions of each topic; the topics exist before `run` is called, and are read at the end."""


def check_application(
    make: Callable[[], Application], seeds: Iterable[int], *, faults: Sequence[str] = SERVICE_FAULTS
) -> None:
    """Run a new application, which `make` creates, in a simulated world for each of the seeds. Raises AssertionError
    with the story of the first seed in which the topics do not agree with the history, or in which the application does
    not return. Raises RealAccess if the application uses the real machine.
    """
    for seed in seeds:
        scenario = _Scenario(make())
        outcome = run(plan_of_service(seed, (NAME,), faults), scenario)
        if outcome.violations:
            raise AssertionError(_story(outcome, scenario.notes, seed))


def _story(outcome: Outcome, notes: Notes, seed: int) -> str:
    return tell(outcome, notes, again=f"check_application(..., seeds=[{seed}])")


class _Scenario:
    """Implements `run.Scenario`."""

    def __init__(self, application: Application) -> None:
        self.notes = Notes()
        self._application = application

    def workloads(self, world: World) -> Sequence[Workload]:
        self.notes.history.clock = lambda: world.now
        world.outsiders.add(NAME)
        return [_Running(self._application, self.notes)]

    def judges(self, world: World) -> Sequence[Judge]:
        return [_HistoryJudge(self.notes)]


class _Running:
    """Runs the application, again and again until it returns."""

    name = NAME

    def __init__(self, application: Application, notes: Notes) -> None:
        self._application = application
        self._notes = notes

    async def prepare(self, world: World) -> None:
        for topic, partitions in self._application.topics.items():
            await make_topic(world, self._notes, topic, partitions)

    async def work(self, world: World) -> None:
        run_once = partial(self._application.run, world.bootstrap_servers, self._notes.history)
        while True:
            try:
                return await world.client(NAME).run(run_once)
            except Killed:
                world.note(NAME, "is started again")
            except RealAccess:
                raise
            except Exception as error:
                world.note(NAME, "has failed, and is started again", error=f"{type(error).__name__}: {error}")
            await asyncio.sleep(RESTART_SECONDS)


class _HistoryJudge:
    """Judges that the topics have what the history says."""

    name = "history"

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def look_closely(self, world: World) -> Iterable[str]:
        return ()

    async def conclude(self, world: World) -> Iterable[str]:
        history = self._notes.history
        found = await world.client("auditor").run(lambda: content(world, self._notes.topics))
        for place, records in found.items():
            history.finally_holds(place, [(offset, value) for offset, _, value in records])
        return [str(each) for each in violations(history)]
