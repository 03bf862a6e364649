"""`oncelog cluster`: brokers with ZooKeeper on this machine, in the background."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from oncelog.cli.options import KEY_VALUE, output_option
from oncelog.cli.output import Column, show_rows, tell
from oncelog.cli.running import Failure

if TYPE_CHECKING:
    from oncelog_broker.local_cluster.cluster import LocalCluster

COLUMNS: Final = [Column.headed(heading) for heading in ("Name", "State", "Address", "Pid", "Log")]

data_option: Final = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("cluster-data"),
    show_default=True,
    metavar="DIRECTORY",
    help="The directory with the data, the logs and the state of the cluster.",
)
name_argument: Final = click.argument("name", metavar="NAME")


@click.group()
def cluster() -> None:
    """Run several brokers on this machine, with a local ZooKeeper.

    The cluster is for development and tests: all processes listen on 127.0.0.1 and stay running in the background. NAME
    is a broker, such as 2 or broker-2, or a ZooKeeper server, such as zookeeper-1.

    \b
      oncelog cluster up --brokers 3
      oncelog topics create orders --partitions 6
      oncelog cluster kill 2
      oncelog cluster start 2
      oncelog cluster restart
      oncelog cluster down
    """


@cluster.command()
@data_option
@click.option(
    "--brokers",
    type=click.IntRange(min=1),
    help="Number of brokers; a larger number than before adds brokers. Default: 3.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65_000),
    help="Port of the first broker; the other brokers get the following ports. Default: 9092.",
)
@click.option("--zookeepers", type=click.IntRange(min=1), help="Number of ZooKeeper servers. Default: 1.")
@click.option(
    "--set",
    "settings",
    type=KEY_VALUE,
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of all brokers that are started from now on; repeatable. KEY= removes the setting.",
)
def up(
    data: Path,
    brokers: int | None,
    port: int | None,
    zookeepers: int | None,
    settings: tuple[tuple[str, str], ...],
) -> None:
    """Start the cluster, or those of its processes that are not running, and wait until all brokers serve.

    With three brokers, topics have three replicas by default, of which two must be in sync. --set http.listener=9404
    gives the first broker this port for metrics and health checks; the other brokers get the following ports. Standard
    output is the address for --bootstrap-server.
    """
    from oncelog_broker.local_cluster.broker_process import address_of
    from oncelog_broker.local_cluster.cluster import Wanted

    with _cluster(data) as local:
        members = local.up(Wanted(brokers, port, zookeepers, dict(settings)))
    click.echo(",".join(address_of(member) for member in members))


@cluster.command()
@data_option
def down(data: Path) -> None:
    """Stop the cluster in an orderly way. The data stay on disk, and `oncelog cluster up` starts the cluster again."""
    with _cluster(data) as local:
        local.down()


@cluster.command()
@name_argument
@data_option
def stop(name: str, data: Path) -> None:
    """Stop NAME in an orderly way: a broker moves its leaderships to other brokers first. `oncelog cluster start`
    starts NAME again.
    """
    with _cluster(data) as local:
        local.stop(name)


@cluster.command()
@name_argument
@data_option
def kill(name: str, data: Path) -> None:
    """Kill NAME immediately (kill -9)."""
    with _cluster(data) as local:
        local.kill(name)


@cluster.command()
@name_argument
@data_option
def pause(name: str, data: Path) -> None:
    """Pause NAME: the process keeps its connections and does not respond."""
    with _cluster(data) as local:
        local.pause(name)


@cluster.command()
@name_argument
@data_option
def resume(name: str, data: Path) -> None:
    """Resume the paused NAME."""
    with _cluster(data) as local:
        local.resume(name)


@cluster.command()
@name_argument
@data_option
def start(name: str, data: Path) -> None:
    """Start NAME again, and wait until NAME serves."""
    with _cluster(data) as local:
        local.start(name)


@cluster.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@data_option
def restart(names: tuple[str, ...], data: Path) -> None:
    """Restart the brokers NAME, or all running brokers, one after the other, without interrupting clients.

    Each broker moves its leaderships to other brokers before it stops. The next broker is restarted when all replicas
    are in sync again. At the end the preferred replicas are elected as leaders.
    """
    with _cluster(data) as local:
        local.restart(names)


@cluster.command()
@data_option
@output_option
def status(data: Path, output: str | None) -> None:
    """Show the processes: running, paused or stopped, with address and log file."""
    with _cluster(data) as local:
        rows = local.status()
    show_rows(COLUMNS, rows, output)


@contextmanager
def _cluster(data: Path) -> Iterator[LocalCluster]:
    """Context manager that yields the cluster and raises Failure for errors that a user can cause."""
    from oncelog.errors import KafkaError
    from oncelog_broker.local_cluster.cluster import ClusterError, LocalCluster
    from oncelog_broker.local_cluster.ensemble import ZooKeeperStartError
    from oncelog_broker.local_cluster.java import JavaNotFound
    from oncelog_broker.local_cluster.ports import NoFreePort
    from oncelog_broker.local_cluster.state import StateFileError
    from oncelog_broker.local_cluster.zookeeper_jars import JarsNotFound

    reasons = (
        ClusterError, JarsNotFound, JavaNotFound, KafkaError, NoFreePort, StateFileError, ZooKeeperStartError, OSError,
    )  # fmt: skip
    try:
        yield LocalCluster(data, tell)
    except reasons as error:
        raise Failure(str(error)) from None
