"""`oncelog console`: serve the page until Ctrl-C."""

from __future__ import annotations

import sys

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.options import bootstrap_option
from oncelog.cli.running import Failure, run
from oncelog_console.addresses import address_of, is_loopback
from oncelog_console.application import application
from oncelog_console.link import Link
from oncelog_console.serving import listening_socket, serve

DEFAULT_LISTEN = "127.0.0.1:8080"


def _http_urls(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    for each in given:
        if not each.startswith(("http://", "https://")):
            raise click.BadParameter(f"{each!r} is no URL, such as http://127.0.0.1:9405/metrics")
    return given


@click.command()
@bootstrap_option
@click.option(
    "--listen", default=DEFAULT_LISTEN, show_default=True, metavar="HOST:PORT", help="Where the page is; port 0: any."
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name under which browsers reach it, in addition to localhost and the address of --listen. May be repeated.",
)
@click.option(
    "--queries",
    "queries_at",
    multiple=True,
    metavar="URL",
    callback=_http_urls,
    help="Where a driver of Spark serves the metrics of its queries, such as http://127.0.0.1:9405/metrics. May be "
    "repeated.",
)
@click.option(
    "--allow-changes",
    is_flag=True,
    help="Let the page change the cluster: topics, records, groups, transactions, ACLs, users, quotas.",
)
def console(
    bootstrap: str, listen: str, hosts: tuple[str, ...], queries_at: tuple[str, ...], allow_changes: bool
) -> None:
    """Show a cluster as a web page: brokers, topics, records as they come, groups, transactions, queries of Spark.

    It is an admin client: it works with Apache Kafka, too. Everyone who can open the page has the console's read
    access, and with --allow-changes all its rights: it listens on loopback by default, and has no login of its own.
    Elsewhere, put a proxy before it that has one.
    """
    host, port = address_of(listen)

    async def command() -> None:
        link = Link(bootstrap, connection_settings())
        link.new_admin()  # report an invalid setting now
        try:
            listening = listening_socket(host, port)
        except OSError as error:
            raise Failure(f"cannot listen on {listen}: {error.strerror or error}. Another one: --listen") from error
        name = f"[{host}]" if ":" in host else host
        where = f"http://{name}:{listening.getsockname()[1]}"
        if not is_loopback(host):
            click.echo(f"oncelog: everyone who reaches {listen} sees this cluster; it has no login", err=True)
        app = application(link, allows_changes=allow_changes, hosts=(name, *hosts), queries_at=queries_at)
        await serve(app, listening, lambda: click.echo(f"oncelog console is on {where} (Ctrl-C ends it)"))

    run(command, bootstrap)
    sys.stdout.flush()
