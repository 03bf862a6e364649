"""Tests the soak with Spark: its judge finds each kind of violation, its plan depends only on the seed, and a short
soak runs.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from spark_soak.judge import Verdict, judged
from spark_soak.orders import ROUND_MS, WINDOW_MS, Order, Window, closing_orders, round_of_orders, windows_of
from spark_soak.plan import Kind, plan
from spark_soak.report import page
from spark_soak.run import Result, Run

ROUNDS = 3 * WINDOW_MS // ROUND_MS


def orders() -> list[Order]:
    """Return orders of three windows, including late and closing orders."""
    dice, found = Random(7), list[Order]()
    for number in range(ROUNDS):
        found += round_of_orders(number, len(found), dice, with_late=True)
    return found + closing_orders(len(found), 4)


SOURCE = orders()
RIGHT = list(windows_of(SOURCE).values())
COMMITTED = {order.number for order in SOURCE}


def verdict(target: list[Window], source: list[Order] = SOURCE, aborted: frozenset[int] = frozenset()) -> Verdict:
    return judged([Order.from_value(each.value) for each in source], target, COMMITTED, aborted)


def test_a_correct_run_is_judged_correct() -> None:
    found = verdict(RIGHT)
    assert found.is_right
    in_windows = [order for order in SOURCE if not order.is_late and not order.is_closing]
    assert (found.windows, found.rows) == (len(RIGHT), len(in_windows))
    assert any(order.is_late for order in SOURCE)


def without_its_first_order(window: Window) -> Window:
    return window._replace(rows=window.rows - 1, numbers=window.numbers[1:])


@pytest.mark.parametrize(
    ("target", "lost", "twice", "wrong", "rows_lost", "rows_twice"),
    [
        (RIGHT[1:], 1, 0, 0, RIGHT[0].rows, 0),
        ([*RIGHT, RIGHT[0]], 0, 1, 0, 0, RIGHT[0].rows),
        ([without_its_first_order(RIGHT[0]), *RIGHT[1:]], 0, 0, 1, 1, 0),
        ([RIGHT[0]._replace(amount=0), *RIGHT[1:]], 0, 0, 1, 0, 0),
        ([*RIGHT, Window(0, "customer 0", 1, 1, (-1,))], 0, 0, 1, 0, 0),
    ],
    ids=["lost", "twice", "order missing", "sum", "window of late orders"],
)
def test_each_violation_is_counted(
    target: list[Window], lost: int, twice: int, wrong: int, rows_lost: int, rows_twice: int
) -> None:
    found = verdict(target)
    assert not found.is_right
    assert (found.lost, found.twice, found.wrong) == (lost, twice, wrong)
    assert (found.rows_lost, found.rows_twice) == (rows_lost, rows_twice)
    assert found.examples


def test_a_wrong_source_is_reported() -> None:
    assert verdict(RIGHT, SOURCE[1:]).source_lost == 1
    assert verdict(RIGHT, [*SOURCE, SOURCE[0]]).source_wrong == 1
    assert verdict(RIGHT, aborted=frozenset({SOURCE[0].number})).source_wrong == 1


def test_a_seed_determines_its_deaths() -> None:
    deaths = dict.fromkeys(Kind, 10)
    assert plan(1, deaths) == plan(1, deaths)
    assert plan(1, deaths) != plan(2, deaths)
    assert Counter(each.kind for each in plan(1, deaths)) == deaths


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_a_short_soak_loses_nothing(tmp_path: Path) -> None:
    result = Run(1, dict.fromkeys(Kind, 2), 20.0, tmp_path, print).play()
    assert result.problems == []
    assert result.deaths == dict.fromkeys(Kind, 2)
    assert result.verdict is not None
    assert result.verdict.windows > 0


def test_a_run_that_was_not_judged_has_a_row() -> None:
    (row,) = [line for line in page([Result(7, problems=["stuck"])]) if line.startswith("| 7 |")]
    assert "not judged" in row
