"""`oncelog bench`: measures how fast a cluster accepts and delivers records, and how long a transaction takes."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

import click

from oncelog.cli.bench_report import Measured, histogram_rows
from oncelog.cli.options import KEY_VALUE, bootstrap_option, client_settings, output_option
from oncelog.cli.output import chosen_format, show_document, show_plain, show_table
from oncelog.cli.running import run
from oncelog.cli.targets import TARGET, Target, partitions_of

if TYPE_CHECKING:
    from oncelog.cluster import TopicPartition

REPORT_SECONDS: Final = 0.25
FIGURE_COLUMNS: Final = ("Figure", "Value")
MAX_SIZE: Final = 100 << 20

settings_option: Final = click.option(
    "-D", "settings", type=KEY_VALUE, multiple=True, help="A setting of the client, such as linger.ms=5. Repeatable."
)
size_option: Final = click.option(
    "--size", type=click.IntRange(0, MAX_SIZE), default=100, show_default=True, metavar="BYTES", help="Of each record."
)


@click.group()
def bench() -> None:
    """Measure the speed of a cluster with oncelog's client, like Kafka's perf tests.

    A terminal shows progress on standard error. Plain output has a line for each figure: its name and its value.
    Waiting times are in milliseconds.
    """


@bench.command()
@click.argument("topic")
@bootstrap_option
@output_option
@settings_option
@size_option
@click.option("--records", type=click.IntRange(min=1), default=100_000, show_default=True, help="How many.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Records per second. Default: no limit.")
@click.option("--acks", type=click.Choice(["0", "1", "all"]), help="Default: all.")
@click.option("--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), help="Default: none.")
def produce(
    topic: str,
    bootstrap: str,
    output: str | None,
    settings: tuple[tuple[str, str], ...],
    size: int,
    records: int,
    rate: float | None,
    acks: str | None,
    compression: str | None,
) -> None:
    """Send records to TOPIC; the measured wait is the time from sending a record to its acknowledgement."""
    options = client_settings(settings)
    if acks is not None:
        options["acks"] = acks
    if compression is not None:
        options["compression_type"] = compression
    measured = Measured("records", "acknowledged")

    async def command() -> None:
        from oncelog.cli import bench_loads

        await _watched(bench_loads.produce(bootstrap, topic, records, size, rate, measured, options), measured)

    run(command, bootstrap)
    _show(measured, output)


@bench.command()
@click.argument("targets", type=TARGET, nargs=-1, required=True, metavar="TOPIC[:PARTITION]...")
@bootstrap_option
@output_option
@settings_option
@click.option("--records", type=click.IntRange(min=1), help="The most records to read. Default: all.")
@click.option("--committed", is_flag=True, help="Only committed records: isolation.level=read_committed.")
def consume(
    targets: tuple[Target, ...],
    bootstrap: str,
    output: str | None,
    settings: tuple[tuple[str, str], ...],
    records: int | None,
    committed: bool,
) -> None:
    """Read the records that topics have when the command starts. The report shows the durations of the polls."""
    options = {"auto_offset_reset": "earliest", "allow_auto_create_topics": False, **client_settings(settings)}
    if committed:
        options["isolation_level"] = "read_committed"
    measured = Measured("records", "polled")

    async def command() -> None:
        from oncelog.cli import bench_loads

        partitions = await _partitions(bootstrap, targets)
        await _watched(bench_loads.consume(bootstrap, partitions, records, measured, options), measured)

    run(command, bootstrap)
    _show(measured, output)


@bench.command()
@click.argument("topic")
@bootstrap_option
@output_option
@settings_option
@size_option
@click.option("--transactions", "count", type=click.IntRange(min=1), default=1000, show_default=True, help="How many.")
@click.option("--records", type=click.IntRange(min=1), default=10, show_default=True, help="Of each transaction.")
@click.option(
    "--aborts", type=click.IntRange(0, 100), default=0, show_default=True, help="How many of a hundred abort."
)
@click.option("--transactional-id", help="Default: a new unique name.")
def transactions(
    topic: str,
    bootstrap: str,
    output: str | None,
    settings: tuple[tuple[str, str], ...],
    size: int,
    count: int,
    records: int,
    aborts: int,
    transactional_id: str | None,
) -> None:
    """Write transactions to TOPIC, one after another; the measured wait is the time from begin to commit."""
    options = client_settings(settings)
    options["transactional_id"] = transactional_id or f"oncelog-bench-{uuid.uuid4().hex[:12]}"
    measured = Measured("transactions", "ended")

    async def command() -> None:
        from oncelog.cli import bench_loads

        load = bench_loads.transactions(bootstrap, topic, count, records, size, aborts, measured, options)
        await _watched(load, measured)

    run(command, bootstrap)
    _show(measured, output)


async def _partitions(bootstrap: str, targets: tuple[Target, ...]) -> list[TopicPartition]:
    from oncelog.admin import Admin
    from oncelog.cli.command_config import connection_settings

    async with Admin(bootstrap, **connection_settings()) as admin:
        return await partitions_of(admin, targets)


async def _watched(load: Coroutine[Any, Any, None], measured: Measured) -> None:
    """Run `load`, and show its progress on a terminal."""
    if not sys.stderr.isatty():
        await load
        return
    from rich.console import Console

    with Console(stderr=True).status("connecting") as status:

        async def tell() -> None:
            while True:
                await asyncio.sleep(REPORT_SECONDS)
                status.update(measured.line())

        telling = asyncio.create_task(tell())
        try:
            await load
        finally:
            telling.cancel()


def _show(measured: Measured, output: str | None) -> None:
    match chosen_format(output):
        case "json":
            show_document(measured.as_json())
        case "plain":
            show_plain(measured.figures(), FIGURE_COLUMNS)
        case _:
            show_table(FIGURE_COLUMNS, [(name, f"{value:,}") for name, value in measured.figures()])
            if measured.waits.count:
                show_table((f"Until {measured.what}", "Count", ""), histogram_rows(measured.waits))
