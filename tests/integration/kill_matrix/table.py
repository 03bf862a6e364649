"""Prints the matrix as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kill_matrix.cells import Cell, Fault
from kill_matrix.run import Outcome

TITLES = {
    "aiokafka": "aiokafka, transactions V1",
    "oncelog": "oncelog, transactions V2",
    "oncelog-v1": "oncelog, transactions V1",
    "oncelog-consumer": "oncelog, a group of the consumer protocol (KIP-848)",
    "oncelog-2pc": "oncelog, prepared transactions (KIP-939)",
    "oncelog-streams": "oncelog, two members of a streams group (KIP-1071)",
}


def page(outcomes: Mapping[Cell, Outcome]) -> Iterator[str]:
    """Yield the lines of the page: one table for each library and for each outcome (commit, abort) of the transaction
    that the fault strikes.
    """
    wrong = count_wrong(outcomes.values())
    yield f"{len(outcomes)} runs, {wrong} of them wrong."
    for library, aborts in dict.fromkeys((cell.library, cell.aborts) for cell in outcomes):
        mine = {cell: found for cell, found in outcomes.items() if (cell.library, cell.aborts) == (library, aborts)}
        yield from (
            "",
            f"## {TITLES[library]}, the fault in a transaction that {'aborts' if aborts else 'commits'}",
            "",
        )
        yield from _table(mine)


def _table(outcomes: Mapping[Cell, Outcome]) -> Iterator[str]:
    """Yield the lines of a table with a row for each moment and a column for each fault. Failures are listed below the
    table, by number.
    """
    cells = {(cell.moment, cell.fault): outcome for cell, outcome in outcomes.items()}
    faults = [fault for fault in Fault if any(fault is found for _, found in cells)]
    yield "| | " + " | ".join(faults) + " |"
    yield "|---" * (1 + len(faults)) + "|"
    wrong: list[str] = []
    for moment in dict.fromkeys(moment for moment, _ in cells):
        yield "| " + " | ".join([str(moment), *(_entry(cells[moment, fault], wrong) for fault in faults)]) + " |"
    if wrong:
        yield ""
        yield from (f"{number}. {text}" for number, text in enumerate(wrong, 1))


def _entry(outcome: Outcome, wrong: list[str]) -> str:
    if outcome.problems:
        wrong.append("; ".join(outcome.problems))
        return f"**wrong: {len(wrong)}**"
    return f"ok {outcome.committed}/{outcome.aborted}"


def count_wrong(outcomes: Iterable[Outcome]) -> int:
    return sum(bool(outcome.problems) for outcome in outcomes)
