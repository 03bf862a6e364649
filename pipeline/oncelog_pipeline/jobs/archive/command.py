"""Implements the commands `oncelog pipeline archive` and `restore`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from oncelog.cli.options import KEY_VALUE, bootstrap_option, output_option
from oncelog.cli.output import Column, show_rows
from oncelog_pipeline.jobs.archive.manifest import Archived
from oncelog_pipeline.jobs.running import failing, log_option, spark_option
from oncelog_pipeline.options.sink_options import Delivery

COLUMNS = [Column.headed(heading) for heading in ("Topic", "Partitions", "Records", "Name")]


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@bootstrap_option
@click.option("--to", "path", required=True, metavar="PATH", help="A directory that does not exist yet, or s3a://...")
@click.option("--by-date", is_flag=True, help="Folders for days, too, by the timestamps of records (UTC).")
@output_option
@spark_option
@log_option
def archive(
    topics: tuple[str, ...],
    bootstrap: str,
    path: str,
    by_date: bool,
    output: str | None,
    spark_settings: tuple[tuple[str, str], ...],
    log_level: str,
) -> None:
    """Write topics to Parquet, with the keys, values, headers, timestamps and offsets of their records.

    The command archives the records that are committed when it starts, in folders by topic and partition. `oncelog
    pipeline restore` creates the topics again from the archive. Plain output, one line for each topic: topic,
    partitions, records, name of the topic.
    """
    with failing("stopped; the archive is not complete: delete it"):
        from oncelog_pipeline.jobs.archive import writing
        from oncelog_pipeline.jobs.session import session

        with session("oncelog archive", dict(spark_settings), log_level=log_level) as spark:
            found = writing.archive(spark, bootstrap, list(dict.fromkeys(topics)), path, by_date=by_date)
    _show([(each, each.topic) for each in found], output)


@click.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@bootstrap_option
@click.option(
    "--from", "path", required=True, metavar="PATH", help="The directory that `oncelog pipeline archive` has written."
)
@click.option(
    "--as", "name", metavar="NAME", help="Another name for the restored topic, if only one topic is restored."
)
@click.option(
    "--config",
    "configs",
    type=KEY_VALUE,
    multiple=True,
    metavar="KEY=VALUE",
    help="A config of the topics that are created.",
)
@click.option(
    "--delivery",
    type=click.Choice([each.value for each in Delivery]),
    default=Delivery.EXACTLY_ONCE.value,
    show_default=True,
    help="Delivery guarantee. A restore that takes longer than transaction.max.timeout.ms can only be at-least-once.",
)
@output_option
@spark_option
@log_option
def restore(
    topics: tuple[str, ...],
    bootstrap: str,
    path: str,
    name: str | None,
    configs: tuple[tuple[str, str], ...],
    delivery: str,
    output: str | None,
    spark_settings: tuple[tuple[str, str], ...],
    log_level: str,
) -> None:
    """Create topics again from Parquet: all topics of an archive, or the named ones.

    Keys, values, headers and timestamps are restored byte by byte, in the same partitions and the same order, but
    records get new offsets. If a topic exists already, it must be empty and have the same number of partitions. Plain
    output, one line for each topic: topic, partitions, records, name of the restored topic.
    """
    with failing("stopped; the topic under way is not whole: delete it"):
        from oncelog_pipeline.jobs.archive import reading
        from oncelog_pipeline.jobs.session import session

        with session("oncelog restore", dict(spark_settings), log_level=log_level) as spark:
            done = reading.restore(spark, bootstrap, path, topics, name=name, configs=dict(configs), delivery=delivery)
    _show(done, output)


def _show(done: Sequence[tuple[Archived, str]], output: str | None) -> None:
    show_rows(COLUMNS, [(each.topic, each.partitions, each.total, name) for each, name in done], output)
