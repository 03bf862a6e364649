"""A failing plan is reduced as long as it fails in the same way."""

from __future__ import annotations

from oncelog_simulation.plan import Plan, Strike
from oncelog_simulation.shrink import shrink, without_parts

PLAN = Plan(
    seed=7,
    seconds=16.0,
    strikes=tuple(Strike(float(number), "kill", (f"broker-{number % 3 + 1}",)) for number in range(8)),
    workloads=("writer-1", "writer-2", "payer-1", "member-1", "mover"),
)


def test_unneeded_faults_are_removed() -> None:
    def fails(plan: Plan) -> str | None:
        needed = {3.0, 5.0} <= {strike.at for strike in plan.strikes} and "payer-1" in plan.workloads
        return "committed" if needed else None

    smallest = shrink(PLAN, fails)
    assert [strike.at for strike in smallest.strikes] == [3.0, 5.0]
    assert smallest.workloads == ("payer-1",)
    assert 5.0 < smallest.seconds < 7.0
    assert smallest.seed == PLAN.seed


def test_workloads_keep_the_faults_that_they_need() -> None:
    smallest = shrink(PLAN, lambda plan: "liveness" if "member-1" in plan.workloads else None)
    assert smallest.workloads == ("writer-1", "member-1")
    assert smallest.strikes == ()


def test_a_plan_that_fails_in_another_way_does_not_count() -> None:
    def fails(plan: Plan) -> str | None:
        return "committed" if plan == PLAN else "history"

    assert shrink(PLAN, fails) == PLAN


def test_a_plan_that_does_not_fail_stays() -> None:
    assert shrink(PLAN, lambda _: None) is PLAN


def test_shrinking_makes_no_more_runs_than_allowed() -> None:
    runs = []

    def fails(plan: Plan) -> str | None:
        runs.append(plan)
        return "committed"

    shrink(PLAN, fails, most_runs=3)
    assert len(runs) == 4  # the first run is that of the plan itself


def test_halves_come_before_single_ones() -> None:
    assert list(without_parts("abcd")) == [["c", "d"], ["a", "b"], ["b", "c", "d"], ["a", "c", "d"],
                                           ["a", "b", "d"], ["a", "b", "c"]]  # fmt: skip
    assert list(without_parts("a")) == [[]]
    assert list(without_parts("")) == []
