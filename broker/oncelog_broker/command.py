"""`oncelog serve`: declares the options of the command, and its help. `serve` runs the broker."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from oncelog.cli.running import Failure
from oncelog_broker.observability.logs import FORMATS, LEVELS
from oncelog_broker.serve import CannotServe, ServeOptions
from oncelog_broker.serve import serve as run


@click.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A properties file or a .toml file with Kafka's keys, such as num.partitions=3.",
)
@click.option("--data", metavar="DIRECTORY", help="The data directory; short for --set log.dirs=DIRECTORY.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting; takes precedence over environment (ONCELOG_NUM_PARTITIONS=3) and file. May be repeated.",
)
@click.option(
    "--accept",
    "accepted",
    multiple=True,
    metavar="KIND:DIGEST",
    help="Accept a difference that a refused start named; short for --set start.accept=... May be repeated.",
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve metrics (/metrics) and health (/health/live, /health/ready) at this address; short for --set "
    "http.listener=...",
)
@click.option(
    "--workers",
    metavar="COUNT|auto",
    help="Run so many broker processes behind the configured port, to use as many cores; auto: one for each core. "
    "Default: one broker in this process. docs/guides/workers.md",
)
@click.option("--worker", "role", hidden=True)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="warning",
    show_default=True,
    help="The lowest level of messages that are logged to standard error.",
)
@click.option(
    "--log-format", type=click.Choice(FORMATS), default="text", show_default=True, help="The format of log lines."
)
@click.option(
    "--stop-at-eof",
    is_flag=True,
    help="Stop when standard input ends, that is, when the process at the other end of the pipe ends for any reason.",
)
@click.option(
    "--fail-control",
    metavar="[HOST:]PORT",
    help="For tests: accept commands over HTTP that make the broker fail, on loopback unless a host is given. The "
    "second line on standard output has the address. Never use it in production: every client that can connect can "
    "kill the broker. See docs/testing.md.",
)
def serve(
    config_file: Path | None,
    data: str | None,
    assignments: tuple[str, ...],
    accepted: tuple[str, ...],
    http: str | None,
    workers: str | None,
    role: str | None,
    log_level: str,
    log_format: str,
    stop_at_eof: bool,
    fail_control: str | None,
) -> None:
    """Start a broker.

    By default the broker listens on 127.0.0.1:9092 and stores its metadata in the data directory. ZooKeeper is used
    only if zookeeper.connect is set. When the broker is ready, one line on standard output has its addresses. Ctrl-C or
    SIGTERM stops the broker, in a cluster after other brokers have taken over its partitions; a second signal stops the
    broker immediately.

    \b Listen on any free port, for tests:
      oncelog serve --data /tmp/test --set listeners=PLAINTEXT://127.0.0.1:0
    """
    options = ServeOptions(
        config_file, data, assignments, accepted, http, workers, role, log_level, log_format, stop_at_eof, fail_control
    )
    try:
        code = run(options)
    except CannotServe as error:
        raise Failure(f"cannot start: {error}") from None
    sys.exit(code)
