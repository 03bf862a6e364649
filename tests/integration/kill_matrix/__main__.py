"""`make kill-matrix`: run the cells, print the table, and keep it where --out says. Ends with 1 if a cell is wrong."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import click

from kill_matrix.cells import LIBRARIES, Fault
from kill_matrix.run import Cell, Outcome, run_cell
from kill_matrix.stage import Stage
from kill_matrix.table import count_wrong, table


async def run_all(cells: list[Cell], directory: Path) -> dict[Cell, Outcome]:
    outcomes = {}
    async with Stage(directory) as stage:
        for number, cell in enumerate(cells, 1):
            outcome = outcomes[cell] = await run_cell(stage, cell)
            found = "; ".join(outcome.problems) or "ok"
            click.echo(
                f"{number}/{len(cells)} {cell}: {found} ({outcome.committed} committed, {outcome.aborted} aborted, "
                f"{outcome.worker_starts} workers, {outcome.seconds:.1f} s)"
            )
    return outcomes


@click.command()
@click.option("--library", "libraries", multiple=True, type=click.Choice(list(LIBRARIES)), default=list(LIBRARIES))
@click.option("--point", "points", multiple=True, help="Only at these points.")
@click.option("--fault", "faults", multiple=True, type=click.Choice(list(Fault)), default=list(Fault))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to keep the table.")
def main(libraries: tuple[str, ...], points: tuple[str, ...], faults: tuple[str, ...], out: Path | None) -> None:
    cells = [
        Cell(library, moment, Fault(fault))
        for library in libraries
        for moment in LIBRARIES[library]
        for fault in faults
        if not points or moment.hit.point in points
    ]
    with tempfile.TemporaryDirectory() as directory:
        outcomes = asyncio.run(run_all(cells, Path(directory)))
    lines = [line for library in libraries for line in (*table(library, outcomes), "")]
    click.echo("\n".join(["", *lines]))
    if out is not None:
        out.write_text("\n".join(lines))
    sys.exit(count_wrong(outcomes.values()) > 0)


main()
