"""`oncelog explain`: which transaction holds back the readers of a partition, since when, and what can be done.

`pinned_text` and the rest below the command are pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.offsets import format_timestamp
from oncelog.cli.options import bootstrap_option, output_option
from oncelog.cli.output import chosen_format, count, say, show_document, show_plain
from oncelog.cli.running import run
from oncelog.cli.targets import TARGET, Target, partitions_of
from oncelog.escaping import shell_quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncelog.admin.hanging import Explanation, OpenTransaction

LABEL_WIDTH: Final = 12
UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
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


@click.command()
@click.argument("targets", type=TARGET, nargs=-1, required=True, metavar="TOPIC[:PARTITION]...")
@bootstrap_option
@output_option
def explain(targets: tuple[Target, ...], bootstrap: str, output: str | None) -> None:
    """Say which transaction holds back the read_committed readers of partitions, and what can be done.

    They see nothing from the first record of an open transaction on, the last stable offset, whether later records are
    committed or not.

    Plain output has a line for each partition: topic, partition, last stable offset, high watermark, and of the
    transaction in the way, with "-" if there is none: its first offset, transactional id, producer id, epoch, client
    id, client host, when it began and the timestamp of its first record, when it ends by itself at the latest (all in
    ms), and why it hangs.
    """

    async def command() -> list[Explanation]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            partitions = await partitions_of(admin, targets)
            explained = await admin.transactions.explain(partitions)
        return [explained[partition] for partition in partitions]

    explained = run(command, bootstrap)
    match chosen_format(output):
        case "json":
            show_document([as_json(each) for each in explained])
        case "plain":
            show_plain([_plain_row(each) for each in explained])
        case _:
            from oncelog.clock import now_ms

            for line in text(explained, now_ms()):
                say(line)


def text(explained: Sequence[Explanation], now_ms: int) -> Iterator[str]:
    """Lines for people: what is held back at length, then in a line for each topic what is not."""
    free: dict[str, list[Explanation]] = {}
    for each in explained:
        if each.pinned_by is not None:
            yield from pinned_text(each, each.pinned_by, now_ms)
            yield ""
        elif each.is_held_back:
            yield (
                f"{each.partition}: read_committed readers see what is below offset {each.last_stable_offset} of "
                f"{each.high_watermark}. No transaction is in the way: one has just ended, or its marker is not in all "
                "replicas yet."
            )
        else:
            free.setdefault(each.partition.topic, []).append(each)
    for topic, those in free.items():
        if len(those) == 1:
            yield f"{those[0].partition}: nothing is held back up to the end, offset {those[0].high_watermark}."
        else:
            yield f"{topic}: nothing is held back in {len(those)} of its partitions."


def pinned_text(explained: Explanation, pinned_by: OpenTransaction, now_ms: int) -> Iterator[str]:
    """A headline, and a line for each thing to know."""
    yield headline(explained, pinned_by)
    for label, what in pinned_facts(explained, pinned_by, now_ms):
        yield f"  {label:{LABEL_WIDTH}} {what}"


def headline(explained: Explanation, pinned_by: OpenTransaction) -> str:
    return (
        f"{explained.partition}: read_committed readers see nothing from offset {explained.last_stable_offset} on, "
        f"for the transaction of {_name(pinned_by)}."
    )


def pinned_facts(explained: Explanation, pinned_by: OpenTransaction, now_ms: int) -> Iterator[tuple[str, str]]:
    """What to know of the transaction in the way: (label, what)."""
    yield "Held back", f"{count(explained.held_back, 'offset')}, up to the end at {explained.high_watermark}"
    yield "Open since", _since(explained, pinned_by, now_ms)
    yield "Producer", f"id {pinned_by.producer.producer_id}, epoch {pinned_by.producer.producer_epoch}"
    held = pinned_by.held
    if held is not None:
        client = f"{held.client_id} at {(held.client_host or '').lstrip('/')}" if held.client_id is not None else None
        yield "Client", client or "not known to its coordinator"
        yield "Coordinator", f"broker {held.coordinator_id}: {held.state}, timeout {_span(held.timeout_ms)}"
    if explained.hang is None:
        yield "Ends", _end(explained, pinned_by, now_ms)
    else:
        yield "Hangs", _why(explained, pinned_by)
    yield "To end it", remedy(explained, pinned_by)
    if explained.later:
        more = count(len(explained.later), "other transaction")
        yield "After it", f"{more} open here, from offset {explained.later[0].start_offset} on"


def remedy(explained: Explanation, pinned_by: OpenTransaction) -> str:
    """What a user can do now."""
    from oncelog.admin.hanging import PREPARED, Hang

    topic, index = explained.partition
    abort = f"oncelog txns abort {shell_quoted(f'{topic}:{index}')} --start-offset {pinned_by.start_offset}"
    if pinned_by.may_be_aborted_here:
        return abort
    assert pinned_by.held is not None
    if explained.hang is Hang.FENCED:
        return f"its records here cannot be committed; to have later ones read, give them up: {abort} --force"
    if pinned_by.held.state in PREPARED:
        return "nothing is to be done, unless it takes long: then see the log of its coordinator"
    force = f"oncelog txns fence {shell_quoted(pinned_by.held.transactional_id)}"
    if explained.hang is Hang.OVERDUE:
        return force
    return f"commit or abort it in its producer; or take that its transactional id, and abort: {force}"


def as_json(explained: Explanation) -> dict[str, Any]:
    """All that is known, for programs."""
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


def _plain_row(explained: Explanation) -> list[object]:
    shown = as_json(explained)
    pinned_by = shown["pinned_by"] or {}
    row = [shown["topic"], shown["partition"], shown["last_stable_offset"], shown["high_watermark"]]
    return row + [pinned_by.get(field) for field in PLAIN_FIELDS]


def _name(transaction: OpenTransaction) -> str:
    if transaction.held is None:
        return f"producer id {transaction.producer.producer_id}, whose transactional id nobody knows"
    return f"transactional id {transaction.held.transactional_id!r}"


def _since(explained: Explanation, pinned_by: OpenTransaction, now_ms: int) -> str:
    """When it began, by its coordinator's clock or, without one, by the timestamp of its first record."""
    started_ms = pinned_by.held.start_time_ms if pinned_by.held is not None and pinned_by.is_held else None
    first_ms = explained.first_timestamp_ms
    first = None if first_ms is None or first_ms < 0 else f"its first record here is of {format_timestamp(first_ms)}"
    if started_ms is None:
        return first or "not known"
    began = f"{format_timestamp(started_ms)}, {_span(now_ms - started_ms)} ago"
    return began if first is None else f"{began}; {first}"


