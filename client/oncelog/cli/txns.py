"""`oncelog txns`: lists and describes transactions, finds hanging transactions, and ends transactions (KIP-664)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.offsets import format_timestamp
from oncelog.cli.options import bootstrap_option, output_option
from oncelog.cli.output import Column, chosen_format, confirmed, count, show_rows, show_table, tell
from oncelog.cli.running import Failure, run
from oncelog.cli.targets import PARTITION, TARGET, Target, check_brokers, partitions_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from oncelog.admin import Admin
    from oncelog.admin.hanging import DescribedTransaction, HangingTransaction, ProducerState
    from oncelog.cluster import TopicPartition

    Row = tuple[Any, ...]

MINUTE_MS: Final = 60_000


def _time(timestamp_ms: int | None) -> str | None:
    return None if timestamp_ms is None or timestamp_ms < 0 else format_timestamp(timestamp_ms)


LIST_COLUMNS: Final = tuple(
    map(Column.headed, ("Transactional id", "State", "Producer id", "Coordinator", "Duration ms", "Timeout ms"))
)
DESCRIBE_COLUMNS: Final = (
    *map(Column.headed, ("Transactional id", "State", "Producer id", "Producer epoch", "Timeout ms")),
    Column("start_time_ms", "Open since", _time),
    *map(Column.headed, ("Duration ms", "Coordinator", "Client id", "Client host", "Partitions")),
)
PRODUCER_COLUMNS: Final = (
    *map(Column.headed, ("Topic", "Partition", "Producer id", "Producer epoch", "Last sequence")),
    Column("last_timestamp_ms", "Last record", _time),
    *map(Column.headed, ("Coordinator epoch", "Transaction start offset")),
)
HANGING_COLUMNS: Final = (
    *map(Column.headed, ("Topic", "Partition", "Start offset", "Producer id")),
    Column("producer_epoch", "Epoch"),
    Column("coordinator_epoch", "Coordinator epoch"),
    Column("last_timestamp_ms", "Last record", _time),
    *map(Column.headed, ("Hangs", "Transactional id", "State", "Late")),
)


@click.group()
def txns() -> None:
    """List and describe transactions, find hanging transactions, and end transactions.

    `oncelog explain` shows the transaction that holds back the readers of a partition.
    """


@txns.command(name="list")
@bootstrap_option
@output_option
@click.option("--state", "states", multiple=True, help="Only in this state, such as Ongoing. May be repeated.")
@click.option("--producer-id", "producer_ids", type=int, multiple=True, help="Only of this producer. May be repeated.")
@click.option(
    "--duration-filter", "duration_ms", type=click.IntRange(min=0), metavar="MS", help="Only if open for longer."
)
@click.option(
    "--transactional-id-pattern",
    "pattern",
    metavar="REGEX",
    help="Only transactional ids that match the regular expression completely.",
)
def list_(
    bootstrap: str,
    output: str | None,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    duration_ms: int | None,
    pattern: str | None,
) -> None:
    """List the transactional ids of all coordinators.

    Open transactions (Ongoing) show the time since their start, and their timeout. The timeout "none" marks a
    two-phase-commit transaction, which only the application ends.

    Plain output has a line for each id: transactional id, state, producer id, coordinator, duration (ms), timeout (ms).
    Duration and timeout are "-" if no transaction is open, or if the client has no right to describe the id.
    """

    async def command() -> list[Row]:
        from oncelog.admin import Admin
        from oncelog.admin.hanging import ONGOING
        from oncelog.clock import now_ms

        async with Admin(bootstrap, **connection_settings()) as admin:
            listed = await admin.transactions.list(
                states=states, producer_ids=producer_ids, duration_ms=duration_ms, pattern=pattern
            )
            open_ids = [each.transactional_id for each in listed if each.state == ONGOING]
            described = await _described(admin, open_ids)
        now = now_ms()
        return [
            (
                each.transactional_id,
                each.state,
                each.producer_id,
                each.coordinator_id,
                *_age_and_timeout(described.get(each.transactional_id), now),
            )
            for each in listed
        ]

    show_rows(LIST_COLUMNS, run(command, bootstrap), output)


@txns.command()
@click.argument("transactional_ids", nargs=-1, required=True, metavar="TRANSACTIONAL_ID...")
@bootstrap_option
@output_option
def describe(transactional_ids: tuple[str, ...], bootstrap: str, output: str | None) -> None:
    """Show the coordinators' state of transactional ids: state, producer, client, partitions.

    Plain output: transactional id, state, producer id, producer epoch, timeout, start time, duration (all in ms),
    coordinator, client id, client host, partitions.
    """

    async def command() -> list[Row]:
        from oncelog.admin import Admin
        from oncelog.clock import now_ms

        async with Admin(bootstrap, **connection_settings()) as admin:
            described = await admin.transactions.describe(transactional_ids)
        return [_described_row(described[each], now_ms()) for each in dict.fromkeys(transactional_ids)]

    rows = run(command, bootstrap)
    if chosen_format(output) != "table":
        show_rows(DESCRIBE_COLUMNS, rows, output)
        return
    # a table has no column for the partitions, because their list is too long for a line
    for transactional_id, *values in rows:
        named = zip(DESCRIBE_COLUMNS[1:], values, strict=True)
        show_table(
            (DESCRIBE_COLUMNS[0].heading, transactional_id),
            [(column.heading, column.shown(value)) for column, value in named],
        )


@txns.command(name="describe-producers")
@click.argument("targets", type=TARGET, nargs=-1, required=True, metavar="TOPIC[:PARTITION]...")
@bootstrap_option
@output_option
@click.option("--broker-id", type=int, help="Ask the replica at this broker. Default: the leader.")
def describe_producers(targets: tuple[Target, ...], bootstrap: str, output: str | None, broker_id: int | None) -> None:
    """Show the producer ids whose state the logs of partitions store.

    Plain output: topic, partition, producer id, producer epoch, last sequence, last timestamp (ms), coordinator epoch,
    start offset of the open transaction or "-".
    """

    async def command() -> list[Row]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            await check_brokers(admin, () if broker_id is None else (broker_id,))
            known = await admin.transactions.producers(await partitions_of(admin, targets), broker_id=broker_id)
        return [_producer_row(partition, state) for partition in sorted(known) for state in known[partition]]

    show_rows(PRODUCER_COLUMNS, run(command, bootstrap), output)


@txns.command(name="find-hanging")
@click.argument("targets", type=TARGET, nargs=-1, metavar="[TOPIC[:PARTITION]]...")
@bootstrap_option
@output_option
@click.option("--broker-id", type=int, help="Only in partitions that this broker leads.")
@click.option(
    "--max-transaction-timeout",
    "min_age_minutes",
    type=click.IntRange(min=0),
    default=0,
    metavar="MINUTES",
    help="Only if the last record is older.",
)
def find_hanging(
    targets: tuple[Target, ...], bootstrap: str, output: str | None, broker_id: int | None, min_age_minutes: int
) -> None:
    """Find open transactions that no coordinator will end, in all partitions or in the named partitions.

    A hanging transaction is unknown (no coordinator knows the producer id), not held (its coordinator has ended the
    transaction, or does not know of this partition), overdue (open for longer than any timeout allows), or fenced (the
    log refuses the marker of its coordinator). `oncelog txns abort` ends transactions that are unknown or not held, and
    `oncelog txns fence` those that are overdue; `oncelog explain` shows the remedy for fenced transactions.

    Plain output: topic, partition, start offset, producer id, producer epoch, coordinator epoch, timestamp of the last
    record (ms), why the transaction hangs, transactional id, state of the id, whether the transaction is late. A
    transaction is late if it has been open for five minutes longer than transaction.max.timeout.ms, as in Kafka's
    metric PartitionsWithLateTransactions.
    """

    async def command() -> list[HangingTransaction]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            await check_brokers(admin, () if broker_id is None else (broker_id,))
            partitions = await partitions_of(admin, targets) if targets else None
            return await admin.transactions.find_hanging(
                partitions, broker_id=broker_id, min_age_ms=min_age_minutes * MINUTE_MS
            )

    found = run(command, bootstrap)
    show_rows(HANGING_COLUMNS, [_hanging_row(each) for each in found], output)
    places = {each.transaction.partition for each in found}
    late = {each.transaction.partition for each in found if each.is_late}
    where = f"in {count(len(places), 'partition')}, {len(late)} of them late"
    tell(f"{count(len(found), 'hanging transaction')}, {where}")


@txns.command()
@click.argument("partition", type=PARTITION, metavar="TOPIC:PARTITION")
@bootstrap_option
@click.option("--start-offset", type=click.IntRange(min=0), help="Where the transaction begins in this partition.")
@click.option(
    "--producer-id", type=click.IntRange(min=0), help="For Kafka before 3.0: the producer of the transaction, ..."
)
@click.option("--producer-epoch", type=click.IntRange(min=0, max=32767), help="... its epoch, ...")
@click.option(
    "--coordinator-epoch", type=int, help="... and the coordinator epoch of its last marker, -1 if there was none."
)
@click.option("--force", is_flag=True, help="Even if its coordinator is going to end it.")
def abort(
    partition: tuple[str, int],
    bootstrap: str,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
    force: bool,
) -> None:
    """Abort a hanging transaction in one partition.

    Name the transaction by its --start-offset, as `oncelog txns find-hanging` shows it. A transaction that does not
    hang is not aborted, because its coordinator may still commit it in other partitions.
    """
    by_producer = (producer_id, producer_epoch, coordinator_epoch)
    if (start_offset is None) == (by_producer == (None, None, None)):
        raise click.UsageError("either --start-offset is needed, or --producer-id with its epochs")
    if start_offset is None and None in by_producer:
        raise click.UsageError("--producer-id, --producer-epoch and --coordinator-epoch go together")

    async def command() -> str:
        from oncelog.admin import Admin
        from oncelog_protocol.producer_id import ProducerIdAndEpoch

        async with Admin(bootstrap, **connection_settings()) as admin:
            (where,) = await partitions_of(admin, [partition])
            if start_offset is not None:
                if not force:
                    await _check_hangs(admin, where, start_offset)
                state = await admin.transactions.abort(where, start_offset)
                whose = state.producer_id
            else:
                assert producer_id is not None
                assert producer_epoch is not None
                assert coordinator_epoch is not None
                producer = ProducerIdAndEpoch(producer_id, producer_epoch)
                await admin.transactions.abort_producer(where, producer, coordinator_epoch)
                whose = producer_id
            stable = (await admin.transactions.explain([where]))[where].last_stable_offset
        return f"aborted the transaction of producer id {whose} in {where}; its last stable offset is now {stable}"

    tell(run(command, bootstrap))


@txns.command()
@click.argument("transactional_ids", nargs=-1, required=True, metavar="TRANSACTIONAL_ID...")
@bootstrap_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask about transactions without a timeout.")
def fence(transactional_ids: tuple[str, ...], bootstrap: str, yes: bool) -> None:
    """Fence the producers of transactional ids, and abort their open transactions in all partitions.

    The fenced producers fail with a fatal error at their next request; new producers may start immediately. The command
    asks for confirmation if an open transaction has no timeout (two-phase commit), because its application may have
    decided to commit.
    """

    async def command() -> None:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            if not yes:
                await _ask_before_abort(admin, transactional_ids)
            await admin.transactions.fence(transactional_ids)

    run(command, bootstrap)
    tell(f"fenced {', '.join(transactional_ids)}")


@txns.command()
@click.argument("transactional_ids", nargs=-1, required=True, metavar="TRANSACTIONAL_ID...")
@bootstrap_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def commit(transactional_ids: tuple[str, ...], bootstrap: str, yes: bool) -> None:
    """Commit the open transactions of transactional ids on behalf of their producers, which are fenced.

    Use this command only if the application no longer runs and its database shows that it has decided to commit
    (two-phase commit). All records of the transaction on the brokers become visible, even if its producer had more
    records to
    write. The brokers need transaction.two.phase.commit.enable=true. To abort the transactions instead, use `oncelog
    txns fence`.
    """
    named = ", ".join(transactional_ids)
    _ask(f"Commit the open transactions of {named}, whatever their applications have decided?", yes)

    async def command() -> None:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            for transactional_id in transactional_ids:
                await admin.transactions.commit(transactional_id)

    run(command, bootstrap)
    tell(f"committed {named}")


async def _ask_before_abort(admin: Admin, transactional_ids: Iterable[str]) -> None:
    """Ask the user if a transaction without a timeout is open; raises Failure if the user does not want to abort the
    transaction.
    """
    from oncelog.admin.hanging import ONGOING

    described = await _described(admin, transactional_ids)
    prepared = [name for name, each in described.items() if each.state == ONGOING and not each.has_timeout]
    if prepared:
        named = ", ".join(sorted(prepared))
        _ask(f"Abort transactions that their applications may have decided to commit, of {named}?", yes=False)


def _ask(question: str, yes: bool) -> None:
    """Ask the user; raises Failure unless the user agrees."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure(f"{question} Standard input is not a terminal: use --yes")
    if not confirmed(question):
        raise Failure("nothing was changed")


