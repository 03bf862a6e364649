"""The command `oncelog registry`, which serves the REST interface until Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.options import bootstrap_option
from oncelog.cli.running import Failure, run
from oncelog_registry.records import TOPIC

DEFAULT_LISTEN = "127.0.0.1:8081"


@click.command()
@bootstrap_option
@click.option(
    "--listen",
    default=DEFAULT_LISTEN,
    show_default=True,
    metavar="HOST:PORT",
    help="Where the interface is; port 0: any that is free.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A host name under which clients reach a registry on loopback, in addition to localhost. May be repeated.",
)
@click.option("--topic", default=TOPIC, show_default=True, help="The compacted topic that keeps the schemas.")
@click.option("--stop-at-eof", is_flag=True, help="Stop at the end of standard input, and so with the parent process.")
def registry(bootstrap: str, listen: str, hosts: tuple[str, ...], topic: str, stop_at_eof: bool) -> None:
    """Serve a schema registry: Avro, JSON Schema and Protobuf, by the REST interface that clients of the Confluent
    registry use.

    One topic of the cluster keeps all schemas. Any number of registries may serve the same topic. The registry has no
    login; by default it listens on loopback. To serve other addresses, put a proxy with a login in front of it.
    """
    from oncelog_broker.runtime.parent import at_end_of_input
    from oncelog_console.addresses import address_of, is_loopback
    from oncelog_console.guard import LOOPBACK
    from oncelog_console.serving import listening_socket, serve
    from oncelog_registry.application import application
    from oncelog_registry.errors import RegistryError
    from oncelog_registry.journal import UnusableTopic
    from oncelog_registry.registry import Registry

    host, port = address_of(listen)

    async def command() -> None:
        try:
            listening = listening_socket(host, port)
        except OSError as error:
            raise Failure(f"cannot listen on {listen}: {error.strerror or error}. Another one: --listen") from error
        served = Registry(bootstrap, {"client_id": "oncelog-registry", **connection_settings()}, topic)
        try:
            await served.start()
        except BaseException as error:
            listening.close()
            await served.close()
            if isinstance(error, (UnusableTopic, RegistryError)):
                raise Failure(str(error)) from error
            raise
        if stop_at_eof:
            at_end_of_input(partial(os.kill, os.getpid(), signal.SIGTERM))
        name = f"[{host}]" if ":" in host else host
        known = frozenset({*LOOPBACK, name, *(each.lower() for each in hosts)}) if is_loopback(host) else None
        if known is None:
            click.echo(f"oncelog: everyone who reaches {listen} can change schemas; it has no login", err=True)
        where = f"http://{name}:{listening.getsockname()[1]}"
        await serve(
            application(served, known),
            listening,
            lambda: click.echo(f"oncelog registry is on {where} (Ctrl-C ends it)"),
        )

    run(command, bootstrap)
    sys.stdout.flush()
