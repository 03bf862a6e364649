"""The command `python -m oncelog_simulation scale`: measures clusters of several sizes, and writes the tables of the
sizing guide.
"""

from __future__ import annotations

import time
from pathlib import Path

import click

from oncelog_simulation.defects.report import put_between
from oncelog_simulation.scale.figures_file import FiguresFile
from oncelog_simulation.scale.measuring import measure
from oncelog_simulation.scale.report import BEGIN, END, tables
from oncelog_simulation.scale.size import TARGET, Size


@click.command()
@click.option("--brokers", default=5, show_default=True)
@click.option("--partitions", default=500, show_default=True, help="Partitions, each with three replicas.")
@click.option("--groups", default=50, show_default=True, help="Consumer groups with one member each.")
@click.option("--producers", default=100, show_default=True, help="Transactional producers.")
@click.option("--topic-partitions", default=100, show_default=True, help="Partitions of each topic.")
@click.option(
    "--keep",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file of figures, to add these figures to.",
)
@click.option("--table", is_flag=True, help="Measure nothing; only write the tables of the figures in the file.")
@click.option(
    "--out",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A page to put the tables into.",
)
def scale(
    brokers: int,
    partitions: int,
    groups: int,
    producers: int,
    topic_partitions: int,
    keep: Path | None,
    table: bool,
    out: Path | None,
) -> None:
    """Measure a cluster of some size: its start, a killed controller, a lost rack, a rolling restart."""
    figures = FiguresFile(keep)
    if not table:
        size = Size(brokers, partitions, groups, producers, topic_partitions)
        began = time.process_time()
        measure(size, click.echo, figures.put)
        click.echo(f"{size}: measured in {time.process_time() - began:.0f} s of processor time")
    found = tables(figures.all, TARGET)
    if table or out is None:
        click.echo(found)
    if out is not None:
        put_between(out, BEGIN, END, found)
