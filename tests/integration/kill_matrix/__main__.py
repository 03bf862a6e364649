"""`make kill-matrix`: run the cells, print the tables, keep them where --out says. Ends with 1 if a cell is wrong."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import click

from kill_matrix.cells import LIBRARIES, Cell, Fault, all_cells
from kill_matrix.run import Outcome, run_cell
from kill_matrix.stage import Stage
from kill_matrix.table import count_wrong, page

FAULTS = [fault.value for fault in Fault]
HEAD = """# Kill matrix

Written by `make kill-matrix`. Each cell is a live run of consume-process-produce: 16 records, 4 in a transaction, their
offsets in it too, over two partitions. One fault strikes before or after one step of the second transaction (`#2`: the
second such step of it) while the process that is there stands still. Whoever was killed is started again, and the run
goes on to its end.

*ok* means that aiokafka and librdkafka, reading what is committed, both see every input exactly once and every
transaction whole; that the last stable offset is at the end of each log; and that the group is at the end of its input.
The numbers are the transactions whose records were committed, and those whose records were aborted.
"""


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
            if outcome.problems:
                click.echo("\n".join(stage.last_words()))
    return outcomes


@click.command()
@click.option("--library", "libraries", multiple=True, type=click.Choice(list(LIBRARIES)), default=list(LIBRARIES))
@click.option("--point", "points", multiple=True, help="Only at these points.")
@click.option("--fault", "faults", multiple=True, type=click.Choice(FAULTS), default=FAULTS)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to keep the tables.")
def main(libraries: tuple[str, ...], points: tuple[str, ...], faults: tuple[str, ...], out: Path | None) -> None:
    cells = [
        cell
        for cell in all_cells()
        if cell.library in libraries and cell.fault in faults and (not points or cell.moment.hit.point in points)
    ]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        outcomes = asyncio.run(run_all(cells, Path(directory)))
    lines = list(page(outcomes))
    click.echo("\n".join(["", *lines, "", f"{time.monotonic() - began:.0f} s"]))
    if out is not None:
        out.write_text("\n".join([HEAD, *lines, ""]))
    sys.exit(count_wrong(outcomes.values()) > 0)


main()
