"""Starts a broker and keeps it running until a signal: what `oncelog serve` does, without click.

Prints one line on standard output: the addresses, the mode, and the data directories. All other output is log output on
standard error, by default from level WARNING on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from oncelog.escaping import visible
from oncelog_broker.observability.logs import FORMATS, LEVELS, flush_logs, set_up_logging
from oncelog_protocol.light_classes import NamedTuple

if TYPE_CHECKING:
    from oncelog_broker.broker import Broker
    from oncelog_broker.config.broker_config import BrokerConfig
    from oncelog_broker.fail_control.startup import StartupOptions
    from oncelog_broker.workers.worker_role import WorkerRole

logger = logging.getLogger(__name__)


class CannotServe(Exception):
    """Raised if the broker cannot be started; the message says why."""


class ServeOptions(NamedTuple):
    """The options of `oncelog serve`; `command` documents them."""

    config: Path | None = None
    data: str | None = None
    assignments: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    http: str | None = None
    workers: str | None = None
    worker: str | None = None
    log_level: str = "warning"
    log_format: str = "text"
    stop_at_eof: bool = False
    fail_control: str | None = None


FIELDS: Final = {
    "--config": "config",
    "--data": "data",
    "--set": "assignments",
    "--accept": "accepted",
    "--http": "http",
    "--workers": "workers",
    "--worker": "worker",
    "--log-level": "log_level",
    "--log-format": "log_format",
    "--fail-control": "fail_control",
}
"""Maps each option with a value to its field of ServeOptions."""
REPEATED: Final = ("assignments", "accepted")
ALLOWED: Final = {"log_level": LEVELS, "log_format": FORMATS}


def plain_options(arguments: Sequence[str]) -> ServeOptions | None:
    """Return the options if all arguments are options with their full names and valid values; None if click must parse
    the arguments, for example to print help or an error.
    """
    found: dict[str, Any] = {}
    rest = iter(arguments)
    for argument in rest:
        if argument == "--stop-at-eof":
            found["stop_at_eof"] = True
            continue
        name, equals, value = argument.partition("=")
        field = FIELDS.get(name)
        if field is None:
            return None
        if not equals:
            value = next(rest, "-")
            if value.startswith("-"):
                return None
        if value not in ALLOWED.get(field, (value,)) or (field == "config" and not os.access(value, os.R_OK)):
            return None
        if field in REPEATED:
            found[field] = (*found.get(field, ()), value)
        else:
            found[field] = Path(value) if field == "config" else value
    if "config" in found and not found["config"].is_file():
        return None
    return ServeOptions(**found)


def serve_plain(arguments: Sequence[str]) -> int | None:
    """Serve with these arguments, and return the exit code; None if click must parse the arguments."""
    options = plain_options(arguments)
    if options is None:
        return None
    try:
        return serve(options)
    except CannotServe as error:
        tell(visible(f"oncelog: cannot start: {error}", "\n"), sys.stderr)
    except KeyboardInterrupt:
        tell("Aborted!", sys.stderr)
    return 1


def tell(line: str, stream: TextIO | None = None) -> None:
    """Print a line on standard output, or on `stream`, without delay."""
    stream = stream or sys.stdout
    stream.write(f"{line}\n")
    stream.flush()


def serve(options: ServeOptions) -> int:
    """Start a broker, and serve until it is stopped; returns the exit code. Raises CannotServe."""
    assignments = options.assignments
    from oncelog_broker.runtime.garbage import pause_collections

    pause_collections()  # before most modules are imported
    from oncelog_broker.config.declared import InvalidConfig
    from oncelog_broker.config.load import load_broker_config

    worker = None
    if options.worker is not None:
        from oncelog_broker.workers.worker_role import WorkerRole

        worker = WorkerRole.parse(options.worker)
    set_up_logging(options.log_level, options.log_format, None if worker is None else worker.number)
    if options.data is not None:
        assignments = (*assignments, f"log.dirs={options.data}")
    if options.accepted:
        assignments = (*assignments, f"start.accept={','.join(options.accepted)}")
    if options.http is not None:
        assignments = (*assignments, f"http.listener={options.http}")
    try:
        config = load_broker_config(options.config, os.environ, assignments)
    except (InvalidConfig, OSError) as error:
        raise CannotServe(str(error)) from None

    count = None if worker is not None else _asked_workers(config, options.workers)
    if count is not None and options.fail_control is not None:
        raise CannotServe("--fail-control controls one process: use it without --workers")

    from oncelog_broker.fail_control.startup import StartupOptions

    try:
        startup_options = StartupOptions(stops_at_eof=options.stop_at_eof, fail_control=options.fail_control)
        return _serve(options, config, assignments, count, worker, startup_options)
    except InvalidConfig as error:
        raise CannotServe(str(error)) from None


def _serve(
    options: ServeOptions,
    config: BrokerConfig,
    assignments: tuple[str, ...],
    count: int | None,
    worker: WorkerRole | None,
    startup_options: StartupOptions,
) -> int:
    """Run `count` workers, or one broker in this process if `count` is None, until they are stopped."""
    from oncelog_broker.runtime.garbage import keep_collections_short

    if count is not None:
        from oncelog_broker.workers.command import Workers, serve_workers

        arguments = [] if options.config is None else ["--config", str(options.config)]
        for assignment in assignments:
            arguments += ["--set", assignment]
        arguments += ["--log-level", options.log_level, "--log-format", options.log_format]
        keep_collections_short(after_pause=True)
        return asyncio.run(serve_workers(config, Workers(count, arguments), startup_options))

    import uvloop

    from oncelog_broker.broker import Broker

    if worker is None:
        broker = Broker(config)
    else:
        opening = worker.opening(lambda: broker.failed.set())
        broker = Broker(config, store=opening, shared_listeners=worker.listeners(config))
    beats = worker is not None and not worker.store_place
    return uvloop.run(_run(broker, startup_options, beats=beats))


def _asked_workers(config: BrokerConfig, text: str | None) -> int | None:
    """Return the number of workers to run; None means one broker in this process. Raises CannotServe."""
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
            raise CannotServe("--workers needs Linux")
        return None if count == 1 and not is_divided(RealDisk(), config.log_dirs) else count
    except (DirectoriesRefused, ValueError, OSError) as error:
        raise CannotServe(str(error)) from None


async def _run(broker: object, startup_options: StartupOptions, *, beats: bool) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. `beats` says whether standard output gets lines that show
    that the event loop runs.
    """
    from oncelog_broker.broker import Broker, BrokerStartError
    from oncelog_broker.config.declared import InvalidConfig
    from oncelog_broker.coordinator.later_imports import import_later
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
        tell(f"oncelog: cannot start: {error}", sys.stderr)
        return 1
    keep_collections_short(after_pause=True)
    await asyncio.to_thread(flush_logs)  # write the queued log lines of the start before the ready line
    addresses = ", ".join(f"{listener.host}:{listener.port}" for listener in broker.advertised)
    directories = ", ".join(str(Path(directory).absolute()) for directory in broker.config.log_dirs)
    metadata = described_store(broker.config)
    http = "" if broker.http_service.listener is None else f", http on {broker.http_service.listener.address}"
    tell(f"oncelog broker {broker.node_id} ready on {addresses} ({metadata}, data in {directories}{http})")
    if startup_options.line is not None:
        tell(startup_options.line)
    beating = loop.create_task(_beat()) if beats else None
    importing = loop.create_task(import_later())
    failed = loop.create_task(broker.failed.wait())
    await asyncio.wait((signalled, failed), return_when=asyncio.FIRST_COMPLETED)
    code = 1 if failed.done() else 0
    if not failed.done():
        await _leave(broker, failed, loop.create_task(stop_at_once.wait()))
    for task in (signalled, failed, importing):
        task.cancel()
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
