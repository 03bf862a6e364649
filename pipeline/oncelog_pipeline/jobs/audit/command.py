"""Implements the command `oncelog pipeline audit`."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import click

from oncelog.cli.options import KEY_VALUE, bootstrap_option, client_settings, output_option
from oncelog.cli.output import chosen_format, show_document, show_plain, show_table, tell
from oncelog_pipeline.jobs.audit.verdict import MEANINGS, Verdict
from oncelog_pipeline.jobs.running import failing, log_option, spark_option

WRONG: Final = 1


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@bootstrap_option
@click.option("--by", type=click.Choice(["producer", "key"]), default="producer", show_default=True)
@click.option("--sequence", "path", metavar="$.PATH", help="By key: path of the number in a JSON value.")
@click.option("--sequence-header", "header", metavar="NAME", help="By key: the header that has the number.")
@click.option("--first", type=int, metavar="N", help="By key: the first number of every key.")
@click.option("-D", "settings", type=KEY_VALUE, multiple=True, metavar="KEY=VALUE", help="A setting of the consumers.")
@output_option
@spark_option
@log_option
def audit(
    topics: tuple[str, ...],
    bootstrap: str,
    by: str,
    path: str | None,
    header: str | None,
    first: int | None,
    settings: tuple[tuple[str, str], ...],
    output: str | None,
    spark_settings: tuple[tuple[str, str], ...],
    log_level: str,
) -> None:
    """Prove, with a Spark job, that topics of any size have no gaps and no duplicates.

    By producer: idempotent producers number their records, brokers store these sequence numbers, and each must follow
    the previous one. By key: the application gives the records of each key a number (1, 2, 3 ...), in a JSON value or a
    header. The number must increase by one from record to record; only committed records are checked.

    The exit code is 1 if the audit finds a fault, or if it has no record that it can check. Plain output, one line for
    each fault: kind, topic, producer or key, offset range, number of records concerned.
    """
    if (by == "key") != (path is not None or header is not None):
        raise click.UsageError("--by key needs --sequence or --sequence-header, which are for it alone")
    if path is not None and header is not None:
        raise click.UsageError("--sequence and --sequence-header mean the same: use only one")
    with failing():
        verdict = _audited(topics, bootstrap, path, header, first, client_settings(settings), spark_settings, log_level)
    show(verdict, chosen_format(output))
    if not verdict.is_right:
        raise click.exceptions.Exit(WRONG)


def _audited(
    topics: tuple[str, ...],
    bootstrap: str,
    path: str | None,
    header: str | None,
    first: int | None,
    settings: dict[str, Any],
    spark_settings: tuple[tuple[str, str], ...],
    log_level: str,
) -> Verdict:
    from oncelog_pipeline.jobs.audit import by_key, by_producer
    from oncelog_pipeline.jobs.audit.topics import extent
    from oncelog_pipeline.jobs.session import session

    there = asyncio.run(extent(bootstrap, list(dict.fromkeys(topics)), settings))
    with session("oncelog audit", dict(spark_settings), log_level=log_level) as spark:
        if path is None and header is None:
            return by_producer.audit(spark, bootstrap, there, settings)
        sequence = by_key.sequence_in_header(header or "") if path is None else by_key.sequence_in_json(path)
        return by_key.audit(spark, bootstrap, there, sequence, first)


def show(verdict: Verdict, form: str) -> None:
    """Print the verdict; `form` is table, plain or json."""
    if form == "json":
        show_document(verdict.as_json())
        return
    faults = [(each.kind, each.topic, each.who, each.place, each.records) for each in verdict.examples]
    if form == "plain":
        show_plain(faults)
    else:
        show_table(verdict.headings(), verdict.rows())
        if faults:
            told = [(MEANINGS[kind], who, place, records) for kind, _, who, place, records in faults]
            show_table(("Fault", verdict.by.capitalize(), "Place", "Records"), told)
    for sentence in verdict.sentences():
        tell(sentence)
    if form == "plain":
        for row in verdict.rows():
            tell(f"{row[0]}: {row[-1]}; {row[2]} of {row[1]} records judged")
