"""Descriptions of an open transaction: its owner, start and end, and how to end it. Pure.

`oncelog explain`, `oncelog groups describe` and the console use the same texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.cli.offsets import format_timestamp
from oncelog.cli.output import count
from oncelog.escaping import shell_quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oncelog.admin.hanging import Explanation, OpenTransaction

LABEL_WIDTH: Final = 12
UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))


def fact_lines(facts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a line of text for each fact, given as a pair (label, text)."""
    return (f"  {label:{LABEL_WIDTH}} {what}" for label, what in facts)


def headline(explained: Explanation, pinned_by: OpenTransaction) -> str:
    return (
        f"{explained.partition}: read_committed readers see nothing from offset {explained.last_stable_offset} on, "
        f"for the transaction of {name_of(pinned_by)}."
    )


def pinned_facts(explained: Explanation, pinned_by: OpenTransaction, now_ms: int) -> Iterator[tuple[str, str]]:
    """Yield the facts about the transaction that blocks readers, as (label, text)."""
    yield "Held back", f"{count(explained.held_back, 'offset')}, up to the end at {explained.high_watermark}"
    yield from transaction_facts(explained, pinned_by, now_ms)
    if explained.later:
        more = count(len(explained.later), "other transaction")
        yield "After it", f"{more} open here, from offset {explained.later[0].start_offset} on"


def transaction_facts(explained: Explanation, pinned_by: OpenTransaction, now_ms: int) -> Iterator[tuple[str, str]]:
    """Yield the facts about a transaction: (label, text)."""
    yield "Open since", _since(explained, pinned_by, now_ms)
    yield "Producer", f"id {pinned_by.producer.producer_id}, epoch {pinned_by.producer.producer_epoch}"
    held = pinned_by.held
    if held is not None:
        client = f"{held.client_id} at {(held.client_host or '').lstrip('/')}" if held.client_id is not None else None
        yield "Client", client or "not known to its coordinator"
        timeout = f"timeout {span(held.timeout_ms)}" if held.has_timeout else "no timeout (two-phase commit)"
        yield "Coordinator", f"broker {held.coordinator_id}: {held.state}, {timeout}"
    if explained.hang is None:
        yield "Ends", _end(explained, pinned_by, now_ms)
    else:
        yield "Hangs", _why(explained, pinned_by)
    yield "To end it", remedy(explained, pinned_by)


def remedy(explained: Explanation, pinned_by: OpenTransaction) -> str:
    """Return the actions that the user can take now."""
    from oncelog.admin.hanging import PREPARED, Hang

    topic, index = explained.partition
    abort = f"oncelog txns abort {shell_quoted(f'{topic}:{index}')} --start-offset {pinned_by.start_offset}"
    if pinned_by.may_be_aborted_here:
        return abort
    assert pinned_by.held is not None
    if explained.hang is Hang.FENCED:
        return f"its records here cannot be committed; to let consumers read later ones, abort it: {abort} --force"
    if pinned_by.held.state in PREPARED:
        return "nothing is to be done, unless it takes long: then see the log of its coordinator"
    force = f"oncelog txns fence {shell_quoted(pinned_by.held.transactional_id)}"
    if explained.hang is Hang.OVERDUE:
        return force
    if not pinned_by.held.has_timeout:
        commit = f"oncelog txns commit {shell_quoted(pinned_by.held.transactional_id)}"
        how = f"only if the application no longer exists: {commit}, or {force}"
        return f"start its application, which ends it as decided; {how}"
    return f"commit or abort it in its producer; or take that its transactional id, and abort: {force}"


def name_of(transaction: OpenTransaction) -> str:
    if transaction.held is None:
        return f"producer id {transaction.producer.producer_id}, whose transactional id is unknown"
    return f"transactional id {transaction.held.transactional_id!r}"


def _since(explained: Explanation, pinned_by: OpenTransaction, now_ms: int) -> str:
    """Return the time at which the transaction began according to its coordinator's clock, and the timestamp of its
    first record.
    """
    started_ms = pinned_by.held.start_time_ms if pinned_by.held is not None and pinned_by.is_held else None
    first_ms = explained.first_timestamp_ms
    first = None if first_ms is None or first_ms < 0 else f"its first record here is of {format_timestamp(first_ms)}"
    if started_ms is None:
        return first or "not known"
    began = f"{format_timestamp(started_ms)}, {span(now_ms - started_ms)} ago"
    return began if first is None else f"{began}; {first}"


def _end(explained: Explanation, pinned_by: OpenTransaction, now_ms: int) -> str:
    from oncelog.admin.hanging import ONGOING

    assert pinned_by.held is not None
    if pinned_by.held.state == ONGOING and not pinned_by.held.has_timeout:
        return "when its owner commits or aborts it, however long that takes: it has no timeout"
    if explained.ends_by_ms is None:
        what = {"PrepareCommit": "commit", "PrepareAbort": "abort"}.get(pinned_by.held.state, "end")
        return f"at once: its coordinator is about to {what} it, and writes the markers"
    left_ms = explained.ends_by_ms - now_ms
    when = f"in {span(left_ms)}" if left_ms >= 0 else f"{span(-left_ms)} ago, it is overdue"
    return (
        f"by itself at {format_timestamp(explained.ends_by_ms)} at the latest, {when}: then its coordinator aborts it "
        f"(timeouts are looked for every {span(explained.limits.abort_interval_ms)})"
    )


def _why(explained: Explanation, pinned_by: OpenTransaction) -> str:
    from oncelog.admin.hanging import Hang

    held = pinned_by.held
    if explained.hang is Hang.UNKNOWN or held is None:
        return "no coordinator knows its producer id, so no coordinator will end it"
    if explained.hang is Hang.NOT_HELD:
        return (
            f"for its coordinator {held.transactional_id!r} is {held.state} and writes nothing to this partition, so "
            "no coordinator will end it"
        )
    if explained.hang is Hang.FENCED:
        return (
            f"its coordinator, of epoch {pinned_by.coordinator_epoch}, has decided ({held.state}) and cannot write the "
            f"marker: this log has a marker of coordinator epoch {pinned_by.producer.coordinator_epoch}, sent by a"
            " client that is not a coordinator"
        )
    limit = span(explained.limits.max_timeout_ms)
    return f"it is open for longer than any timeout allows (transaction.max.timeout.ms: {limit})"


def span(milliseconds: int) -> str:
    """Format a duration with its two largest units: `3m 12s`."""
    parts: list[str] = []
    left = max(0, milliseconds)
    for name, size in UNITS:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size}{name}")
            left %= size
        elif parts:
            break
    return " ".join(parts) or "0s"
