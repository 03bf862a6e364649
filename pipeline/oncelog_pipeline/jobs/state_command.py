"""Implements the command `oncelog pipeline state`: it shows the sink's last decision (which batch was committed) for
each query, and resets the decision if the sink refuses to start the query.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from oncelog.cli.options import KEY_VALUE, bootstrap_option, client_settings, output_option, parsed
from oncelog.cli.output import Column, count, say, show_rows, tell
from oncelog.cli.running import Failure, run
from oncelog_pipeline.jobs.checkpoint import sources_in
from oncelog_pipeline.sink.names import STATE_TOPIC, Query

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from oncelog import TopicPartition
    from oncelog_pipeline.sink.cluster import KafkaCluster
    from oncelog_pipeline.sink.state import State
    from oncelog_pipeline.source.offsets import Offsets
    from oncelog_pipeline.source.plans import Move

T = TypeVar("T")

COLUMNS: Final = tuple(map(Column.headed, ("Query", "Batch", "Rows", "Transactions", "Lost partitions", "Run")))
ONE_COLUMNS: Final = tuple(map(Column.headed, ("Partition", "Rows", "Transactional id", "Topic", "First offset")))
PLAN_COLUMNS: Final = tuple(map(Column.headed, ("Stream", "Topic", "Partition", "Start", "End")))
TASK_TIMEOUT_MS: Final = 60_000
"""A transaction timeout in milliseconds. It has no effect, because these commands write no rows, but the class
KafkaCluster requires a value.
"""

query_argument: Final = click.argument("query", type=parsed("QUERY", Query), metavar="QUERY")
topic_option: Final = click.option(
    "--state-topic", default=STATE_TOPIC, show_default=True, metavar="TOPIC", help="The sink's option stateTopic."
)
settings_option: Final = click.option(
    "-D", "settings", type=KEY_VALUE, multiple=True, metavar="KEY=VALUE", help="A setting of the client. Repeatable."
)


@click.group()
def state() -> None:
    """Show and reset the decisions of the exactly-once sink for each query.

    A query is named by the id in the metadata of its checkpoint, or by its writeId. The state of a query names its last
    decided batch: the batch whose transactions the driver has decided to commit. If a checkpoint is older than that
    batch, or has other rows for it, the sink refuses to start the query; its error message names the command `reset`.
    """


@state.command(name="list")
@bootstrap_option
@topic_option
@settings_option
@output_option
def list_(bootstrap: str, state_topic: str, settings: tuple[tuple[str, str], ...], output: str | None) -> None:
    """List all queries that have a state.

    Plain output: query, last decided batch, its rows, its transactions, its lost partitions, run. A dash for the rows
    means that an older release, which stored no number of rows, has decided the batch.
    """
    states = _with_cluster(bootstrap, state_topic, settings, lambda cluster: cluster.states_by_name())
    show_rows(COLUMNS, [_row(query, found.state) for query, found in sorted(states.items())], output)


@state.command()
@query_argument
@bootstrap_option
@topic_option
@settings_option
@output_option
def show(
    query: Query, bootstrap: str, state_topic: str, settings: tuple[tuple[str, str], ...], output: str | None
) -> None:
    """Show the transactions that the last decision of QUERY commits.

    Plain output, one line for each transaction: partition of the batch, rows, transactional id, topic and offset of the
    first record.
    """
    found = _with_cluster(bootstrap, state_topic, settings, lambda cluster: _state_of(cluster, query))
    rows = []
    for each in found.transactions:
        transaction, first = each.written
        digest = None if each.digest is None else each.digest.rows
        rows.append((each.partition, digest, transaction.transactional_id, first.topic, first.offset))
    show_rows(ONE_COLUMNS, rows, output)


@state.command()
@click.argument("checkpoint", type=click.Path(exists=True, file_okay=False, path_type=Path))
@bootstrap_option
@settings_option
@output_option
def plan(checkpoint: Path, bootstrap: str, settings: tuple[tuple[str, str], ...], output: str | None) -> None:
    """Show which offsets the newest planned batch reads, for each source of CHECKPOINT, a local directory.

    Brokers keep the plan of a batch, so the plan may be newer than a checkpoint that was restored from a backup.
    Standard error suggests the startingOffsets for a new checkpoint: the offsets just after that batch if its commit
    was decided (`show` says so), otherwise the offsets just before it.

    Plain output, one line for each partition: stream, topic, partition, first offset, offset after the last.
    """
    from oncelog_pipeline.source.offsets import offsets_to

    sources = sources_in(_last_offsets(checkpoint))
    if not sources:
        raise Failure(
            f"{checkpoint} does not tell the stream of a source: oncelog groups list names the groups of all streams,"
            " which oncelog groups describe shows"
        )
    rows: list[tuple[object, ...]] = []
    for stream, positions, moves in run(lambda: _plans(bootstrap, settings, sources), bootstrap):
        rows += [(stream, *partition, move.start, move.end) for partition, move in sorted(moves.items())]
        before = {partition: move.start for partition, move in moves.items()}
        after = {partition: move.end for partition, move in moves.items()}
        tell(f"startingOffsets after it: {json.dumps(offsets_to(positions | after))}")
        tell(f"startingOffsets before it: {json.dumps(offsets_to(positions | before))}")
    show_rows(PLAN_COLUMNS, rows, output)


def _last_offsets(checkpoint: Path) -> str:
    """Return the text of the newest file of offsets; empty if none exists."""
    files = [each for each in (checkpoint / "offsets").glob("*") if each.name.isdecimal()]
    return max(files, key=lambda each: int(each.name)).read_text() if files else ""


async def _plans(
    bootstrap: str, settings: tuple[tuple[str, str], ...], sources: Sequence[Mapping[str, Any]]
) -> list[tuple[str, Offsets, Mapping[TopicPartition, Move]]]:
    """Return for each source its stream, its position in all partitions, and the offsets of its newest plan. Raises
    KafkaError."""
    from oncelog import Admin
    from oncelog_pipeline.source.offsets import offsets_from, stream_from
    from oncelog_pipeline.source.plans import GROUP_PREFIX, plans_from

    found = []
    async with Admin(bootstrap, **client_settings(settings)) as admin:
        for source in sources:
            stream = str(stream_from(source))
            committed = await admin.groups.offsets(GROUP_PREFIX + stream)
            plans = plans_from({partition: each.metadata for partition, each in committed.items()}).plans
            positions = offsets_from(source) | {partition: each.offset for partition, each in committed.items()}
            found.append((stream, positions, plans[-1].moves if plans else {}))
    return found


@state.command()
@query_argument
@bootstrap_option
@topic_option
@settings_option
@click.option(
    "--batch", "number", type=click.IntRange(min=-1), required=True, help="The batch that becomes the last decided one."
)
@click.option("--execute", is_flag=True, help="Make the change. Without it, only show what would change.")
def reset(
    query: Query,
    bootstrap: str,
    state_topic: str,
    settings: tuple[tuple[str, str], ...],
    number: int,
    execute: bool,
) -> None:
    """Set batch N as the last batch whose commit QUERY has decided. Stop the query before you run this command.

    If Spark replays batch N, the sink then skips it, whichever rows the replay has; later batches are written. If N is
    the number of the decided batch, the rows that were decided remain, and additional rows of the replay are skipped.
    If N is one less than the decided batch, the sink writes the entire replay, which duplicates the decided rows.
    Decided transactions that are still open are committed first.
    """
    from oncelog_pipeline.sink import exactly_once
    from oncelog_pipeline.sink.operations import TakenOver
    from oncelog_pipeline.sink.state import Batch

    async def command(cluster: KafkaCluster) -> State | None:
        seen = await cluster.read_state(query)
        if execute:
            try:
                await exactly_once.reset(cluster, seen, Batch(query, str(uuid.uuid4()), number))
            except TakenOver as error:
                raise Failure(str(error)) from error
        return seen

    seen = _with_cluster(bootstrap, state_topic, settings, command)
    verb = "counts" if execute else "would count"
    before = "none" if seen is None else str(seen.batch)
    tell(f"{query.name}: batch {number} {verb} as the last decided one, in place of {before}")
    if not execute:
        tell("nothing was changed: add --execute")


@state.command()
@bootstrap_option
@topic_option
@settings_option
def finish(bootstrap: str, state_topic: str, settings: tuple[tuple[str, str], ...]) -> None:
    """Commit decided transactions that are still open because their driver died before it had committed all
    transactions of the batch.

    A query that is started again commits such transactions itself, unless they have timed out. Use this command for a
    query that stays stopped for longer than transaction.timeout.ms, and for batch writes without a writeId (the next
    such write commits the transactions, too). The command is safe at any time, also while a query runs.
    """
    from oncelog_pipeline.sink.orphans import finish_open

    finished = _with_cluster(bootstrap, state_topic, settings, finish_open)
    for query, lost in sorted(finished.items()):
        told = f", partitions {sorted(lost)} are lost: their transactions have timed out" if lost else ""
        say(f"{query}: committed{told}")
    tell(f"{count(len(finished), 'decision')} finished")


def _row(query: str, found: State) -> tuple[object, ...]:
    rows = None if found.digest is None else found.digest.rows
    lost = ",".join(map(str, found.lost))
    return query, found.batch, rows, len(found.transactions), lost, found.run


async def _state_of(cluster: KafkaCluster, query: Query) -> State:
    """Return the state of a query. Raises Failure if the query has no state."""
    found = await cluster.read_state(query)
    if found is None:
        raise Failure(f"no state of query {query.name} found: oncelog pipeline state list lists all queries")
    return found


def _with_cluster(
    bootstrap: str,
    state_topic: str,
    settings: tuple[tuple[str, str], ...],
    work: Callable[[KafkaCluster], Awaitable[T]],
) -> T:
    """Run `work` with a connected cluster. Raises Failure, UsageError."""
    from oncelog_pipeline.sink.cluster import KafkaCluster
    from oncelog_pipeline.sink.operations import StateLost
    from oncelog_pipeline.sink.state import UnreadableState

    async def command() -> T:
        keywords: Mapping[str, Any] = client_settings(settings)
        async with KafkaCluster(
            bootstrap, task_timeout_ms=TASK_TIMEOUT_MS, state_topic=state_topic, settings=keywords
        ) as cluster:
            return await work(cluster)

    try:
        return run(command, bootstrap)
    except (UnreadableState, StateLost) as error:
        raise Failure(str(error)) from error
