"""`oncelog groups`: list, describe with lag, reset offsets, delete."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.options import bootstrap_option, output_option
from oncelog.cli.output import Column, chosen_format, show_document, show_plain, show_rows, show_table
from oncelog.cli.running import Failure, run
from oncelog.cli.targets import TARGET, Target, partitions_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.admin import Admin
    from oncelog.cli.offsets import Position
    from oncelog.cli.reset_plan import Bounds
    from oncelog.cluster import TopicPartition

LAG_COLUMNS: Final = ("Topic", "Partition", "Committed", "End offset", "Lag", "Member", "Client", "Host")
LIST_COLUMNS: Final = tuple(map(Column.headed, ("Group", "State", "Type")))
PLAN_COLUMNS: Final = tuple(map(Column.headed, ("Topic", "Partition", "Committed", "New offset")))


@click.group()
def groups() -> None:
    """List, describe, reset and delete consumer groups."""


@groups.command(name="list")
@bootstrap_option
@output_option
def list_(bootstrap: str, output: str | None) -> None:
    """List the groups. Plain output: group, state, protocol type on each line."""

    async def command() -> list[tuple[str, str, str]]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            return [(group.group_id, group.state, group.protocol_type) for group in await admin.groups.list()]

    show_rows(LIST_COLUMNS, run(command, bootstrap), output)


@groups.command()
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP...")
@bootstrap_option
@output_option
def describe(group_ids: tuple[str, ...], bootstrap: str, output: str | None) -> None:
    """Show what the groups have committed, how far behind they are, and who reads what.

    Plain output has a line for each partition: group, state, topic, partition, committed offset, end offset, lag,
    member, client id, host.
    """

    async def command() -> list[tuple[str, str, list[tuple[Any, ...]]]]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            return [await _lags(admin, group_id) for group_id in group_ids]

    described = run(command, bootstrap)
    match chosen_format(output):
        case "json":
            show_document(
                [
                    {
                        "group": group_id,
                        "state": state,
                        "partitions": [dict(zip(map(str.lower, LAG_COLUMNS), row, strict=True)) for row in rows],
                    }
                    for group_id, state, rows in described
                ]
            )
        case "plain":
            show_plain([(group_id, state, *row) for group_id, state, rows in described for row in rows])
        case _:
            for group_id, state, rows in described:
                show_table(LAG_COLUMNS, rows, f"{group_id}: {state}")


@groups.command()
@click.argument("group_id", metavar="GROUP")
@bootstrap_option
@output_option
@click.option("--topic", "topics", type=TARGET, multiple=True, help="Default: all that the group has committed.")
@click.option("--to", "target", metavar="POSITION", help="earliest, latest, an offset, -N, @MS, a date, an age (5m).")
@click.option("--shift-by", type=int, help="Move by that many records, back where negative.")
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

    The positions are those of `oncelog consume --from`. Plain output: topic, partition, committed offset, new offset.
    """
    if [target, shift_by, from_file].count(None) != 2:
        raise click.UsageError("one of --to, --shift-by and --from-file is needed")
    position = None if target is None else _position(target)

    async def command() -> list[tuple[Any, ...]]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            committed = {key: value.offset for key, value in (await admin.groups.offsets(group_id)).items()}
            if from_file is not None:
                plan = _plan_from(from_file)
            else:
                wanted = await partitions_of(admin, topics) if topics else sorted(committed)
                plan = await _plan(admin, wanted, committed, position, shift_by)
            if to_file is not None:
                _write_plan(to_file, plan)
            if execute:
                await admin.groups.alter_offsets(group_id, plan)
        return [(*key, committed.get(key), plan[key]) for key in sorted(plan)]

    rows = run(command, bootstrap)
    if not rows:
        raise Failure(f"{group_id} has committed nothing: name topics with --topic")
    show_rows(PLAN_COLUMNS, rows, output)
    click.echo(f"moved {group_id}" if execute else "nothing was changed: use --execute", err=True)


@groups.command()
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP...")
@bootstrap_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def delete(group_ids: tuple[str, ...], bootstrap: str, yes: bool) -> None:
    """Delete groups without members, and what they have committed."""
    if not yes:
        if not sys.stdin.isatty():
            raise Failure("will not delete without asking, and there is nobody to ask: use --yes")
        if not click.confirm(f"Delete {', '.join(group_ids)} and all committed offsets?", err=True):
            raise Failure("nothing was deleted")

    async def command() -> None:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            await admin.groups.delete(group_ids)

    run(command, bootstrap)
    click.echo(f"deleted {', '.join(group_ids)}", err=True)


async def _lags(admin: Admin, group_id: str) -> tuple[str, str, list[tuple[Any, ...]]]:
    """The group, its state, and a row of LAG_COLUMNS for each partition that it has committed or reads."""
    group = (await admin.groups.describe([group_id]))[group_id]
    committed = await admin.groups.offsets(group_id)
    readers = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted(committed.keys() | readers.keys())
    bounds = await _bounds(admin, partitions)
    rows: list[tuple[Any, ...]] = []
    for partition in partitions:
        member = readers.get(partition)
        offset = committed[partition].offset if partition in committed else None
        end = bounds[partition].end if partition in bounds else None
        lag = None if offset is None or end is None else max(0, end - offset)
        who = (None, None, None) if member is None else (member.member_id, member.client_id, member.client_host)
        rows.append((*partition, offset, end, lag, *who))
    return group_id, group.state, rows


async def _bounds(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
    """What those of the partitions hold that still exist."""
    from oncelog.cli.reset_plan import Bounds
    from oncelog_protocol.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

    topics = set(await admin.list_topics(include_internal=True))
    wanted = [partition for partition in partitions if partition.topic in topics]
    first = await admin.list_offsets(dict.fromkeys(wanted, EARLIEST_TIMESTAMP))
    last = await admin.list_offsets(dict.fromkeys(wanted, LATEST_TIMESTAMP))
    return {partition: Bounds(first[partition].offset, last[partition].offset) for partition in wanted}


async def _plan(
    admin: Admin,
    wanted: list[TopicPartition],
    committed: dict[TopicPartition, int],
    position: Position | None,
    shift_by: int | None,
) -> dict[TopicPartition, int]:
    """The new offset of each partition."""
    from oncelog.cli.offsets import AtTime, resolve
    from oncelog.cli.reset_plan import shifted

    bounds = await _bounds(admin, wanted)
    if position is None:
        return shifted({key: committed[key] for key in wanted if key in committed}, shift_by or 0, bounds)
    found: dict[TopicPartition, int | None] = {}
    if isinstance(position, AtTime):
        answers = await admin.list_offsets(dict.fromkeys(bounds, position.timestamp_ms))
        found = {key: answer.offset if answer.offset >= 0 else None for key, answer in answers.items()}
    return {
        key: resolve(position, beginning=held.beginning, end=held.end, found=found.get(key))
        for key, held in bounds.items()
    }


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
