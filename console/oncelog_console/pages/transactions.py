"""/transactions: open transactions as bars over time; the groups that each one holds back, and how to end it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from oncelog.admin.hanging import ONGOING
from oncelog.cli.transaction_words import headline, pinned_facts
from oncelog_console.drawing.bars import Bar, Span, timeline
from oncelog_console.limits import MAX_HOLDS
from oncelog_console.lookups.transactions import Hold, OpenTransactionView, TransactionsView, look
from oncelog_console.pages.page_request import admin_of, console_of, page
from oncelog_console.rendering import render
from oncelog_console.urls import url

TOLD_ABOVE: Final = frozenset({"Producer", "Client", "Coordinator"})
"""Labels of the facts about a transaction that are the same in all its partitions, and are shown once."""


@dataclass(frozen=True, slots=True)
class HoldView:
    """A partition whose read_committed readers a transaction holds back, with the text of `oncelog explain`. `abort`:
    the URL that aborts the
    transaction in this partition.
    """

    hold: Hold
    headline: str | None
    facts: tuple[tuple[str, str], ...]
    abort: str | None


@dataclass(frozen=True, slots=True)
class OpenView:
    """A transaction on the page, with some of its partitions: first the partitions in which the transaction hangs or
    blocks readers. `fence`: the URL that fences its producer, which ends the transaction.
    """

    look: OpenTransactionView
    bar: Bar
    anchor: str
    holds: tuple[HoldView, ...]
    fence: str | None


@page
async def transactions(request: Request) -> Response:
    console = console_of(request)

    async def load() -> TransactionsView:
        return await look(await admin_of(request), console.history.at)

    found: TransactionsView = await console.shared.get("transactions", load)
    spans = [Span(each.since_ms, each.ends_by_ms, each.hangs is not None) for each in found.transactions]
    drawn = timeline(spans, found.at_ms)
    views = [_view(each, bar, found.at_ms) for each, bar in zip(found.transactions, drawn.bars, strict=True)]
    return render(
        request,
        "transactions.html",
        views=views,
        timeline=drawn,
        now=found.at_ms,
        missing=found.missing,
        hanging=sum(each.hangs is not None for each in found.transactions),
        held_back=sum(each.held_back for each in found.transactions),
        sampled=console.history.samples > 0,
    )


def _view(each: OpenTransactionView, bar: Bar, now: int) -> OpenView:
    may_be_fenced = each.held is not None and each.held.state == ONGOING
    fence = url("/transaction/fence", id=each.transactional_id) if may_be_fenced else None
    first = sorted(each.holds, key=lambda hold: (hold.hang is None, not hold.pins))[:MAX_HOLDS]
    holds = tuple(_hold_view(hold, now) for hold in first)
    return OpenView(each, bar, f"t{each.producer_id}-{each.producer_epoch}", holds, fence)


def _hold_view(hold: Hold, now: int) -> HoldView:
    title: str | None = None
    facts: tuple[tuple[str, str], ...] = ()
    explained = hold.explained
    if hold.pins and explained is not None and explained.pinned_by is not None:
        title = headline(explained, explained.pinned_by)
        told = pinned_facts(explained, explained.pinned_by, now)
        facts = tuple((label, what) for label, what in told if label not in TOLD_ABOVE)
    abort = None
    mine = hold.open_here
    if mine is not None and hold.hang is not None and mine.may_be_aborted_here:
        topic, index = hold.partition
        abort = url("/transaction/abort", topic=topic, partition=index, offset=mine.start_offset)
    return HoldView(hold, title, facts, abort)
