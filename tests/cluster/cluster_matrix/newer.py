"""Implements the second part of `make kill-matrix-cluster`: runs the cells of the newer protocols, prints their tables,
and writes them to the end of the file of --out. The exit code is 1 if a cell has failed.

--results is a file to which each outcome is added as a line of JSON, so that the matrix can be run in parts: the tables
have the outcomes of all parts, and the last outcome of a cell that was run again.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from cluster_matrix.newer_cells import TITLES, Kill, NewerCell, NewerOutcome, all_newer_cells, count_wrong, tables
from cluster_matrix.newer_run import NewerStage

TITLE = "# Kill matrix of the newer protocols\n"
HEAD = f"""{TITLE}
Written by `make kill-matrix-cluster`, too. Each cell is a live run with three brokers on ZooKeeper and three replicas
of each partition. A program consumes, processes and produces 16 records over three partitions, in transactions of 4
records and their offsets; or a share group accepts 12 records. After a first part, one broker is killed at one step of
the rest, which includes the start of the program: the broker that executes the step ("before" and "after" the step, or
when a request has arrived, or before its answer); or, while the executing broker is paused at the step, the coordinator
that keeps the group's progress (the group coordinator; of a share group the share coordinator), or the controller.
The killed broker is restarted after the program has ended, so other brokers must take over its roles. The column
*coordinator killed* is empty where a coordinator of the group executes the step.

*ok* means that aiokafka and librdkafka, reading committed records, both see every input exactly once and every
transaction completely; that the last stable offset is at the end of each log; that the group has consumed all input;
and that no two members of a streams group got one task in the same epoch. The two numbers are the transactions with
committed records, and the transactions with aborted records. For share groups, *ok* and the number mean the same as in
[the kill matrix](kill-matrix.md).
"""
Outcomes = dict[NewerCell, NewerOutcome]


def with_newer_tables(page: str, lines: list[str]) -> str:
    """Return the page with the part about newer protocols replaced, or added at the end."""
    return "\n".join([page.partition(TITLE)[0].rstrip("\n"), "", HEAD, *lines, ""])


def stored(results: Path) -> Outcomes:
    """Return the outcomes of a file of results."""
    found: Outcomes = {}
    for line in results.read_text().splitlines() if results.exists() else ():
        (work, point, is_after, kill), outcome = json.loads(line)
        found[NewerCell(work, point, is_after, Kill(kill))] = NewerOutcome(*outcome)
    return found


def run_all(
    cells: list[NewerCell], directory: Path, done: Callable[[NewerCell, NewerOutcome], None] = lambda *_: None
) -> Outcomes:
    outcomes: Outcomes = {}
    with NewerStage(directory) as stage:
        for number, cell in enumerate(cells, 1):
            outcome = outcomes[cell] = stage.run(cell)
            done(cell, outcome)
            found = "; ".join(outcome.problems) or f"ok {outcome.what}"
            click.echo(f"{number}/{len(cells)} {cell}: {found}, {outcome.seconds:.1f} s")
            if outcome.problems:
                click.echo("\n".join(stage.last_words()))
    return outcomes


@click.command()
@click.option("--work", "works", multiple=True, type=click.Choice(list(TITLES)), default=list(TITLES))
@click.option("--point", "points", multiple=True, help="Only at these points.")
@click.option("--killed", "kills", multiple=True, type=click.Choice([kill.name.lower() for kill in Kill]))
@click.option("--results", type=click.Path(dir_okay=False, path_type=Path), help="The file that keeps all outcomes.")
@click.option("--missing", is_flag=True, help="Only the cells without an outcome, or with a wrong one, in --results.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="The page to which the tables are written."
)
def main(
    works: tuple[str, ...],
    points: tuple[str, ...],
    kills: tuple[str, ...],
    results: Path | None,
    missing: bool,
    out: Path | None,
) -> None:
    known = stored(results) if results is not None else {}
    cells = [
        cell
        for cell in all_newer_cells()
        if cell.work in works
        and (not points or cell.point in points)
        and (not kills or cell.kill.name.lower() in kills)
        and not (missing and cell in known and not known[cell].problems)
    ]

    def done(cell: NewerCell, outcome: NewerOutcome) -> None:
        if results is not None:
            with results.open("a") as file:
                file.write(json.dumps([cell, outcome]) + "\n")

    found: Outcomes = {}
    if cells:
        with tempfile.TemporaryDirectory() as directory:
            found = run_all(cells, Path(directory), done)
    all_found = {**known, **found}
    lines = list(tables({cell: all_found[cell] for cell in all_newer_cells() if cell in all_found}))
    click.echo("\n".join(["", *lines]))
    if out is not None:
        out.write_text(with_newer_tables(out.read_text(), lines))
    sys.exit(count_wrong(found.values()) > 0)


if __name__ == "__main__":
    main()
