"""`oncelog serve --workers N`: turns the options of the command into running workers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.config.http_keys import HTTP_LISTENER
from oncelog_broker.config.listeners import Listener, advertised_listeners, with_bound_ports
from oncelog_broker.config.zookeeper_keys import ZOOKEEPER_CONNECT
from oncelog_broker.metadata.opening import described_store
from oncelog_broker.metadata.stores.embedded import StoreFileError
from oncelog_broker.metadata.stores.store import MetadataError
from oncelog_broker.observability.logs import flush_logs
from oncelog_broker.runtime.disk import RealDisk
from oncelog_broker.runtime.file_lock import LockHeld
from oncelog_broker.runtime.reserved_ports import reserve_port
from oncelog_broker.workers.supervisor import Supervisor, wait_for_left_over
from oncelog_broker.workers.worker_directories import DirectoriesRefused, WorkerDirectories
from oncelog_broker.workers.worker_process import WorkerFailed, WorkerPlan
from oncelog_broker.workers.worker_role import WorkerRole
from oncelog_broker.workers.worker_settings import PortsNeeded, ports_needed, worker_settings

if TYPE_CHECKING:
    from oncelog_broker.fail_control.startup import StartupOptions

REFUSALS: Final = (
    InvalidConfig, DirectoriesRefused, LockHeld, StoreFileError, MetadataError, WorkerFailed, OSError,
)  # fmt: skip
"""The exceptions of a start whose messages are shown to the user."""


class Workers(NamedTuple):
    """The workers that a command starts."""

    number: int
    arguments: Sequence[str]
    """The arguments of `oncelog serve` that each worker also gets."""


async def serve_workers(config: BrokerConfig, asked: Workers, startup_options: StartupOptions) -> int:
    """Run workers until SIGTERM or SIGINT. Returns the exit code; the error of a failed start is printed."""
    stop, stop_at_once = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        (stop_at_once if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    startup_options.begin(stop)
    machine = socket.gethostname()
    disk = RealDisk()
    try:
        with ExitStack() as undo:
            needed = ports_needed(config, asked.number)
            directories = WorkerDirectories.open(disk, config.log_dirs, asked.number)
            undo.callback(directories.close)
            await wait_for_left_over(disk, directories.lock_files())
            ports = _reserve(needed, undo)
            store_file = directories.store_file() if config[ZOOKEEPER_CONNECT] is None else None
            shared = tuple(map(str, ports.shared))
            plans = []
            for worker, own in enumerate(ports.own, 1):
                settings = worker_settings(config, worker, directories.of(worker), own, machine)
                role = WorkerRole(worker, shared, store_file or "")
                plans.append(WorkerPlan(config.node_id + worker - 1, _arguments(asked, settings), role))
            directories.divide()
            supervisor = Supervisor(plans, store_file)
            return await supervisor.run(_announcement(config, ports, machine), stop, stop_at_once)
    except REFUSALS as error:
        flush_logs()
        click.echo(f"oncelog: cannot start: {error}", err=True)
        return 1


def _reserve(needed: PortsNeeded, undo: ExitStack) -> PortsNeeded:
    """Reserve all ports until `undo` runs, and return the addresses with their port numbers. Raises OSError, whose
    message names the address.
    """

    def reserved(listener: Listener) -> Listener:
        try:
            port = reserve_port(listener.host, listener.port)
        except OSError as error:
            raise OSError(
                f"cannot listen on {listener.host}:{listener.port}: {error.strerror or error}. Set `listeners` to "
                "other ports (0 takes any free ones); the ports of the workers follow the configured ones"
            ) from error
        undo.callback(port.close)
        return listener._replace(port=port.number)

    shared = tuple(map(reserved, needed.shared))
    return PortsNeeded(shared, tuple(tuple(map(reserved, each)) for each in needed.own))


def _arguments(asked: Workers, settings: Mapping[str, str]) -> list[str]:
    """Return the arguments of `oncelog serve` for a worker with these settings."""
    arguments = [*asked.arguments]
    for key, value in settings.items():
        arguments += ["--set", f"{key}={value}"]
    return arguments


def _announcement(config: BrokerConfig, ports: PortsNeeded, machine: str) -> Callable[[], None]:
    """Return the function that prints the line with which the command reports that all workers serve."""
    bound = {each.name: each.port for each in ports.shared}
    bootstrap = with_bound_ports(advertised_listeners(config, machine), bound)
    addresses = ", ".join(f"{each.host}:{each.port}" for each in bootstrap)
    own = ", ".join(
        f"broker {config.node_id + index} on port {'/'.join(str(each.port) for each in of_worker)}"
        for index, of_worker in enumerate(ports.own)
    )
    directories = ", ".join(map(os.path.abspath, config.log_dirs))
    http = "" if config[HTTP_LISTENER] is None else f", http from {config[HTTP_LISTENER]} on"
    line = (
        f"oncelog with {len(ports.own)} workers ready on {addresses} "
        f"({own}; {described_store(config)}, data in {directories}{http})"
    )

    def announce() -> None:
        flush_logs()
        click.echo(line)
        sys.stdout.flush()

    return announce
