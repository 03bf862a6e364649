"""`oncelog explain`: the transaction that holds back the readers of a partition, and how to end it. `pinned_text` and
the functions below the command are pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from oncelog.cli import held_offsets
from oncelog.cli.command_config import connection_settings
from oncelog.cli.held_offsets import HeldOffsets
from oncelog.cli.options import bootstrap_option, output_option
from oncelog.cli.output import chosen_format, say, show_document, show_plain, tell
from oncelog.cli.running import run
from oncelog.cli.targets import TARGET, Target, partitions_of
from oncelog.cli.transaction_words import fact_lines, headline, pinned_facts, remedy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncelog.admin.hanging import Explanation, OpenTransaction

NOTHING_HELD: Final = HeldOffsets()
PLAIN_FIELDS: Final = (
    "start_offset",
    "transactional_id",
    "producer_id",
    "producer_epoch",
    "client_id",
    "client_host",
    "start_time_ms",
    "first_timestamp_ms",
    "ends_by_ms",
    "hangs",
)
PLAIN_COLUMNS: Final = (
    "Topic",
    "Partition",
    "Last stable offset",
    "High watermark",
    *(name.replace("_", " ").capitalize() for name in PLAIN_FIELDS),
    "Groups",
    "Held by",
    "Ends by ms",
)


@click.command()
@click.argument("targets", type=TARGET, nargs=-1, required=True, metavar="TOPIC[:PARTITION]...")
@bootstrap_option
@output_option
def explain(targets: tuple[Target, ...], bootstrap: str, output: str | None) -> None:
    """Show which transaction holds back the read_committed readers of partitions, and how to end it.

    read_committed readers see nothing from the first record of an open transaction on (the last stable offset), even if
    later records are committed. Groups whose members wait for pending offsets of an open transaction are shown as
    well.

    Plain output has a line for each partition: topic, partition, last stable offset, high watermark, and fields of the
    transaction that holds back readers ("-" if there is none). The fields are its first offset, transactional id,
    producer id, epoch, client id, client host, begin, timestamp of its first record, latest end without intervention
    (times in ms), and the reason why it hangs. The last columns are the groups with pending offsets of the partition,
    the
    transactional ids of their transactions, and the latest ends of these transactions (ms).
    """

    async def command() -> tuple[list[Explanation], HeldOffsets]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            partitions = await partitions_of(admin, targets)
            explained = await admin.transactions.explain(partitions)
            found = await held_offsets.find(admin)
        of_these = tuple(each for each in found.pending if each.partition in explained)
        return [explained[partition] for partition in partitions], replace(found, pending=of_these)

    explained, held = run(command, bootstrap)
    match chosen_format(output):
        case "json":
            show_document([as_json(each, held) for each in explained])
        case "plain":
            show_plain([_plain_row(each, held) for each in explained], PLAIN_COLUMNS)
        case _:
            from oncelog.clock import now_ms

            now = now_ms()
            for line in (*text(explained, now), *held_offsets.text(held, now)):
                say(line)
    if held.why_not is not None:
        tell(f"oncelog: whether open transactions hold offsets of groups is not known: {held.why_not}")


def text(explained: Sequence[Explanation], now_ms: int) -> Iterator[str]:
    """Yield the lines of text: details of blocked partitions, then a line for each topic that is not blocked."""
    free: dict[str, list[Explanation]] = {}
    for each in explained:
        if each.pinned_by is not None:
            yield from pinned_text(each, each.pinned_by, now_ms)
            yield ""
        elif each.is_held_back:
            yield (
                f"{each.partition}: read_committed readers see the records below offset {each.last_stable_offset} of "
                f"{each.high_watermark}. No transaction is in the way: one has just ended, or its marker is not in all "
                "replicas yet."
            )
        else:
            free.setdefault(each.partition.topic, []).append(each)
    for topic, those in free.items():
        if len(those) == 1:
            yield f"{those[0].partition}: no record is held back up to the end, offset {those[0].high_watermark}."
        else:
            yield f"{topic}: no record is held back in {len(those)} of its partitions."


def pinned_text(explained: Explanation, pinned_by: OpenTransaction, now_ms: int) -> Iterator[str]:
    """Yield the lines about one blocked partition: a headline, and a line for each fact about the transaction that
    blocks it.
    """
    yield headline(explained, pinned_by)
    yield from fact_lines(pinned_facts(explained, pinned_by, now_ms))


def as_json(explained: Explanation, held: HeldOffsets = NOTHING_HELD) -> dict[str, Any]:
    """Return the result as one document for JSON and YAML."""
    pinned_by = explained.pinned_by
    return {
        "topic": explained.partition.topic,
        "partition": explained.partition.partition,
        "last_stable_offset": explained.last_stable_offset,
        "high_watermark": explained.high_watermark,
        "held_back": explained.held_back,
        "pinned_by": None
        if pinned_by is None
        else {
            **_open_json(pinned_by),
            "first_timestamp_ms": explained.first_timestamp_ms,
            "ends_by_ms": explained.ends_by_ms,
            "hangs": None if explained.hang is None else explained.hang.value,
            "to_end_it": remedy(explained, pinned_by),
        },
        "later": [_open_json(each) for each in explained.later],
        "held_offsets": None
        if held.why_not is not None
        else [held_offsets.as_json(each) for each in held.of_partition(explained.partition)],
    }


def _open_json(transaction: OpenTransaction) -> dict[str, Any]:
    held = transaction.held
    return {
        "start_offset": transaction.start_offset,
        "producer_id": transaction.producer.producer_id,
        "producer_epoch": transaction.producer.producer_epoch,
        "transactional_id": None if held is None else held.transactional_id,
        "state": None if held is None else held.state,
        "start_time_ms": None if held is None else held.start_time_ms,
        "timeout_ms": None if held is None else held.timeout_ms,
        "coordinator": None if held is None else held.coordinator_id,
        "client_id": None if held is None else held.client_id,
        "client_host": None if held is None else held.client_host,
    }


def _plain_row(explained: Explanation, held: HeldOffsets) -> list[object]:
    shown = as_json(explained)
    holding = held.of_partition(explained.partition)
    pinned_by = shown["pinned_by"] or {}
    row = [shown["topic"], shown["partition"], shown["last_stable_offset"], shown["high_watermark"]]
    row += [pinned_by.get(field) for field in PLAIN_FIELDS]
    return [
        *row,
        [each.group_id for each in holding] or None,
        [each.transactional_id or "-" for each in holding] or None,
        [each.explained.ends_by_ms or "-" for each in holding] or None,
    ]