async def _described(admin: Admin, transactional_ids: Iterable[str]) -> Mapping[str, DescribedTransaction]:
    """Return the transactions by id; ids that cannot be described, or that the client may not describe, are omitted."""
    from oncelog.errors import KafkaError, PartialFailure

    try:
        return await admin.transactions.describe(transactional_ids)
    except PartialFailure as failure:
        return dict(failure.results)
    except KafkaError:
        return {}


def _age_and_timeout(transaction: DescribedTransaction | None, now_ms: int) -> tuple[int | None, int | str | None]:
    if transaction is None or transaction.start_time_ms is None:
        return None, None
    return max(0, now_ms - transaction.start_time_ms), transaction.timeout_ms if transaction.has_timeout else "none"


async def _check_hangs(admin: Admin, partition: TopicPartition, start_offset: int) -> None:
    """Raise Failure if the transaction that begins at `start_offset` does not hang, because its coordinator will end
    it.
    """
    if not await admin.transactions.may_be_aborted(partition, start_offset):
        raise Failure(
            f"the transaction at offset {start_offset} of {partition} is still its coordinator's to end: "
            f"oncelog explain {partition.topic}:{partition.partition} says how. --force aborts it here alone"
        )


def _described_row(transaction: DescribedTransaction, now_ms: int) -> Row:
    start_ms = transaction.start_time_ms
    return (
        transaction.transactional_id,
        transaction.state,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        start_ms,
        None if start_ms is None else max(0, now_ms - start_ms),
        transaction.coordinator_id,
        transaction.client_id,
        transaction.client_host,
        _named(transaction.partitions),
    )


def _named(partitions: Iterable[TopicPartition]) -> list[str]:
    return [f"{topic}:{index}" for topic, index in sorted(partitions)]


def _producer_row(partition: TopicPartition, state: ProducerState) -> Row:
    return (
        *partition,
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        state.transaction_start_offset,
    )


def _hanging_row(found: HangingTransaction) -> Row:
    transaction = found.transaction
    state, held = transaction.producer, transaction.held
    return (
        *transaction.partition,
        transaction.start_offset,
        state.producer_id,
        state.producer_epoch,
        state.coordinator_epoch,
        state.last_timestamp,
        found.hang.value,
        None if held is None else held.transactional_id,
        None if held is None else held.state,
        found.is_late,
    )