def _end(explained: Explanation, pinned_by: OpenTransaction, now_ms: int) -> str:
    assert pinned_by.held is not None
    if explained.ends_by_ms is None:
        what = {"PrepareCommit": "commit", "PrepareAbort": "abort"}.get(pinned_by.held.state, "end")
        return f"at once: its coordinator is about to {what} it, and writes the markers"
    left_ms = explained.ends_by_ms - now_ms
    when = f"in {_span(left_ms)}" if left_ms >= 0 else f"{_span(-left_ms)} ago, it is overdue"
    return (
        f"by itself at {format_timestamp(explained.ends_by_ms)} at the latest, {when}: then its coordinator aborts it "
        f"(timeouts are looked for every {_span(explained.limits.abort_interval_ms)})"
    )


def _why(explained: Explanation, pinned_by: OpenTransaction) -> str:
    from oncelog.admin.hanging import Hang

    held = pinned_by.held
    if explained.hang is Hang.UNKNOWN or held is None:
        return "no coordinator knows its producer id, so nobody is going to end it"
    if explained.hang is Hang.NOT_HELD:
        return (
            f"for its coordinator {held.transactional_id!r} is {held.state} and writes nothing to this partition, so "
            "nobody is going to end it"
        )
    if explained.hang is Hang.FENCED:
        return (
            f"its coordinator, of epoch {pinned_by.coordinator_epoch}, has decided ({held.state}) and cannot write the "
            f"marker: this log was told of a coordinator of epoch {pinned_by.producer.coordinator_epoch}, by whoever "
            "sent a marker with that epoch"
        )
    limit = _span(explained.limits.max_timeout_ms)
    return f"it is open for longer than any timeout allows (transaction.max.timeout.ms: {limit})"


def _span(milliseconds: int) -> str:
    """`3m 12s`: the two largest units."""
    parts: list[str] = []
    left = max(0, milliseconds)
    for name, size in UNITS:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size}{name}")
            left %= size
        elif parts:
            break
    return " ".join(parts) or "0s"
