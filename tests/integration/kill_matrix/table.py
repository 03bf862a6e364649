"""The matrix on a page, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kill_matrix.cells import Fault
from kill_matrix.run import Cell, Outcome


def table(library: str, outcomes: Mapping[Cell, Outcome]) -> Iterator[str]:
    """Lines: a row for each moment, a column for each fault. What went wrong stands below, by its number."""
    mine = {cell: outcome for cell, outcome in outcomes.items() if cell.library == library}
    yield f"| {library} | " + " | ".join(Fault) + " |"
    yield "|---" * (1 + len(Fault)) + "|"
    wrong: list[str] = []
    for moment in dict.fromkeys(cell.moment for cell in mine):
        row = [str(moment)]
        for fault in Fault:
            outcome = mine.get(Cell(library, moment, fault))
            row.append("" if outcome is None else _entry(outcome, wrong))
        yield "| " + " | ".join(row) + " |"
    yield ""
    yield from (f"{number}. {text}" for number, text in enumerate(wrong, 1))


def _entry(outcome: Outcome, wrong: list[str]) -> str:
    if outcome.problems:
        wrong.append("; ".join(outcome.problems))
        return f"**wrong ({len(wrong)})**"
    return f"ok {outcome.committed}/{outcome.aborted}"


def count_wrong(outcomes: Iterable[Outcome]) -> int:
    return sum(bool(outcome.problems) for outcome in outcomes)
