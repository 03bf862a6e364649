"""`oncelog groups`: lists groups, describes them with their lag, resets offsets and deletes groups; the command
delete-offsets is in deletions.py.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from oncelog.cli import group_tables, held_offsets
from oncelog.cli.command_config import connection_settings
from oncelog.cli.deletions import delete_offsets
from oncelog.cli.group_positions import GroupPositions, planned, positions_of
from oncelog.cli.group_tables import PLAIN_COLUMNS
from oncelog.cli.options import bootstrap_option, output_option
from oncelog.cli.output import (
    Column,
    chosen_format,
    confirmed,
    say,
    show_document,
    show_plain,
    show_rows,
    show_table,
    tell,
)
from oncelog.cli.running import Failure, run
from oncelog.cli.targets import TARGET, Target, partitions_of
from oncelog.escaping import shell_quoted

if TYPE_CHECKING:
    from oncelog.cli.offsets import Position
    from oncelog.cluster import TopicPartition

LIST_COLUMNS: Final = tuple(map(Column.headed, ("Group", "State", "Type", "Protocol")))
PLAN_COLUMNS: Final = tuple(map(Column.headed, ("Topic", "Partition", "Committed", "New offset")))


@click.group()
def groups() -> None:
    """List, describe, reset and delete consumer groups."""


groups.add_command(delete_offsets)


@groups.command(name="list")
@bootstrap_option
@output_option
def list_(bootstrap: str, output: str | None) -> None:
    """List the groups. Plain output has a line for each group: group, state, protocol type and protocol.

    The type shows the kind of members: "consumer", "share" or "streams", or nothing for a group that only commits
    offsets. In a group of the protocol "classic", a member assigns the partitions. In groups of the protocols
    "consumer" (KIP-848), "share" (KIP-932) and "streams" (KIP-1071), the broker assigns them.
    """

    async def command() -> list[tuple[str, ...]]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            return [
                (group.group_id, group.state, group.protocol_type, group.group_type)
                for group in await admin.groups.list()
            ]

    show_rows(LIST_COLUMNS, run(command, bootstrap), output)


@groups.command()
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP...")
@bootstrap_option
@output_option
def describe(group_ids: tuple[str, ...], bootstrap: str, output: str | None) -> None:
    """Show the committed offsets of groups, their lag, their members, and the assignment.

    Members of a streams group (KIP-1071) are shown with their tasks: 0_3 is the task of subtopology 0 for partition 3.

    If an open transaction has a pending offset of the group, the member with that partition waits until the transaction
    has ended. The transaction, its start and its latest end are shown below the tables.

    Plain output has a line for each partition: group, state, topic, partition, committed offset, end offset, lag,
        member, client id, host, group instance id, the transactional id of the pending offset, and the latest end of
    its transaction (ms). A member without partitions has a line with "-" for the missing values, and so does a group
    that has neither members nor offsets. The total lag of a group is printed below its table; with plain output, on
    standard error.
    """

    async def command() -> list[GroupPositions]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            return [await positions_of(admin, group_id) for group_id in dict.fromkeys(group_ids)]

    described = run(command, bootstrap)
    match chosen_format(output):
        case "json":
            show_document([group_tables.as_json(each) for each in described])
        case "plain":
            show_plain([row for each in described for row in group_tables.plain_rows(each)], PLAIN_COLUMNS)
            for each in described:
                if each.rows:
                    tell(group_tables.sum_of_lag(each))
        case _:
            for each in described:
                _show(each)
    for each in described:
        for note in group_tables.notes(each):
            tell(f"oncelog: {note}")


def _show(positions: GroupPositions) -> None:
    """Print the tables, and a description of the transactions with pending offsets."""
    from oncelog.clock import now_ms

    show_table(*group_tables.partition_table(positions), *group_tables.title(positions))
    if positions.rows:
        say(group_tables.sum_of_lag(positions))
    if positions.group.members:
        show_table(*group_tables.member_table(positions), "Members")
    for line in held_offsets.text(positions.held, now_ms()):
        say(line)


@groups.command()
@click.argument("group_id", metavar="GROUP")
@bootstrap_option
@output_option
@click.option(
    "--topic", "topics", type=TARGET, multiple=True, help="Default: all topics with committed offsets of the group."
)
@click.option("--to", "target", metavar="POSITION", help="earliest, latest, an offset, -N, @MS, a date, an age (5m).")
@click.option("--shift-by", type=int, help="Move by that many records; backwards if negative.")
@click.option(
    "--from-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="topic,partition,offset"
)
@click.option("--to-file", type=click.Path(dir_okay=False, path_type=Path), help="Write the plan to a file as well.")
@click.option("--execute", is_flag=True, help="Do it. Without this, only the plan is shown.")
def reset(
    group_id: str,
    bootstrap: str,
    output: str | None,
    topics: tuple[Target, ...],
    target: str | None,
    shift_by: int | None,
    from_file: Path | None,
    to_file: Path | None,
    execute: bool,
) -> None:
    """Move the committed offsets of GROUP, which must have no members.

    Positions are written as in `oncelog consume --from`. Plain output: topic, partition, committed offset, new offset.
    """
    if [target, shift_by, from_file].count(None) != 2:
        raise click.UsageError("one of --to, --shift-by and --from-file is needed")
    position = None if target is None else _position(target)

    async def command() -> list[tuple[Any, ...]]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            committed = {key: value.offset for key, value in (await admin.groups.offsets(group_id)).items()}
            if not committed and not topics and from_file is None:
                # This call only serves to raise GROUP_ID_NOT_FOUND if the group does not exist.
                await admin.groups.describe([group_id])
            if from_file is not None:
                plan = _plan_from(from_file)
            else:
                wanted = await partitions_of(admin, topics) if topics else sorted(committed)
                plan = await planned(admin, wanted, committed, position, shift_by)
            if to_file is not None:
                _write_plan(to_file, plan)
            if execute:
                await admin.groups.alter_offsets(group_id, plan)
            if held := sorted(await admin.groups.unstable_offsets(group_id, plan)):
                where = ", ".join(f"{topic}:{index}" for topic, index in held)
                tell(
                    f"oncelog: an open transaction has pending offsets of {group_id} ({where}), which replace "
                    "these if it "
                    f"commits: oncelog groups describe {shell_quoted(group_id)} shows its owner"
                )
        return [(*key, committed.get(key), plan[key]) for key in sorted(plan)]

    rows = run(command, bootstrap)
    if not rows:
        raise Failure(f"{group_id} has committed nothing: name topics with --topic")
    show_rows(PLAN_COLUMNS, rows, output)
    tell(f"moved {group_id}" if execute else "nothing was changed: use --execute")


@groups.command()
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP...")
@bootstrap_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def delete(group_ids: tuple[str, ...], bootstrap: str, yes: bool) -> None:
    """Delete groups without members, and their committed offsets."""
    if not yes:
        if not sys.stdin.isatty():
            raise Failure("deleting needs a confirmation, and standard input is not a terminal: use --yes")
        if not confirmed(f"Delete {', '.join(group_ids)} and all committed offsets?"):
            raise Failure("nothing was deleted")

    async def command() -> None:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            await admin.groups.delete(group_ids)

    run(command, bootstrap)
    tell(f"deleted {', '.join(group_ids)}")


def _position(target: str) -> Position:
    from oncelog.cli.offsets import parse_position

    try:
        return parse_position(target, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--to") from error


def _plan_from(file: Path) -> dict[TopicPartition, int]:
    from oncelog.cli.reset_plan import from_csv

    try:
        return from_csv(file.read_text().splitlines())
    except (OSError, ValueError) as error:
        raise Failure(f"{file}: {error}") from error


def _write_plan(file: Path, plan: dict[TopicPartition, int]) -> None:
    from oncelog.cli.reset_plan import to_csv

    try:
        file.write_text(to_csv(plan))
    except OSError as error:
        raise Failure(f"{file}: {error}") from error
