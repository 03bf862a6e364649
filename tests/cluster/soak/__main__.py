"""Implements `make soak-cluster`, or `python -m soak --seconds 600 --seed 7`; the exit code is 1 if anything was wrong.

After a failed run, the directory with data, logs and history is kept, and its path is printed.
"""

from __future__ import annotations

import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import click
from maven import Unavailable
from streams_app import class_path

from soak.files import what_files_say
from soak.plan import Fault
from soak.report import keep, page
from soak.run import Result, Run, Settings
from soak.stage import Stage

STREAMS_RELEASE = "4.1.0"
HEAD = """# Soak

Written by `make soak-cluster`. Three brokers with three replicas of each partition, three ZooKeeper servers, and
clients that work all the time. The clients are idempotent writers; pipelines that consume, process and produce in
transactions, and are themselves paused and replaced; readers of committed records and of all records; and a group
whose members join and leave. Each kind of client runs with our library and with librdkafka; in addition, there are
instances of Kafka Streams, which are killed. Every five to fifteen seconds a fault strikes, sometimes while the
previous fault still lasts. At the end a checker compares all responses that the clients got with the files of all
brokers: no acknowledged record is lost or duplicated, no reader has seen aborted records or parts of a transaction,
each input is processed once, records are in order, committed offsets never went back, replicas have the same bytes,
and each epoch had one leader.

*Strikes* is the number of times that a fault struck. The other columns are the longest time without progress for each
kind of client, attributed to the first fault within that time, or otherwise to the last fault before it. `python -m
soak --seed N` repeats the same faults. A run that finds an error keeps its directory (data and logs of all brokers,
the history, a timeline of faults and stalls) and prints its path. Full disks and clock jumps are simulated in the
brokers' processes by replacing their calls to the operating system, which needs no privileges.
"""


def streams_class_path() -> str:
    """Return the class path of the Kafka Streams applications; empty if they cannot be obtained."""
    try:
        return class_path(STREAMS_RELEASE)
    except Unavailable as error:
        click.echo(f"without Kafka Streams: {error}")
        return ""


@click.command()
@click.option("--seed", "seeds", type=int, multiple=True, help="Several runs with several; by default a new one.")
@click.option("--seconds", type=float, default=1800.0, show_default=True, help="Of each run.")
@click.option("--fault", "faults", multiple=True, type=click.Choice([fault.name.lower() for fault in Fault]))
@click.option("--lines", type=float, default=10.0, show_default=True, help="Of each writer in a second.")
@click.option("--zookeepers", type=click.Choice(["1", "3"]), default="3", show_default=True)
@click.option("--streams/--no-streams", default=True, help="Kafka Streams too, where it is to be had.")
@click.option("--directory", type=click.Path(path_type=Path), help="Where runs have their data.")
@click.option("--keep", "keeps", is_flag=True, help="Keep the data of good runs, too.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to keep the tables.")
def main(
    seeds: tuple[int, ...],
    seconds: float,
    faults: tuple[str, ...],
    lines: float,
    zookeepers: str,
    streams: bool,
    directory: Path | None,
    keeps: bool,
    out: Path | None,
) -> None:
    chosen = tuple(Fault[name.upper()] for name in faults) or tuple(Fault)
    # ending this process ends all processes that it has started
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    found = streams_class_path() if streams else ""
    results: list[Result] = []
    for seed in seeds or (secrets.randbelow(1 << 31),):
        where = Path(tempfile.mkdtemp(prefix=f"oncelog-soak-{seed}-", dir=directory))
        click.echo(f"seed {seed}, in {where}")
        with Stage(where, int(zookeepers)) as stage:
            result = Run(stage, Settings(seed, seconds, chosen, lines, streams_class_path=found), click.echo).play()
        results.append(result)
        if result.problems:
            result.problems.extend(what_files_say(where, result.history))
        if result.problems or keeps:
            keep(where, result)
            click.echo(f"{len(result.problems)} problems with seed {seed}; everything about it is in {where}")
        else:
            shutil.rmtree(where)
        table = list(page(results))
        click.echo("\n".join(["", *table]))
        if out is not None:  # written after each run, so that an interruption of the next run loses no results
            out.write_text("\n".join([HEAD, *table, ""]))
        if result.problems:
            break  # the clients of this run may still be working, and would disturb the next run
    sys.exit(any(result.problems for result in results))


if __name__ == "__main__":
    main()
