"""Makes a failing plan smaller (fewer strikes, fewer workloads, less time), as long as the same judge finds a violation
in its run.

Each attempt is a separate run with the same seed. A smaller plan that fails in another way than the first plan is not
used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from oncelog_simulation.plan import Plan
from oncelog_simulation.workloads.catalogue import with_needed

T = TypeVar("T")

Fails = Callable[[Plan], str | None]
"""A function that runs a plan and returns the name of the judge that found a violation; None if no judge did."""
MOST_RUNS: Final = 100
"""Limit on the number of runs for shrinking one plan."""
SHORTER: Final = (0.5, 0.75, 0.9)
"""Fractions of a plan's duration; shrinking tries to reduce the duration to each of them."""


def shrink(plan: Plan, fails: Fails, most_runs: int = MOST_RUNS) -> Plan:
    """Return the smallest plan found in which the same judge finds a violation as in `plan`. Returns `plan` itself if
    there is no such smaller plan, or if `plan` does not fail.
    """
    wanted = fails(plan)
    if wanted is None:
        return plan
    left = most_runs
    is_smaller = True
    while is_smaller and left > 0:
        is_smaller = False
        for smaller in _smaller_plans(plan):
            left -= 1
            if fails(smaller) == wanted:
                plan, is_smaller = smaller, True
                break
            if left <= 0:
                break
    return plan


def _smaller_plans(plan: Plan) -> Iterator[Plan]:
    """Yield smaller plans, the smallest ones first."""
    for strikes in without_parts(plan.strikes):
        yield replace(plan, strikes=tuple(strikes))
    for names in without_parts(plan.workloads):
        kept = with_needed(names)
        if len(kept) < len(plan.workloads):
            yield replace(plan, workloads=kept)
    for share in SHORTER:
        seconds = round(plan.seconds * share, 3)
        if seconds >= 1.0:
            yield replace(plan, seconds=seconds, strikes=tuple(each for each in plan.strikes if each.at < seconds))


def without_parts(items: Sequence[T]) -> Iterator[list[T]]:
    """Yield shorter lists: the list without one of its halves, then without one of its quarters, and so on, at last
    without one item.
    """
    size = len(items)
    while size > 1:
        size = (size + 1) // 2
        for start in range(0, len(items), size):
            yield [*items[:start], *items[start + size :]]
    if len(items) == 1:
        yield []
