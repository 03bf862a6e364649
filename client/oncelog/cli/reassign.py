"""`oncelog reassign`: moves partitions to other brokers (KIP-455)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeVar

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.move_progress import POLL_SECONDS, until_arrived
from oncelog.cli.options import bootstrap_option, output_option, parsed
from oncelog.cli.output import Column, count, show_json, show_rows, tell
from oncelog.cli.reassignment_plan import Assignment, from_json, spread, to_json, topics_from_json
from oncelog.cli.reassignment_throttle import clear_throttle, set_throttle, take_throttle_back
from oncelog.cli.running import Failure, run

if TYPE_CHECKING:
    from oncelog.admin import Admin, Reassignment
    from oncelog.cluster import TopicPartition

T = TypeVar("T")

HEARSAY_SECONDS: Final = 3.0
"""Maximum seconds of repeated queries for partitions that seem to be neither at their target nor moving; the queries
are repeated because a broker's response may be outdated.
"""
COLUMNS: Final = tuple(map(Column.headed, ("Topic", "Partition", "State", "Replicas", "Target", "In sync")))
DONE, MOVING, OTHER = "done", "moving", "elsewhere"
"""States of a partition in a plan: at its target (DONE), moving to its target (MOVING), or neither of the two (OTHER).
"""


def broker_ids(text: str) -> tuple[int, ...]:
    """Parse broker ids in the form `1,2,3`. Raises ValueError."""
    try:
        return tuple(dict.fromkeys(int(node) for node in text.split(",")))
    except ValueError as error:
        raise ValueError(f"{text!r} lists no broker ids: ID,ID,... is needed") from error


plan_argument: Final = click.argument("plan_file", metavar="PLAN", type=click.File("r"))
throttle_option: Final = click.option(
    "--preserve-throttle", is_flag=True, help="Keep the throttle, even if all are done."
)


@click.group()
def reassign() -> None:
    """Move partitions to other brokers, and show their progress.

    PLAN is a file in the format of kafka-reassign-partitions, or - for standard input: {"version": 1, "partitions":
    [{"topic": "orders", "partition": 0, "replicas": [3, 1]}]}. `oncelog reassign generate` prints a plan.
    """


@reassign.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@bootstrap_option
@click.option("--all", "everything", is_flag=True, help="All topics, internal ones included.")
@click.option(
    "--topics-file", type=click.File("r"), help='{"topics": [{"topic": "orders"}]}, in addition to the TOPICs.'
)
@click.option("--to", "nodes", type=parsed("ID,...", broker_ids), help="The brokers to use. Default: all live brokers.")
@click.option("--replication-factor", type=click.IntRange(min=1), help="Default: the present number.")
@click.option("--disable-rack-aware", is_flag=True, help="Do not look at racks.")
@click.option("--current", type=click.Path(dir_okay=False), help="Write the way back, as a plan, into this file.")
def generate(
    topics: tuple[str, ...],
    bootstrap: str,
    everything: bool,
    topics_file: IO[str] | None,
    nodes: tuple[int, ...] | None,
    replication_factor: int | None,
    disable_rack_aware: bool,
    current: str | None,
) -> None:
    """Print a plan that spreads the TOPICs evenly over brokers in different racks and moves few replicas."""
    names = [*topics, *(_parsed(topics_from_json, topics_file) if topics_file else ())]
    if bool(names) is everything:
        raise click.UsageError("which topics? Name them, use --topics-file, or --all")

    async def command() -> tuple[Assignment, dict[int, str | None]]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            brokers = (await admin.describe_cluster()).brokers
            racks = {broker.node_id: None if disable_rack_aware else broker.rack for broker in brokers}
            chosen = await admin.list_topics(include_internal=True) if everything else names
            return await _assignment_of(admin, chosen), racks

    present, racks = run(command, bootstrap)
    if missing := set(nodes or ()) - racks.keys():
        raise Failure(f"these brokers are not alive: {', '.join(map(str, sorted(missing)))}")
    chosen = {node: racks[node] for node in (nodes or sorted(racks))}
    try:
        plan = spread(present, chosen, replication_factor or 0)
    except ValueError as error:
        raise Failure(str(error)) from error
    if current is not None:
        Path(current).write_text(to_json(present) + "\n")
    show_json(to_json(plan))
    moved = sum(plan[partition] != present[partition] for partition in plan)
    tell(f"{count(moved, 'partition')} of {len(plan)} would change")


@reassign.command()
@plan_argument
@bootstrap_option
@click.option("--throttle", type=click.IntRange(min=1), metavar="BYTES", help="Bytes a second of each broker.")
@click.option("--current", type=click.Path(dir_okay=False), help="Write the way back, as a plan, into this file.")
@click.option("--no-wait", is_flag=True, help="Return when it has begun; `verify` says how far it is.")
@click.option("--disallow-replication-factor-change", is_flag=True, help="Refuse other numbers of replicas.")
def execute(
    plan_file: IO[str],
    bootstrap: str,
    throttle: int | None,
    current: str | None,
    no_wait: bool,
    disallow_replication_factor_change: bool,
) -> None:
    """Move partitions as the PLAN says, and wait until the moves are done.

    If the command is interrupted, check the progress with `verify`, or cancel the moves with `cancel`. The throttle is
    removed at the end. The exit code is 1 if another client has cancelled some reassignments, or moved partitions
    elsewhere.
    """
    plan = _parsed(from_json, plan_file)

    async def command() -> list[tuple[object, ...]]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            present = await _assignment_of(admin, {partition.topic for partition in plan})
            if unknown := plan.keys() - present.keys():
                raise Failure(f"unknown partition {', '.join(map(str, sorted(unknown)))}")
            if current is not None:
                Path(current).write_text(to_json({partition: present[partition] for partition in plan}) + "\n")
            if throttle is not None:
                await set_throttle(admin, {p: (present[p], plan[p]) for p in plan}, throttle)
            await admin.alter_partition_reassignments(
                plan, allow_replication_factor_change=not disallow_replication_factor_change
            )
            tell(f"{count(len(plan), 'partition')} on the way")
            if no_wait:
                return []
            await until_arrived(admin, plan)
            if throttle is not None:
                await clear_throttle(admin, _topics(plan))
            return await _settled_rows(admin, plan)

    rows = run(command, bootstrap)
    _check_arrived(rows)
    if not no_wait:
        tell("done")


@reassign.command(name="list")
@bootstrap_option
@output_option
def list_(bootstrap: str, output: str | None) -> None:
    """List the partitions that are being moved. Plain output has the columns of `verify`."""

    async def command() -> list[tuple[object, ...]]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            moving = await admin.list_partition_reassignments()
            return await _rows(admin, {partition: each.target for partition, each in moving.items()}, moving)

    show_rows(COLUMNS, run(command, bootstrap), output)


@reassign.command()
@plan_argument
@bootstrap_option
@output_option
@throttle_option
def verify(plan_file: IO[str], bootstrap: str, output: str | None, preserve_throttle: bool) -> None:
    """Show the progress of the partitions in the PLAN, and remove the throttle when all moves are done.

    The exit code is 1 if some moves are not done. Plain output has a line for each partition: topic, partition, state
    (done, moving, elsewhere), replicas, target, replicas in sync.
    """
    plan = _parsed(from_json, plan_file)

    async def command() -> list[tuple[object, ...]]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            rows = await _settled_rows(admin, plan)
            if not preserve_throttle and all(row[2] != MOVING for row in rows):
                await take_throttle_back(admin, _topics(plan))
            return rows

    rows = run(command, bootstrap)
    show_rows(COLUMNS, rows, output)
    _check_arrived(rows)


@reassign.command()
@click.argument("plan_file", metavar="[PLAN]", type=click.File("r"), required=False)
@bootstrap_option
@click.option("--all", "everything", is_flag=True, help="All ongoing reassignments, instead of a PLAN.")
@throttle_option
def cancel(plan_file: IO[str] | None, bootstrap: str, everything: bool, preserve_throttle: bool) -> None:
    """Cancel the ongoing reassignments of the partitions in the PLAN, which then stay on their previous brokers."""
    if (plan_file is None) is not everything:
        raise click.UsageError("either a PLAN or --all")
    plan = None if plan_file is None else _parsed(from_json, plan_file)

    async def command() -> int:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            moving = await admin.list_partition_reassignments(plan)
            if moving:
                await admin.alter_partition_reassignments(dict.fromkeys(moving))
            if not preserve_throttle:
                await take_throttle_back(admin, _topics(moving if plan is None else plan))
            return len(moving)

    tell(f"{count(run(command, bootstrap), 'reassignment')} cancelled")


def _parsed(parse: Callable[[str], T], file: IO[str]) -> T:
    """Return the result of `parse` for the text of the file. Raises UsageError."""
    try:
        return parse(file.read())
    except ValueError as error:
        raise click.UsageError(f"{file.name}: {error}") from error


def _topics(partitions: Iterable[TopicPartition]) -> set[str]:
    return {partition.topic for partition in partitions}


async def _assignment_of(admin: Admin, topics: Iterable[str]) -> Assignment:
    """Return the replicas of the partitions of these topics; for a partition with an ongoing reassignment, the replicas
    before that reassignment.
    """
    from oncelog.cluster import TopicPartition

    described = await admin.describe_topics(topics)
    moving = await admin.list_partition_reassignments()
    return {
        (each := TopicPartition(name, index)): tuple(
            node for node in partition.replicas if each not in moving or node not in moving[each].adding
        )
        for name, topic in described.items()
        for index, partition in topic.partitions.items()
    }


async def _rows(
    admin: Admin, targets: Mapping[TopicPartition, Sequence[int]], moving: Mapping[TopicPartition, Reassignment]
) -> list[tuple[object, ...]]:
    """Return a row with the values of COLUMNS for each partition, formatted for a table."""
    described = await admin.describe_topics(_topics(targets)) if targets else {}
    rows: list[tuple[object, ...]] = []
    for each, target in sorted(targets.items()):
        known = described[each.topic].partitions.get(each.partition)
        replicas = moving[each].replicas if each in moving else () if known is None else known.replicas
        state = MOVING if each in moving else DONE if tuple(replicas) == tuple(target) else OTHER
        rows.append((each.topic, each.partition, state, replicas, tuple(target), () if known is None else known.isr))
    return rows


async def _settled_rows(admin: Admin, plan: Mapping[TopicPartition, Sequence[int]]) -> list[tuple[object, ...]]:
    """Return a row with the values of COLUMNS for each partition. Repeats the query for HEARSAY_SECONDS, because
    brokers may learn of the end of a
    reassignment later than the controller.
    """
    looks = int(HEARSAY_SECONDS / POLL_SECONDS)
    while True:
        rows = await _rows(admin, plan, await admin.list_partition_reassignments(plan))
        looks -= 1
        if looks <= 0 or all(row[2] != OTHER for row in rows):
            return rows
        await asyncio.sleep(POLL_SECONDS)


def _check_arrived(rows: Sequence[tuple[object, ...]]) -> None:
    """Raise Failure if some partitions have not arrived."""
    if open_ := sum(row[2] != DONE for row in rows):
        raise Failure(f"{count(open_, 'partition')} of {len(rows)} not where the plan wants them")
