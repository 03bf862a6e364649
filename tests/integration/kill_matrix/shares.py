"""Implements the second part of `make kill-matrix`: runs the cells of share groups, prints their table, and writes it
to the end of the file of --out. The exit code is 1 if a cell has failed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from kill_matrix.share_cells import MATRIX_FAULTS, POINTS, ShareCell, ShareOutcome, all_share_cells, table
from kill_matrix.share_run import ShareStage

FAULTS = [fault.value for fault in MATRIX_FAULTS]
TITLE = "# Kill matrix of share groups\n"
HEAD = f"""{TITLE}
Written by `make kill-matrix`, too. Each cell is a live run of a share group (KIP-932) on three brokers with three
replicas of each partition. All 12 records are in one partition, whose leader is not the share coordinator. A first
member accepts some of the records and leaves. While a second member accepts the rest, one fault strikes the broker of
the second column at one step: when a request has arrived and is not handled yet, or when it is handled and the answer
is not sent yet. The broker is killed there and restarted; or the member is killed and replaced by another one; or the
request or answer is delayed for longer than records are locked, or it is lost.

*ok* means that the checker of histories finds no contradiction between the deliveries, the acceptances and the group's
lag of 0: each record was accepted, no record was delivered after a member had been told that its acceptance is stored
(a last member polls at the end), and no record was delivered more often than the group's limit. The number counts the
deliveries, some of which are repeated.
"""


def with_share_table(page: str, lines: list[str]) -> str:
    """Return the page with the part about share groups replaced, or added at the end."""
    return "\n".join([page.partition(TITLE)[0].rstrip("\n"), "", HEAD, *lines, ""])


def run_all(cells: list[ShareCell], directory: Path) -> dict[ShareCell, ShareOutcome]:
    outcomes = {}
    with ShareStage(directory) as stage:
        for number, cell in enumerate(cells, 1):
            outcome = outcomes[cell] = stage.run(cell)
            found = "; ".join(outcome.problems) or f"ok, {outcome.deliveries} deliveries"
            click.echo(f"{number}/{len(cells)} {cell}: {found}, {outcome.seconds:.1f} s")
    return outcomes


@click.command()
@click.option("--point", "points", multiple=True, type=click.Choice(POINTS), default=POINTS)
@click.option("--fault", "faults", multiple=True, type=click.Choice(FAULTS), default=FAULTS)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The page to which the table is written.")
def main(points: tuple[str, ...], faults: tuple[str, ...], out: Path | None) -> None:
    cells = [cell for cell in all_share_cells() if cell.point in points and cell.fault in faults]
    with tempfile.TemporaryDirectory() as directory:
        outcomes = run_all(cells, Path(directory))
    lines = list(table(outcomes))
    click.echo("\n".join(["", *lines]))
    if out is not None:
        out.write_text(with_share_table(out.read_text(), lines))
    sys.exit(any(outcome.problems for outcome in outcomes.values()))


if __name__ == "__main__":
    main()
