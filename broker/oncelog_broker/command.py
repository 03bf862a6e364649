"""`oncelog serve`: start a broker and keep it running until a signal.

The command prints one line on standard output: the addresses, the mode, and the data directories. All other output is
log output on standard error, by default from level WARNING on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from oncelog.cli.running import Failure
from oncelog_broker.observability.logs import FORMATS, LEVELS, flush_logs, set_up_logging

if TYPE_CHECKING:
    from oncelog_broker.broker import Broker
    from oncelog_broker.config.broker_config import BrokerConfig
    from oncelog_broker.fail_control.startup import StartupOptions

logger = logging.getLogger(__name__)


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
    from oncelog_broker.runtime.garbage import keep_collections_short, pause_collections

    pause_collections()  # before most modules are imported
    from oncelog_broker.config.declared import InvalidConfig
    from oncelog_broker.config.load import load_broker_config

    worker = None
    if role is not None:
        from oncelog_broker.workers.worker_role import WorkerRole

        worker = WorkerRole.parse(role)
    set_up_logging(log_level, log_format, None if worker is None else worker.number)
    if data is not None:
        assignments = (*assignments, f"log.dirs={data}")
    if accepted:
        assignments = (*assignments, f"start.accept={','.join(accepted)}")
    if http is not None:
        assignments = (*assignments, f"http.listener={http}")
    try:
        config = load_broker_config(config_file, os.environ, assignments)
    except (InvalidConfig, OSError) as error:
        raise Failure(f"cannot start: {error}") from None

    count = None if worker is not None else _asked_workers(config, workers)
    if count is not None and fail_control is not None:
        raise Failure("cannot start: --fail-control controls one process: use it without --workers")

    from oncelog_broker.fail_control.startup import StartupOptions

    startup_options = StartupOptions(stops_at_eof=stop_at_eof, fail_control=fail_control)
    if count is not None:
        from oncelog_broker.workers.command import Workers, serve_workers

        arguments = [] if config_file is None else ["--config", str(config_file)]
        for assignment in assignments:
            arguments += ["--set", assignment]
        arguments += ["--log-level", log_level, "--log-format", log_format]
        keep_collections_short(after_pause=True)
        sys.exit(asyncio.run(serve_workers(config, Workers(count, arguments), startup_options)))

    import uvloop

    from oncelog_broker.broker import Broker

    if worker is None:
        broker = Broker(config)
    else:
        opening = worker.opening(lambda: broker.failed.set())
        broker = Broker(config, store=opening, shared_listeners=worker.listeners(config))
    beats = worker is not None and not worker.store_place
    sys.exit(uvloop.run(_run(broker, startup_options, beats=beats)))


def _asked_workers(config: BrokerConfig, text: str | None) -> int | None:
    """Return the number of workers to run; None means one broker in this process. Raises Failure."""
    from oncelog_broker.runtime.cores import usable_cores
    from oncelog_broker.runtime.disk import RealDisk
    from oncelog_broker.workers.worker_directories import (
        DirectoriesRefused,
        is_divided,
        refuse_single_broker,
    )
    from oncelog_broker.workers.worker_settings import worker_count

    try:
        if text is None:
            refuse_single_broker(RealDisk(), config.log_dirs)
            return None
        count = worker_count(text, usable_cores())
        if count > 1 and not hasattr(os, "pidfd_open"):
            raise Failure("cannot start: --workers needs Linux")
        return None if count == 1 and not is_divided(RealDisk(), config.log_dirs) else count
    except (DirectoriesRefused, ValueError, OSError) as error:
        raise Failure(f"cannot start: {error}") from None


async def _run(broker: object, startup_options: StartupOptions, *, beats: bool) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. `beats` says whether standard output gets lines that show
    that the event loop runs.
    """
    from oncelog_broker.broker import Broker, BrokerStartError
    from oncelog_broker.config.declared import InvalidConfig
    from oncelog_broker.identity.note import NoteError
    from oncelog_broker.identity.refusals import StartRefused
    from oncelog_broker.log.directories.meta_properties import MetaPropertiesError
    from oncelog_broker.metadata.membership.endpoints import EndpointInUse
    from oncelog_broker.metadata.membership.feature_levels import NoCommonLevel
    from oncelog_broker.metadata.membership.registration import BrokerIdInUse
    from oncelog_broker.metadata.model.payloads import MalformedPayload
    from oncelog_broker.metadata.opening import described_store
    from oncelog_broker.metadata.stores.embedded import StoreFileError
    from oncelog_broker.metadata.stores.store import MetadataError
    from oncelog_broker.runtime.garbage import keep_collections_short
    from oncelog_protocol.errors import KafkaError

    assert isinstance(broker, Broker)
    stop, stop_at_once = asyncio.Event(), asyncio.Event()
    _raise_open_files_limit()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        (stop_at_once if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    startup_options.begin(stop)
    reasons = (
        BrokerStartError, InvalidConfig, MetadataError, MalformedPayload, MetaPropertiesError, BrokerIdInUse,
        EndpointInUse, NoCommonLevel, NoteError, StartRefused,
    )  # fmt: skip
    signalled, starting = loop.create_task(stop.wait()), loop.create_task(broker.start())
    await asyncio.wait((signalled, starting), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # the start may be waiting for ZooKeeper
        starting.cancel()
        await asyncio.wait([starting])
        return 0
    try:
        starting.result()
    except (*reasons, StoreFileError, KafkaError, OSError, RuntimeError) as error:
        signalled.cancel()
        click.echo(f"oncelog: cannot start: {error}", err=True)
        return 1
    keep_collections_short(after_pause=True)
    await asyncio.to_thread(flush_logs)  # write the queued log lines of the start before the ready line
    addresses = ", ".join(f"{listener.host}:{listener.port}" for listener in broker.advertised)
    directories = ", ".join(str(Path(directory).absolute()) for directory in broker.config.log_dirs)
    metadata = described_store(broker.config)
    http = "" if broker.http_service.listener is None else f", http on {broker.http_service.listener.address}"
    click.echo(f"oncelog broker {broker.node_id} ready on {addresses} ({metadata}, data in {directories}{http})")
    if startup_options.line is not None:
        click.echo(startup_options.line)
    sys.stdout.flush()
    beating = loop.create_task(_beat()) if beats else None
    failed = loop.create_task(broker.failed.wait())
    await asyncio.wait((signalled, failed), return_when=asyncio.FIRST_COMPLETED)
    code = 1 if failed.done() else 0
    if not failed.done():
        await _leave(broker, failed, loop.create_task(stop_at_once.wait()))
    signalled.cancel()
    failed.cancel()
    startup_options.end()
    await broker.stop()
    if beating is not None:
        beating.cancel()
    return code


async def _beat() -> None:
    """Write a line to standard output every BEAT_SECONDS, for the supervisor of this worker (`hang_watch`)."""
    from oncelog_broker.workers.hang_watch import BEAT, BEAT_SECONDS

    output = sys.stdout.fileno()
    os.set_blocking(output, False)  # a supervisor that is paused must not stop the event loop
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        with suppress(OSError):  # the pipe is full, or the supervisor has ended
            os.write(output, BEAT)


async def _leave(broker: Broker, *unless: asyncio.Task[Any]) -> None:
    """Run the controlled shutdown, so that other brokers take over this broker's partitions. Give up when one of the
    futures in `unless` completes, for example because of a second signal.
    """
    leaving = asyncio.get_running_loop().create_task(broker.leave())
    await asyncio.wait((leaving, *unless), return_when=asyncio.FIRST_COMPLETED)
    if not leaving.done():
        leaving.cancel()
    for error in await asyncio.gather(leaving, return_exceptions=True):
        if isinstance(error, Exception):
            logger.error(
                "stopping without a controlled shutdown: other brokers were not asked to take over partitions",
                exc_info=error,
            )
    for each in unless:
        each.cancel()


def _raise_open_files_limit() -> None:
    """Raise the limit of open files as far as the system allows, because each partition keeps its active segment
    open."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
