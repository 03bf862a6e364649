"""`oncelog log-dirs`: the data directories of the brokers, their replicas and free space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.options import bootstrap_option, output_option
from oncelog.cli.output import chosen_format, show_document, show_plain, show_table
from oncelog.cli.running import run
from oncelog.cli.targets import check_brokers

if TYPE_CHECKING:
    from oncelog.admin.log_dirs import LogDirectory
    from oncelog.errors import KafkaError

Found = dict[int, dict[str, "LogDirectory | KafkaError"]]

COLUMNS: Final = ("Broker", "Directory", "Replicas", "Bytes", "Free", "Of")
PARTITION_COLUMNS: Final = ("Broker", "Directory", "Topic", "Partition", "Bytes", "Lag")


@click.command(name="log-dirs")
@bootstrap_option
@output_option
@click.option("--broker", "broker_ids", type=int, multiple=True, metavar="ID", help="Of this broker; repeatable.")
@click.option("--partitions", "by_partition", is_flag=True, help="A line for each replica.")
def log_dirs(bootstrap: str, output: str | None, broker_ids: tuple[int, ...], by_partition: bool) -> None:
    """Show the data directories of all brokers: replicas, their bytes, and the free space of the file system.

    Plain output has a line for each directory: broker, directory, replicas, bytes, bytes that are free, bytes of the
    file system. With --partitions, plain output has a line for each replica: broker, directory, topic, partition,
    bytes, and lag in records. JSON output contains both directories and replicas. A directory that cannot be used shows
    its error instead of the numbers.
    """

    async def command() -> Found:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            await check_brokers(admin, broker_ids)
            return await admin.describe_log_dirs(broker_ids or None)

    found = run(command, bootstrap)
    rows = _rows_of_partitions(found) if by_partition else _rows(found)
    columns = PARTITION_COLUMNS if by_partition else COLUMNS
    match chosen_format(output):
        case "json":
            show_document(_json(found))
        case "plain":
            show_plain(rows, columns)
        case _:
            show_table(columns, rows)


def _rows(found: Found) -> list[tuple[object, ...]]:
    from oncelog.errors import KafkaError

    rows: list[tuple[object, ...]] = []
    for broker_id, directories in sorted(found.items()):
        for path, directory in directories.items():
            if isinstance(directory, KafkaError):
                rows.append((broker_id, path, str(directory), "", "", ""))
                continue
            room = (_or_unknown(directory.usable_bytes), _or_unknown(directory.total_bytes))
            rows.append((broker_id, path, len(directory.replicas), directory.size, *room))
    return rows


def _rows_of_partitions(found: Found) -> list[tuple[object, ...]]:
    from oncelog.errors import KafkaError

    return [
        (broker_id, path, partition.topic, partition.partition, replica.size, replica.offset_lag)
        for broker_id, directories in sorted(found.items())
        for path, directory in directories.items()
        if not isinstance(directory, KafkaError)
        for partition, replica in sorted(directory.replicas.items())
    ]


def _json(found: Found) -> list[dict[str, object]]:
    from oncelog.errors import KafkaError

    return [
        {"broker": broker_id, "directory": path, "error": str(directory)}
        if isinstance(directory, KafkaError)
        else {
            "broker": broker_id,
            "directory": path,
            "bytes": directory.size,
            "usable_bytes": directory.usable_bytes,
            "total_bytes": directory.total_bytes,
            "replicas": [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "bytes": replica.size,
                    "offset_lag": replica.offset_lag,
                    "is_future": replica.is_future,
                }
                for partition, replica in sorted(directory.replicas.items())
            ],
        }
        for broker_id, directories in sorted(found.items())
        for path, directory in directories.items()
    ]


def _or_unknown(count: int | None) -> object:
    return "?" if count is None else count
