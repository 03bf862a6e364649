"""`oncelog console`: serve the page until Ctrl-C."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.options import bootstrap_option, parsed
from oncelog.cli.running import Failure, run
from oncelog_console.addresses import address_of, is_loopback
from oncelog_console.application import application
from oncelog_console.clusters import Cluster, Login
from oncelog_console.configuration import Configuration, check_urls, read_configuration, schema_files
from oncelog_console.login.oidc import Provider
from oncelog_console.serving import listening_socket, serve
from oncelog_console.site import site_of
from oncelog_console.values.reader import SchemaFile

DEFAULT_LISTEN = "127.0.0.1:8080"
CLUSTER = "cluster"
"""Internal name of the cluster if there is only one; no page shows this name."""


def _url(text: str) -> str:
    check_urls({"": text})
    return text


def _named(text: str) -> tuple[str, str]:
    name, separator, url = text.partition("=")
    if not separator or not name:
        raise ValueError(f"{text!r} is not NAME=URL")
    check_urls({name: url})
    return name, url


def _schema_files(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, SchemaFile]:
    """Return the schema of each topic."""
    files = {}
    for each in given:
        topic, _, file = each.partition("=")
        if not topic or not file:
            raise click.BadParameter(f"{each!r} is not TOPIC=FILE or TOPIC=FILE#MESSAGE")
        files[topic] = file
    try:
        return schema_files(files, Path.cwd())
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _configuration(_context: click.Context, _option: click.Parameter, path: Path | None) -> Configuration | None:
    try:
        return None if path is None else read_configuration(path)
    except (ValueError, OSError) as error:
        raise click.BadParameter(str(error)) from error


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
    type=parsed("URL", _url),
    help="Where a driver of Spark serves the metrics of its queries, such as http://127.0.0.1:9405/metrics. May be "
    "repeated.",
)
@click.option(
    "--schema-registry",
    "registry_at",
    metavar="URL,...",
    help="A schema registry, by whose schemas keys and values are read.",
)
@click.option(
    "--schema",
    "schemas",
    multiple=True,
    metavar="TOPIC=FILE[#MESSAGE]",
    callback=_schema_files,
    help="The schema of a topic's values, if there is no registry: *.avsc, *.json, *.desc. May be repeated.",
)
@click.option(
    "--connect",
    "connect_at",
    multiple=True,
    metavar="NAME=URL",
    type=parsed("NAME=URL", _named),
    help="The REST interface of a Kafka Connect, such as main=http://127.0.0.1:8083. May be repeated.",
)
@click.option(
    "--allow-changes",
    is_flag=True,
    help="Let the page change the cluster: topics, records, groups, transactions, ACLs, users, quotas, connectors.",
)
@click.option("--login", is_flag=True, help="Visitors log in as SASL users of the cluster, and have their rights.")
@click.option(
    "--config",
    "configuration",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    callback=_configuration,
    metavar="FILE",
    help="A file with several clusters, or a login by OpenID Connect, in place of the options about a cluster.",
)
def console(
    bootstrap: str,
    listen: str,
    hosts: tuple[str, ...],
    queries_at: tuple[str, ...],
    registry_at: str | None,
    schemas: dict[str, SchemaFile],
    connect_at: tuple[tuple[str, str], ...],
    allow_changes: bool,
    login: bool,
    configuration: Configuration | None,
) -> None:
    """Show clusters as web pages: brokers, topics, records as they come, groups, transactions, queries of Spark.

    The console is an admin client, so it also works with Apache Kafka. Without a login, everyone who can open the page
    has the console's read access, and with --allow-changes all its rights; so the console listens on loopback by
    default. With --login, or a login in the file of --config, each visitor is a user of the cluster.
    """
    host, port = address_of(listen)
    if configuration is not None and (queries_at or registry_at or schemas or connect_at or allow_changes or login):
        raise click.UsageError("with --config, all about clusters stands in the file")
    name = f"[{host}]" if ":" in host else host

    async def command() -> None:
        nonlocal configuration
        if configuration is None:
            cluster = Cluster(
                CLUSTER,
                bootstrap,
                connection_settings(),
                Login.SASL if login else Login.NONE,
                allow_changes,
                queries_at,
                registry_at,
                schemas,
                dict(connect_at),
            )
            configuration = Configuration((cluster,), None, None)
        public_url = configuration.public_url
        is_secure = public_url is not None and public_url.startswith("https:")
        try:
            oidc = None if configuration.oidc is None else Provider(configuration.oidc)
            site = site_of(configuration.clusters, oidc, is_secure=is_secure)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        try:
            listening = listening_socket(host, port)
        except OSError as error:
            raise Failure(f"cannot listen on {listen}: {error.strerror or error}. Another one: --listen") from error
        where = f"http://{name}:{listening.getsockname()[1]}"
        if not is_loopback(host):
            if any(each.login is Login.NONE for each in configuration.clusters):
                click.echo(f"oncelog: everyone who reaches {listen} sees this cluster; it has no login", err=True)
            elif not is_secure:
                click.echo(
                    f"oncelog: passwords reach {listen} without encryption; put a proxy with TLS before", err=True
                )
        app = application(site, hosts=(name, *hosts))
        await serve(app, listening, lambda: click.echo(f"oncelog console is on {where} (Ctrl-C ends it)"))

    run(command, bootstrap)
    sys.stdout.flush()
