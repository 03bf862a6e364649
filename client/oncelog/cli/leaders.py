"""`oncelog leaders`: the leaders per broker, and elections."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.options import bootstrap_option, output_option
from oncelog.cli.output import Column, chosen_format, confirmed, count, say, show_rows, tell
from oncelog.cli.running import Failure, run
from oncelog.cli.targets import TARGET, Target, partitions_of

if TYPE_CHECKING:
    from oncelog.cluster import Broker, Topic, TopicPartition

COLUMNS: Final = tuple(
    map(
        Column.headed,
        ("Broker", "Replicas", "In sync", "Leads", "Preferred leader of", "Of these led by other brokers"),
    )
)
ELECTED_COLUMNS: Final = tuple(map(Column.headed, ("Topic", "Partition")))
Row = tuple[int, int, int, int, int, int]


@click.group()
def leaders() -> None:
    """Show which brokers lead partitions, and elect leaders.

    The preferred leader of a partition is its first replica. If all partitions are led by their preferred leaders,
    leadership is distributed over the brokers as planned when the topics were created.
    """


@leaders.command()
@bootstrap_option
@output_option
def show(bootstrap: str, output: str | None) -> None:
    """Show for each broker the number of its replicas, of its in-sync replicas, of the partitions that it leads, and of
    the partitions whose preferred leader it is.

    Partitions without a leader are counted under broker -1.
    """

    async def command() -> list[Row]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            names = await admin.list_topics(include_internal=True)
            topics = await admin.describe_topics(names) if names else {}
            brokers = (await admin.describe_cluster()).brokers
        return rows_of(brokers, topics.values())

    show_rows(COLUMNS, run(command, bootstrap), output)


def rows_of(brokers: Iterable[Broker], topics: Iterable[Topic]) -> list[Row]:
    """Return a row for each broker that is alive, has replicas, or leads."""
    replicas, in_sync, led, preferred, elsewhere = (Counter[int]() for _ in range(5))
    for topic in topics:
        for partition in topic.partitions.values():
            replicas.update(partition.replicas)
            in_sync.update(partition.isr)
            led[partition.leader] += 1
            first = partition.replicas[0]
            preferred[first] += 1
            elsewhere[first] += partition.leader != first
    ids = {broker.node_id for broker in brokers} | replicas.keys() | led.keys()
    return [(id_, replicas[id_], in_sync[id_], led[id_], preferred[id_], elsewhere[id_]) for id_ in sorted(ids)]


@leaders.command()
@click.argument("targets", nargs=-1, type=TARGET, metavar="[TOPIC[:PARTITION]]...")
@bootstrap_option
@output_option
@click.option("--unclean", is_flag=True, help="If no in-sync replica is left, elect a replica that may lack records.")
@click.option("--yes", "-y", is_flag=True, help="With --unclean: do not ask.")
@click.option("--timeout-ms", type=click.IntRange(min=1), help="How long it may take. Default: 60000.")
def elect(
    targets: tuple[Target, ...],
    bootstrap: str,
    output: str | None,
    unclean: bool,
    yes: bool,
    timeout_ms: int | None,
) -> None:
    """Elect the preferred leaders of these topics and partitions, or of all.

    A preferred replica that is out of sync is reported instead of elected. With --unclean, partitions without a leader
    get a leader that may lack records. Records that the new leader lacks are lost, so --unclean requires named topics
    or partitions. Plain
    output: the partitions whose leader has changed, as TOPIC-PARTITION.
    """
    if unclean and not targets:
        raise click.UsageError("--unclean may lose records: name the topics or partitions")
    if unclean and not yes:
        if not sys.stdin.isatty():
            raise Failure("an unclean election may lose records; without a terminal to ask on, it needs --yes")
        if not confirmed("Elect leaders that may lack records, and lose the missing records permanently?"):
            raise Failure("no leader was elected")

    async def command() -> list[TopicPartition]:
        from oncelog.admin import Admin
        from oncelog_protocol.elections import ElectionType

        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        async with Admin(bootstrap, **connection_settings()) as admin:
            partitions = await partitions_of(admin, targets) if targets else None
            return await admin.elect_leaders(kind, partitions, timeout_ms=timeout_ms)

    elected = run(command, bootstrap)
    if chosen_format(output) == "plain":
        for partition in elected:
            say(str(partition))
    else:
        show_rows(ELECTED_COLUMNS, elected, output)
    tell(f"{count(len(elected), 'partition')} with another leader than before")
