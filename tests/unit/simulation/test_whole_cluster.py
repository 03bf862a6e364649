"""In a simulated cluster without defects, the workloads make progress and end, the faults take effect, and no guarantee
is violated.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from oncelog_simulation.drawing import shortened
from oncelog_simulation.plan import Plan, Strike
from oncelog_simulation.run import Outcome, run
from oncelog_simulation.scenario import WholeCluster, draw_light_plan, draw_whole_plan
from oncelog_simulation.workloads.catalogue import SETTINGS, with_needed

ALL_BROKERS = ("broker-1", "broker-2", "broker-3")


def played(workloads: Sequence[str], *strikes: Strike, directories: int = 1) -> tuple[Outcome, WholeCluster]:
    plan = Plan(
        seed=5,
        seconds=5.0,
        settings=dict(SETTINGS),
        directories=directories,
        strikes=strikes,
        workloads=with_needed(workloads),
    )
    scenario = WholeCluster()
    return run(plan, scenario), scenario


@pytest.mark.parametrize(
    "workload",
    [
        "ghost-1",
        "newer-ghost-1",
        "repeater-1",
        "late-peer-1",
        "stranger-1",
        "two-phase-1",
        "newer-member-1",
        "mixed-member-1",
        "sharer-1",
        "streams-member-1",
        "passing-writer",
        "careless-writer",
        "table-writer",
    ],
)
def test_a_workload_makes_progress_and_ends(workload: str) -> None:
    outcome, scenario = played([workload])
    assert outcome.violations == ()
    assert scenario.notes.steps(workload) > 0


def test_no_story_of_a_ghost_is_broken_off_without_faults() -> None:
    """Seed 401643 (short): the join of one member blocked the requests of the other member on the same connection."""
    outcome, scenario = played(["ghost-1", "ghost-2"])
    assert scenario.notes.steps("ghost-1") > 1
    assert not [line for line in outcome.timeline.lines() if "broken off" in line]


@pytest.mark.parametrize(
    ("fault", "machines"),
    [
        ("kill of all", ALL_BROKERS),
        ("kill a leader", ("leader",)),
        ("kill the controller", ("store",)),
        ("rolling restart", ALL_BROKERS),
        ("flapping", ALL_BROKERS),
        ("leadership flaps", ("leader",)),
        ("late messages", ("leader",)),
        ("stalled streams", ("broker-2",)),
        ("store put back", ("store",)),
        ("last store server dies", ("broker-2",)),
        ("directory fails", ("broker-2",)),
        ("disks in turn", ("broker-2", "broker-3")),
        ("older disk", ("broker-2",)),
    ],
)
def test_a_fault_strikes_and_costs_no_record(fault: str, machines: tuple[str, ...]) -> None:
    strikes = [Strike(at, fault, machines, 1.0, 0.4) for at in (0.6, 1.1, 2.6)]
    outcome, _ = played(["writer-1", "payer-1"], *strikes, directories=2)
    assert outcome.violations == ()
    assert outcome.struck.get(fault, 0) > 0


def test_some_seeds_are_long_and_none_is_in_the_short_run() -> None:
    plans = [draw_whole_plan(seed) for seed in range(1, 101)]
    assert 2 <= sum(plan.seconds > 60 for plan in plans) <= 25
    assert max(shortened(plan).seconds for plan in plans) <= 8.0


def test_light_plans_repeat_the_faults_of_the_seed_about_every_hour_for_up_to_four_hours() -> None:
    for seed in range(1, 51):
        whole, light = draw_whole_plan(seed), draw_light_plan(seed)
        rounds = max(1, round(light.seconds / 3600))
        assert [strike.fault for strike in light.strikes] == rounds * [strike.fault for strike in whole.strikes]
        assert light.strikes == tuple(sorted(light.strikes, key=lambda strike: strike.at))
        assert all(0 <= strike.at <= light.seconds for strike in light.strikes)
        assert 1800 <= light.seconds <= 14400
        assert light.pace > whole.pace


def test_a_broker_stops_also_if_the_faults_end_meanwhile() -> None:
    outcome, _ = played(["writer-1"], Strike(4.98, "stop", ("broker-1",), 1.0, 0.4))
    assert outcome.violations == ()
    calm, stopped = (
        next(float(line.split()[0]) for line in outcome.timeline.lines() if what in line)
        for what in ("calm: all faults are over", "broker-1     has stopped")
    )
    assert calm < stopped < calm + 5
