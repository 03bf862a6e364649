"""Runs the soak: `make soak-spark`, or `python -m spark_soak --seed 7 --deaths 5`; the exit code is 1 if anything was
wrong.

After a failed run, the directory with data, logs, checkpoint and timeline is kept, and its path is printed.
"""

from __future__ import annotations

import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import click

from spark_soak.plan import Kind
from spark_soak.report import HEAD, page
from spark_soak.run import Result, Run


@click.command()
@click.option("--seed", "seeds", type=int, multiple=True, help="Several runs with several; by default a new one.")
@click.option("--deaths", type=int, default=30, show_default=True, help="Of drivers, of workers and of brokers, each.")
@click.option("--minutes", type=float, default=90.0, show_default=True, help="After which nothing more is killed.")
@click.option("--directory", type=click.Path(path_type=Path), help="Where runs have their data.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to keep the tables.")
def main(seeds: tuple[int, ...], deaths: int, minutes: float, directory: Path | None, out: Path | None) -> None:
    # when this process ends, all processes that it has started end, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    results: list[Result] = []
    for seed in seeds or (secrets.randbelow(1 << 31),):
        where = Path(tempfile.mkdtemp(prefix=f"oncelog-spark-soak-{seed}-", dir=directory))
        click.echo(f"seed {seed}, in {where}")
        result = Run(seed, dict.fromkeys(Kind, deaths), minutes, where, click.echo).play()
        results.append(result)
        if result.problems:
            click.echo(f"{len(result.problems)} problems with seed {seed}; everything about it is in {where}")
        else:
            shutil.rmtree(where)
        table = list(page(results))
        click.echo("\n".join(["", *table]))
        if out is not None:  # written after each run, so that an interruption of the next run loses no results
            out.write_text("\n".join([HEAD, *table, ""]))
    sys.exit(any(result.problems for result in results))


if __name__ == "__main__":
    main()
