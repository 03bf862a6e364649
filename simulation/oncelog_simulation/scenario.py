"""The scenario that tests the entire cluster: it has the workloads that a plan names, and all judges. The module also
has functions that draw plans for this scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from oncelog_simulation.drawing import draw_plan, lightened, shortened
from oncelog_simulation.entropy import stream
from oncelog_simulation.judges.committed import Committed
from oncelog_simulation.judges.decisions import Decisions
from oncelog_simulation.judges.durable import Durable
from oncelog_simulation.judges.elections import Elections
from oncelog_simulation.judges.histories import Histories
from oncelog_simulation.judges.laggards import Laggards
from oncelog_simulation.judges.leaders import Leaders
from oncelog_simulation.judges.leases import Leases
from oncelog_simulation.judges.logs import Logs
from oncelog_simulation.judges.resources import Resources
from oncelog_simulation.judges.settings import Settings
from oncelog_simulation.judges.share_locks import ShareLocks
from oncelog_simulation.judges.shared import WORKLOAD as SHARERS
from oncelog_simulation.judges.shared import Shared
from oncelog_simulation.judges.streams_tasks import WORKLOAD as STREAMS_MEMBERS
from oncelog_simulation.judges.streams_tasks import StreamsTasks
from oncelog_simulation.judges.unstable import Unstable
from oncelog_simulation.plan import Plan
from oncelog_simulation.scenes.actors import ALL as ACTORS
from oncelog_simulation.scenes.catalogue import SCENES
from oncelog_simulation.scenes.directing import Directing
from oncelog_simulation.scenes.drawing import draw_directed_plan
from oncelog_simulation.weeks import prolonged
from oncelog_simulation.workloads.catalogue import (
    LONG_LIVED,
    SETTINGS,
    SLEEPERS,
    WORKLOADS,
    draw_workloads,
    with_needed,
)
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.workload import ClientWorkload

if TYPE_CHECKING:
    from oncelog_simulation.run import Judge
    from oncelog_simulation.world import World

FEW_WORKLOADS: Final = 3
"""Number of workloads in a short or light plan, not counting those that are added because others need them."""


class WholeCluster:
    """Implements `run.Scenario`; each run needs its own object."""

    def __init__(self) -> None:
        self.notes = Notes()

    def workloads(self, world: World) -> Sequence[ClientWorkload]:
        """Return the workloads that the plan names, in the order of the catalogue, and then the scene's director and
        actors.
        """
        self.notes.history.clock = lambda: world.now
        named = [make(self.notes, name) for name, make in WORKLOADS.items() if name in world.plan.workloads]
        if not world.plan.scene:
            return named
        scene = SCENES[world.plan.scene]
        actors = [ACTORS[name](self.notes, name) for name in scene.actors]
        return [*named, Directing(self.notes, scene), *actors]

    def judges(self, world: World) -> Sequence[Judge]:
        """Return the judges of the plan in the order in which they conclude. Judges of share groups and streams groups
        are left out if no workload uses such groups, because they would look at nothing in each turn. The judge of the
        history, which uses clients, comes before the judge of the resources, which requires that all clients have
        ended.
        """
        committed = Committed(self.notes)
        with_shares, with_streams = (
            any(name.startswith(prefix) for name in world.plan.workloads) for prefix in (SHARERS, STREAMS_MEMBERS)
        )
        return [
            Leaders(),
            committed,
            Decisions(committed),
            Durable(committed),
            Unstable(),
            Elections(world),
            Leases(world),
            Laggards(),
            *((ShareLocks(self.notes), Shared(self.notes, committed)) if with_shares else ()),
            *((StreamsTasks(self.notes, committed),) if with_streams else ()),
            Histories(self.notes, committed),
            Logs(committed),
            Settings(),
            Resources(),
        ]


def draw_whole_plan(seed: int, workloads: Sequence[str] | None = None, faults: Sequence[str] | None = None) -> Plan:
    """Return the plan of a seed. `workloads`: the workloads of the run, to which the workloads that they need are
    added; None means that the seed draws workloads. `faults`: the kinds of faults to draw from; None means all.
    """
    drawn = draw_workloads if workloads is None else lambda _: with_needed(workloads)
    plan = draw_plan(seed, drawn, faults=faults)
    return replace(plan, settings={**SETTINGS, **plan.settings})


def draw_short_plan(seed: int) -> Plan:
    """Return a plan for tests that run hundreds of plans: `drawing.shortened`, with fewer workloads."""
    return _with_few_workloads(shortened(draw_whole_plan(seed)), "short")


def draw_light_plan(seed: int) -> Plan:
    """Return a plan of up to four hours with few clients and little load: `drawing.lightened`."""
    return _with_few_workloads(lightened(draw_whole_plan(seed)), "light")


def draw_weeks_plan(seed: int) -> Plan:
    """Return a plan of one to ten days with rare load and rare faults: `weeks.prolonged`."""
    plan = prolonged(draw_whole_plan(seed))
    random = stream(seed, "weeks workloads")
    return replace(plan, workloads=with_needed([random.choice(SLEEPERS), *random.sample(LONG_LIVED, FEW_WORKLOADS)]))


def _with_few_workloads(plan: Plan, purpose: str) -> Plan:
    few = stream(plan.seed, purpose).sample(plan.workloads, min(FEW_WORKLOADS, len(plan.workloads)))
    return replace(plan, workloads=with_needed(few))


DRAWN: Final[Mapping[str, Callable[[int], Plan]]] = {
    "whole": draw_whole_plan,
    "short": draw_short_plan,
    "light": draw_light_plan,
    "weeks": draw_weeks_plan,
    "directed": draw_directed_plan,
}
"""The functions that draw a plan from a seed, by the name of the kind of plan."""
