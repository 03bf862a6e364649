"""`oncelog shares`: lists share groups, describes them with their lag, resets and deletes them (KIP-932)."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.options import bootstrap_option, output_option
from oncelog.cli.output import Column, chosen_format, confirmed, show_document, show_plain, show_rows, show_table, tell
from oncelog.cli.running import Failure, run
from oncelog.cli.targets import TARGET, Target, partitions_of

if TYPE_CHECKING:
    from oncelog.admin.shares import DescribedShareGroup, ShareOffset
    from oncelog.cli.offsets import Position
    from oncelog.cluster import TopicPartition

LIST_COLUMNS: Final = tuple(map(Column.headed, ("Group", "State")))
OFFSET_COLUMNS: Final = ("Topic", "Partition", "Start offset", "Lag")
MEMBER_COLUMNS: Final = ("Member", "Client", "Host", "Partitions")
PLAN_COLUMNS: Final = tuple(map(Column.headed, ("Topic", "Partition", "Start offset", "New offset")))


@click.group()
def shares() -> None:
    """List, describe, reset and delete share groups, whose members share the records of a partition."""


@shares.command(name="list")
@bootstrap_option
@output_option
def list_(bootstrap: str, output: str | None) -> None:
    """List the share groups. Plain output has a line for each group: group and state."""

    async def command() -> list[tuple[str, ...]]:
        from oncelog.admin import Admin
        from oncelog.admin.groups import SHARE

        async with Admin(bootstrap, **connection_settings()) as admin:
            listed = await admin.groups.list()
            return [(group.group_id, group.state) for group in listed if group.group_type == SHARE]

    show_rows(LIST_COLUMNS, run(command, bootstrap), output)


@shares.command()
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP...")
@bootstrap_option
@output_option
def describe(group_ids: tuple[str, ...], bootstrap: str, output: str | None) -> None:
    """Show the progress and the members of share groups.

    All records below the start offset are accepted, rejected or archived. The lag counts the records that were never
    delivered, and the records that a member is processing or has released. Plain output has a line for each
    partition: group, state, topic, partition, start offset, lag.
    """

    async def command() -> list[tuple[DescribedShareGroup, dict[TopicPartition, ShareOffset]]]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            described = await admin.shares.describe(group_ids)
            return [(group, await admin.shares.offsets(name)) for name, group in described.items()]

    described = run(command, bootstrap)
    match chosen_format(output):
        case "json":
            show_document([_as_json(group, offsets) for group, offsets in described])
        case "plain":
            rows = [
                (group.group_id, group.state, *row) for group, offsets in described for row in _offset_rows(offsets)
            ]
            show_plain(rows, ("Group", "State", *OFFSET_COLUMNS))
        case _:
            for group, offsets in described:
                title = f"{group.group_id}: {group.state}"
                below = f"epoch {group.epoch}, coordinator broker {group.coordinator_id}"
                show_table(OFFSET_COLUMNS, _offset_rows(offsets), title, below)
                if group.members:
                    show_table(MEMBER_COLUMNS, [_member_row(member) for member in group.members], "Members")


def _offset_rows(offsets: dict[TopicPartition, ShareOffset]) -> list[tuple[Any, ...]]:
    return [(*where, offsets[where].start_offset, offsets[where].lag) for where in sorted(offsets)]


def _member_row(member: Any) -> tuple[str, ...]:
    names = ", ".join(f"{topic}:{partition}" for topic, partition in member.assignment)
    return member.member_id, member.client_id, member.client_host, names


def _as_json(group: DescribedShareGroup, offsets: dict[TopicPartition, ShareOffset]) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.state,
        "epoch": group.epoch,
        "coordinator": group.coordinator_id,
        "partitions": [
            {"topic": topic, "partition": partition, "start_offset": start, "lag": lag}
            for topic, partition, start, lag in _offset_rows(offsets)
        ],
        "members": [
            {
                "member": member.member_id,
                "client": member.client_id,
                "host": member.client_host,
                "partitions": [f"{topic}:{partition}" for topic, partition in member.assignment],
            }
            for member in group.members
        ],
    }


@shares.command()
@click.argument("group_id", metavar="GROUP")
@bootstrap_option
@output_option
@click.option("--topic", "topics", type=TARGET, multiple=True, help="Default: all that the group has begun.")
@click.option(
    "--to", "target", required=True, metavar="POSITION", help="earliest, latest, an offset, @MS, a date, an age."
)
@click.option("--execute", is_flag=True, help="Do it. Without this, only the plan is shown.")
def reset(
    group_id: str, bootstrap: str, output: str | None, topics: tuple[Target, ...], target: str, execute: bool
) -> None:
    """Set new start offsets for partitions of GROUP, which must have no members.

    Records after the new offset are delivered again, even if they were accepted. Positions are written as in `oncelog
    consume --from`. Plain output: topic, partition, start offset, new offset.
    """
    position = _position(target)

    async def command() -> list[tuple[Any, ...]]:
        from oncelog.admin import Admin
        from oncelog.cli.group_positions import planned

        async with Admin(bootstrap, **connection_settings()) as admin:
            known = {} if topics else await admin.shares.offsets(group_id)
            wanted = await partitions_of(admin, topics) if topics else sorted(known)
            plan = await planned(admin, wanted, {}, position, None)
            if execute:
                await admin.shares.alter_offsets(group_id, plan)
        starts = {where: offset.start_offset for where, offset in known.items()}
        return [(*where, starts.get(where), plan[where]) for where in sorted(plan)]

    rows = run(command, bootstrap)
    if not rows:
        raise Failure(f"{group_id} has begun nothing: name topics with --topic")
    show_rows(PLAN_COLUMNS, rows, output)
    tell(f"moved {group_id}" if execute else "nothing was changed: use --execute")


def _position(target: str) -> Position:
    from oncelog.cli.offsets import parse_position

    try:
        return parse_position(target, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--to") from error


@shares.command("delete-offsets")
@click.argument("group_id", metavar="GROUP")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@bootstrap_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def delete_offsets(group_id: str, topics: tuple[str, ...], bootstrap: str, yes: bool) -> None:
    """Delete the progress of GROUP, which must have no members, in topics."""
    _ask(f"Forget how far {group_id} is in {', '.join(topics)}?", yes=yes)

    async def command() -> None:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            await admin.shares.delete_offsets(group_id, topics)

    run(command, bootstrap)
    tell(f"forgot {', '.join(topics)} of {group_id}")


@shares.command()
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP...")
@bootstrap_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def delete(group_ids: tuple[str, ...], bootstrap: str, yes: bool) -> None:
    """Delete share groups without members, and all their progress."""
    _ask(f"Delete {', '.join(group_ids)} and how far they are?", yes=yes)

    async def command() -> None:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            # This call only serves to raise an error if the group has another protocol.
            await admin.shares.describe(group_ids)
            await admin.groups.delete(group_ids)

    run(command, bootstrap)
    tell(f"deleted {', '.join(group_ids)}")


def _ask(question: str, *, yes: bool) -> None:
    """Ask the user; raises Failure unless the user agrees."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure("will not delete without asking, and there is nobody to ask: use --yes")
    if not confirmed(question):
        raise Failure("nothing was deleted")
