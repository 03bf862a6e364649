"""Prints the matrix as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cluster_matrix.cells import Cell, Victims
from cluster_matrix.run import Outcome

TITLES = {
    "oncelog": "oncelog, transactions V2",
    "oncelog-v1": "oncelog, transactions V1",
    "librdkafka": "librdkafka, transactions V1",
}


def page(outcomes: Mapping[Cell, Outcome]) -> Iterator[str]:
    """Yield the lines of the page: one table for each library and for each outcome (commit, abort) of the transaction
    in which the kill occurs.
    """
    seconds = sorted(outcome.seconds for outcome in outcomes.values())
    middle, longest = (seconds[len(seconds) // 2], seconds[-1]) if seconds else (0.0, 0.0)
    yield f"{len(outcomes)} runs, {count_wrong(outcomes.values())} of them wrong."
    yield f"Half of them took up to {middle:.0f} s, the longest {longest:.0f} s."
    wrong: list[str] = []
    for library, aborts in dict.fromkeys((cell.library, cell.aborts) for cell in outcomes):
        mine = {cell: found for cell, found in outcomes.items() if (cell.library, cell.aborts) == (library, aborts)}
        yield from (
            "",
            f"## {TITLES[library]}, the strike in a transaction that {'aborts' if aborts else 'commits'}",
            "",
        )
        yield from _table(mine, wrong)
    if wrong:
        yield ""
        yield from (f"{number}. {text}" for number, text in enumerate(wrong, 1))


def _table(outcomes: Mapping[Cell, Outcome], wrong: list[str]) -> Iterator[str]:
    """Yield the lines of a table with a row for each moment and a column for each choice of victims."""
    cells = {(cell.when, cell.point, cell.victims): outcome for cell, outcome in outcomes.items()}
    columns = [victims for victims in Victims if any(victims is found for *_, found in cells)]
    yield "| | " + " | ".join(columns) + " |"
    yield "|---" * (1 + len(columns)) + "|"
    for when, point in dict.fromkeys((when, point) for when, point, _ in cells):
        entries = (_entry(cells.get((when, point, victims)), wrong) for victims in columns)
        yield f"| {when} {point} | " + " | ".join(entries) + " |"


def _entry(outcome: Outcome | None, wrong: list[str]) -> str:
    if outcome is None:
        return ""
    if outcome.problems:
        wrong.append("; ".join(" ".join(problem.split()) for problem in outcome.problems))
        return f"**wrong: {len(wrong)}**"
    return f"{'clings' if outcome.clung else 'ok'} {outcome.committed}/{outcome.aborted}"


def count_wrong(outcomes: Iterable[Outcome]) -> int:
    return sum(bool(outcome.problems) for outcome in outcomes)
