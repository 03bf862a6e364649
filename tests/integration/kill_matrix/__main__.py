"""Implements `make kill-matrix`: runs the cells, prints the tables, and writes them to the file of --out. The exit code
is 1 if a cell has failed.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from kill_matrix.cells import LIBRARIES, Cell, Fault, all_cells
from kill_matrix.cluster_stage import ClusterStage
from kill_matrix.run import Outcome, run_cell
from kill_matrix.stage import Stage
from kill_matrix.table import count_wrong, page
from oncelog_broker.local_cluster.ensemble import Ensemble
from oncelog_broker.local_cluster.java import find_java
from oncelog_broker.local_cluster.zookeeper_jars import provide_jars

FAULTS = [fault.value for fault in Fault]
HEAD = """# Kill matrix

Written by `make kill-matrix`. Each cell is a live run of a program that consumes, processes and produces 16 records
over two partitions, with 4 records and their offsets in each transaction. One fault strikes before or after one step
of the second transaction (`#2` means the second such step of that transaction), while the process that executes the
step is paused. A killed process is restarted, and the run continues to its end.

*ok* means that aiokafka and librdkafka, reading committed records, both see every input exactly once and every
transaction completely; that the last stable offset is at the end of each log; and that the group has consumed all
input. For streams groups (KIP-1071) it also means that both members got tasks, and no two members got one task in the
same epoch. The two numbers are the transactions with committed records, and the transactions with aborted records.
"""


CLUSTER_FAULTS = (Fault.BROKER_KILLED, Fault.CLIENT_KILLED, Fault.CONNECTION_CUT)
"""The faults for three brokers; lost responses and repeated requests are excluded, because their effect would depend on
which broker leads.
"""
CLUSTER_HEAD = """
These runs use three brokers with one replica of each partition, and a proxy before each broker. The killed broker is
the one that executes the step, and connections between brokers are closed, too.
"""


@contextmanager
def stage_in(directory: Path, *, is_cluster: bool) -> Iterator[Stage]:
    if not is_cluster:
        yield Stage(directory)
        return
    ensemble = Ensemble(directory / "zookeeper", find_java(), provide_jars(click.echo), size=1, dies_with_us=True)
    ensemble.start()
    try:
        yield ClusterStage(directory, ensemble.connect_string)
    finally:
        ensemble.kill()


async def run_all(cells: list[Cell], on: Stage) -> dict[Cell, Outcome]:
    outcomes = {}
    async with on as stage:
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
@click.option("--cluster", "is_cluster", is_flag=True, help="Over three brokers.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to keep the tables.")
def main(
    libraries: tuple[str, ...], points: tuple[str, ...], faults: tuple[str, ...], is_cluster: bool, out: Path | None
) -> None:
    cells = [
        cell
        for cell in all_cells()
        if cell.library in libraries and cell.fault in faults and (not points or cell.moment.hit.point in points)
        if not is_cluster or cell.fault in CLUSTER_FAULTS
    ]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory, stage_in(Path(directory), is_cluster=is_cluster) as stage:
        outcomes = asyncio.run(run_all(cells, stage))
    lines = list(page(outcomes))
    click.echo("\n".join(["", *lines, "", f"{time.monotonic() - began:.0f} s"]))
    if out is not None:
        out.write_text("\n".join([HEAD + CLUSTER_HEAD * is_cluster, *lines, ""]))
    sys.exit(count_wrong(outcomes.values()) > 0)


main()
