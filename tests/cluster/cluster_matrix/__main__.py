"""Implements `make kill-matrix-cluster`: runs the cells, prints the tables, and writes them to the file of --out. The
exit code is 1 if a cell has failed.
"""

from __future__ import annotations

import itertools
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import click

from cluster_matrix.cells import LIBRARIES, Cell, Victims, all_cells
from cluster_matrix.pool import run_all
from cluster_matrix.run import Outcome
from cluster_matrix.table import count_wrong, page
from oncelog_broker.local_cluster.ensemble import Ensemble
from oncelog_broker.local_cluster.java import find_java
from oncelog_broker.local_cluster.server_config import Timing
from oncelog_broker.local_cluster.zookeeper_jars import provide_jars

VICTIMS = [victims.name.lower() for victims in Victims]
HEAD = """# Kill matrix of the cluster

Written by `make kill-matrix-cluster`. Each cell is a live run with three brokers on ZooKeeper, three replicas of each
partition of which two must be in sync, and a producer with three transactions. Each transaction writes to three
partitions, one led by each broker, and commits an offset of a group. Before or after one step of the second
transaction, while the process that executes the step is paused, brokers are killed with -9: the coordinator of the
transaction (which also leads one of the partitions), the leader of another partition, or both. If a victim executes
that step, the run waits until the victim reaches the step. A killed broker is restarted after all three transactions
have ended and other leaders were elected; two killed brokers are restarted simultaneously. *Killed alone* means that
the broker which executes the step is first isolated from the fetches of its followers, continues for half a second,
and is then killed with records that its followers do not have.

*ok* means that the checker of histories finds no contradiction between the responses to the producer, the committed
records (as read by our consumer and librdkafka's), the committed offset of the group, and the logs of all replicas;
that the producer knows the outcome of each transaction; and that no transaction is left open. The two numbers are the
committed and the aborted transactions.

*clings* is as good as *ok*, except for one instance of librdkafka, which waited for ever for the former coordinator
of its group. Its own statistics show that no broker owed it a response and that it did not look up the coordinator;
all partitions had leaders, the coordinators worked, and the instance had not sent a request to end its transaction.
Another instance with the same transactional id continued, and readers see none of the records of the unfinished
transaction.
"""


def chosen(
    libraries: tuple[str, ...], points: tuple[str, ...], victims: tuple[str, ...], ends: tuple[str, ...]
) -> list[Cell]:
    return [
        cell
        for cell in all_cells()
        if cell.library in libraries
        and cell.victims.name.lower() in victims
        and ("abort" if cell.aborts else "commit") in ends
        and (not points or cell.point in points)
    ]


@click.command()
@click.option("--library", "libraries", multiple=True, type=click.Choice(list(LIBRARIES)), default=list(LIBRARIES))
@click.option("--point", "points", multiple=True, help="Only at these points.")
@click.option("--killed", "victims", multiple=True, type=click.Choice(VICTIMS), default=VICTIMS)
@click.option("--end", "ends", multiple=True, type=click.Choice(["commit", "abort"]), default=["commit", "abort"])
@click.option("--times", type=int, default=1, show_default=True, help="How often; the table has the last of them.")
@click.option("--jobs", type=int, default=2, show_default=True, help="Clusters at a time.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to keep the tables.")
def main(
    libraries: tuple[str, ...],
    points: tuple[str, ...],
    victims: tuple[str, ...],
    ends: tuple[str, ...],
    times: int,
    jobs: int,
    out: Path | None,
) -> None:
    # ending this process ends all processes that it has started
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    cells = chosen(libraries, points, victims, ends)
    began, counter, wrong = time.monotonic(), itertools.count(1), 0

    def told(cell: Cell, outcome: Outcome) -> None:
        found = "; ".join(outcome.problems) or ("clings" if outcome.clung else "ok")
        click.echo(
            f"{next(counter)}/{times * len(cells)} {cell}: {found} "
            f"({outcome.committed} committed, {outcome.aborted} aborted, {outcome.seconds:.1f} s)"
        )

    directory = Path(tempfile.mkdtemp(prefix="oncelog-matrix-"))
    timing = Timing(tick=250, least_session=500)
    ensemble = Ensemble(
        directory / "zookeeper",
        find_java(),
        provide_jars(click.echo),
        size=1,
        timing=timing,
        is_synced=False,
        dies_with_us=True,
    )
    ensemble.start()
    try:
        for round_number in range(times):
            where = directory / str(round_number)
            where.mkdir()
            chroots = (f"{ensemble.connect_string}/{round_number}-{number}" for number in itertools.count())
            outcomes = run_all(cells, where, lambda: next(chroots), jobs=jobs, told=told)  # noqa: B023
            wrong += count_wrong(outcomes.values())
    finally:
        ensemble.kill()
    lines = list(page(outcomes))
    click.echo("\n".join(["", *lines, "", f"{time.monotonic() - began:.0f} s"]))
    if out is not None:
        out.write_text("\n".join([HEAD, *lines, ""]))
    if wrong:
        click.echo(f"{wrong} runs were wrong; data and logs are in {directory}")
    else:
        shutil.rmtree(directory)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
