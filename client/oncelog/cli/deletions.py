"""`oncelog topics delete-records` and `oncelog groups delete-offsets`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.options import bootstrap_option, output_option
from oncelog.cli.output import Column, confirmed, show_rows, tell
from oncelog.cli.running import Failure, run
from oncelog.cli.targets import PARTITION, TARGET, Target, partitions_of
from oncelog.escaping import visible

if TYPE_CHECKING:
    from oncelog.cluster import TopicPartition

COLUMNS: Final = tuple(map(Column.headed, ("Topic", "Partition", "First offset")))
END: Final = -1
"""The offset that stands for the high watermark in DeleteRecords."""


def _ask(question: str, *, yes: bool) -> None:
    """Ask the user; raises Failure unless the user agrees."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure("will not delete without asking, and there is nobody to ask: use --yes")
    if not confirmed(question):
        raise Failure("nothing was deleted")


@click.command("delete-records")
@click.argument("partitions", nargs=-1, required=True, type=PARTITION, metavar="TOPIC:PARTITION...")
@click.option("--before", type=click.IntRange(min=0), help="Delete the records below this offset.")
@click.option("--all", "is_all", is_flag=True, help="Delete all records that there are now.")
@bootstrap_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@output_option
def delete_records(
    partitions: tuple[tuple[str, int], ...],
    before: int | None,
    is_all: bool,
    bootstrap: str,
    yes: bool,
    output: str | None,
) -> None:
    """Delete the oldest records of partitions. Plain output: topic, partition, the new first offset."""
    if (before is None) is not is_all:
        raise click.UsageError("either --before or --all is needed")
    named = ", ".join(f"{topic}:{index}" for topic, index in partitions)
    _ask(f"Delete {'all records' if before is None else f'the records below {before}'} in {named}?", yes=yes)

    async def command() -> dict[TopicPartition, int]:
        from oncelog.admin import Admin
        from oncelog.cluster import TopicPartition

        offset = END if before is None else before
        async with Admin(bootstrap, **connection_settings()) as admin:
            return await admin.delete_records({TopicPartition(*each): offset for each in partitions})

    firsts = run(command, bootstrap)
    show_rows(COLUMNS, [(*where, offset) for where, offset in sorted(firsts.items())], output)


@click.command("delete-offsets")
@click.argument("group_id", metavar="GROUP")
@click.option("--topic", "topics", type=TARGET, multiple=True, required=True, help="Whose offsets. May be repeated.")
@bootstrap_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def delete_offsets(group_id: str, topics: tuple[Target, ...], bootstrap: str, yes: bool) -> None:
    """Delete the offsets that GROUP has committed in topics. GROUP must not be subscribed to these topics."""
    named = ", ".join(topic if index is None else f"{topic}:{index}" for topic, index in topics)
    _ask(f"Delete the offsets of {group_id} in {named}?", yes=yes)

    async def command() -> None:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            await admin.groups.delete_offsets(group_id, await partitions_of(admin, topics))

    run(command, bootstrap)
    tell(visible(f"deleted the offsets of {group_id} in {named}"))
