"""`oncelog top`: brokers, throughput, out-of-sync partitions, lag and open transactions, live in a terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.options import bootstrap_option, output_option
from oncelog.cli.output import cell, chosen_format, show_document, show_plain, tell
from oncelog.cli.running import describe, run
from oncelog.cli.top_snapshot import Rates, Snapshot, look, rates
from oncelog.escaping import visible

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

MOST_ROWS: Final = 12
"""Maximum number of rows of each table; the most important rows come first."""
SHORT: Final = 30
"""Maximum number of characters of a list of partitions."""

Row = tuple[object, ...]
Table = tuple[str, tuple[str, ...], list[Row]]
"""The title, the headings and the rows of a table."""


class Form(NamedTuple):
    """Functions that format figures."""

    rate: Callable[[float | None], str]
    """Formats records per second."""
    time: Callable[[float | None], str]
    """Formats seconds."""
    partitions: Callable[[tuple[str, ...]], str]


@click.command()
@bootstrap_option
@output_option
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between queries; throughput is measured between two of them.",
)
@click.option(
    "--once", is_flag=True, help="Snapshot twice, print, and end; the default if standard output is not a terminal."
)
def top(bootstrap: str, output: str | None, interval: float, once: bool) -> None:
    """Show the activity of a cluster, until Ctrl-C.

    The command only sends requests of Kafka's protocol, so it also works with Apache Kafka and shows the values that
    Kafka reports. Plain output
    has a line for each row of each table, which starts with the table's name; times are in seconds.
    """
    if once or output is not None or not sys.stdout.isatty():
        before, now = run(lambda: _look_twice(bootstrap, interval), bootstrap)
        _show(now, rates(before, now), output)
    else:
        run(lambda: _follow(bootstrap, interval), bootstrap)


async def _look_twice(bootstrap: str, interval: float) -> tuple[Snapshot, Snapshot]:
    from oncelog.admin import Admin

    async with Admin(bootstrap, **connection_settings()) as admin:
        before = await look(admin)
        await asyncio.sleep(interval)
        return before, await look(admin)


async def _follow(bootstrap: str, interval: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from oncelog.admin import Admin
    from oncelog.errors import KafkaError

    async with Admin(bootstrap, **connection_settings()) as admin:
        before: Snapshot | None = None
        now = await look(admin)
        with Live(drawn(now, rates(None, now)), console=Console(), screen=True, auto_refresh=False) as live:
            while True:
                await asyncio.sleep(interval)
                try:
                    before, now = now, await look(admin)
                except KafkaError as error:  # continue, because brokers may become available again
                    now.missing["cluster"] = describe(error, bootstrap)
                live.update(drawn(now, rates(before, now)), refresh=True)


def _show(now: Snapshot, measured: Rates, output: str | None) -> None:
    match chosen_format(output):
        case "json":
            show_document(as_json(now, measured))
        case "plain":
            show_plain(
                [(title.lower(), *row) for title, _, rows in tables(now, measured, FOR_PROGRAMS) for row in rows]
            )
            for what, why in now.missing.items():
                tell(f"oncelog: {what}: {why}")
        case _:
            from rich.console import Console

            Console(file=sys.stdout, highlight=False).print(drawn(now, measured))


def as_json(now: Snapshot, measured: Rates) -> dict[str, Any]:
    return {
        "cluster_id": now.cluster_id,
        "records_per_second": round(measured.total, 1),
        "brokers": [
            asdict(row) | {"records_per_second": round(measured.by_broker.get(row.node_id, 0.0), 1)}
            for row in now.brokers
        ],
        "topics": [{"topic": topic, "records_per_second": round(rate, 1)} for topic, rate in busiest(measured)],
        "out_of_sync": [asdict(row) for row in now.out_of_sync],
        "groups": [asdict(row) for row in now.groups],
        "transactions": [asdict(row) for row in now.transactions],
        "missing": now.missing,
    }


def busiest(measured: Rates) -> list[tuple[str, float]]:
    """Return the topics to which something was written, the busiest first."""
    busy = [(topic, rate) for topic, rate in measured.by_topic.items() if rate > 0]
    return sorted(busy, key=lambda each: (-each[1], each[0]))


def tables(now: Snapshot, measured: Rates, form: Form) -> list[Table]:
    """Return the tables in the order in which they are shown."""
    brokers: list[Row] = [
        (
            row.node_id,
            row.address,
            "controller" if row.is_controller else "",
            row.leads,
            row.replicas,
            row.out_of_sync,
            form.rate(measured.by_broker.get(row.node_id)),
        )
        for row in now.brokers
    ]
    topics: list[Row] = [(topic, form.rate(rate)) for topic, rate in busiest(measured)]
    behind: list[Row] = [
        (row.topic, row.partition, row.leader, _list(row.replicas), _list(row.isr)) for row in now.out_of_sync
    ]
    groups: list[Row] = [(row.group_id, row.state, row.members, row.lag) for row in now.groups]
    transactions: list[Row] = [
        (
            row.transactional_id,
            form.time(row.seconds),
            row.producer_id,
            row.coordinator_id,
            form.partitions(row.partitions),
        )
        for row in now.transactions
    ]
    return [
        ("Brokers", ("Broker", "Address", "", "Leads", "Replicas", "Out of sync", "Records/s"), brokers),
        ("Topics", ("Topic", "Records/s"), topics),
        ("Out of sync", ("Topic", "Partition", "Leader", "Replicas", "In sync"), behind),
        ("Open transactions", ("Transactional id", "Open for", "Producer", "Coordinator", "Partitions"), transactions),
        ("Groups", ("Group", "State", "Members", "Lag"), groups),
    ]


def drawn(now: Snapshot, measured: Rates) -> Group:
    """Return the tables that have rows, below a summary line; markup in the texts is not interpreted."""
    from rich.console import Group
    from rich.text import Text

    behind, late = len(now.out_of_sync), len(now.transactions)
    line = Text.assemble(
        (f"{len(now.brokers)} brokers", "bold"),
        f"   {per_second(measured.total)} records/s   {len(now.leaders)} partitions led   ",
        (f"{behind} out of sync", "bold red" if behind else "green"),
        f"   {late} open transactions   cluster {visible(now.cluster_id or '-')}",
    )
    parts: list[RenderableType] = [line]
    parts += [_table(*table) for table in tables(now, measured, FOR_PEOPLE) if table[2]]
    parts += [Text(visible(f"{what}: {why}"), style="yellow") for what, why in now.missing.items()]
    return Group(*parts)


def _table(title: str, headings: tuple[str, ...], rows: list[Row]) -> RenderableType:
    from rich.table import Table as RichTable
    from rich.text import Text

    more = f"   and {len(rows) - MOST_ROWS} more" if len(rows) > MOST_ROWS else ""
    made = RichTable(title=Text(title + more), title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        is_number = all(isinstance(row[number], int) for row in rows)
        made.add_column(heading, justify="right" if is_number else "left", overflow="ellipsis", no_wrap=True)
    for row in rows[:MOST_ROWS]:
        made.add_row(*(Text(cell(field)) for field in row))
    return made


def per_second(rate: float | None) -> str:
    return "0" if not rate else f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def duration(seconds: float | None) -> str:
    """Format a duration for people: 0.3 s, 12 s, 3 min 20 s, 2 h 5 min."""
    if seconds is None:
        return "-"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    seconds = round(seconds)  # round first, because otherwise 119.7 s would be shown as 1 min 60 s
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"


def plain_number(number: float | None) -> str:
    """Format a number for programs: one decimal, no thousands separator."""
    return "-" if number is None else f"{number:.1f}"


def _list(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def _short(partitions: tuple[str, ...]) -> str:
    text = ",".join(partitions)
    return text if len(text) <= SHORT else f"{text[:SHORT]}... ({len(partitions)})"


FOR_PEOPLE: Final = Form(per_second, duration, _short)
FOR_PROGRAMS: Final = Form(lambda rate: plain_number(rate or 0.0), plain_number, ",".join)
