"""/partition: the picture of a log, the transaction that blocks the partition, and the producers."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from oncelog.cli.transaction_words import headline, pinned_facts
from oncelog.clock import now_ms
from oncelog_console.drawing.log_picture import Drawn, log_picture
from oncelog_console.limits import MAX_ROWS, PICTURE_OFFSETS
from oncelog_console.lookups import producers as look_at
from oncelog_console.lookups.batch_outcomes import JudgedBatch, Outcome
from oncelog_console.pages.page_request import admin_of, console_of, known_partition, number_of, page, partition_of
from oncelog_console.rendering import moment, render
from oncelog_console.visible_text import plural

KINDS = {Outcome.COMMIT: "commit", Outcome.ABORT: "abort", Outcome.CONTROL: "control"}


@page
async def partition(request: Request) -> Response:
    given = request.query_params
    where = partition_of(given)
    at = number_of(given["at"], "at") if given.get("at") else None

    async def load() -> look_at.PartitionPage:
        admin = await admin_of(request)
        return await look_at.look(admin, where, await known_partition(admin, where), at)

    look: look_at.PartitionPage = await console_of(request).shared.get(("partition", where, at), load)
    picture = log_picture(
        [drawn(each) for each in look.batches], look.start, look.shown_to, look.last_stable, look.high_watermark
    )
    explained, title = look.explained, None
    facts: tuple[tuple[str, str], ...] = ()
    if explained is not None and explained.pinned_by is not None:
        facts = tuple(pinned_facts(explained, explained.pinned_by, now_ms()))
        title = headline(explained, explained.pinned_by)
    return render(
        request,
        "partition.html",
        look=look,
        at=at,
        picture=picture,
        facts=facts,
        headline=title,
        producers=look.producers[:MAX_ROWS],
        left_out=max(0, len(look.producers) - MAX_ROWS),
        earlier=max(look.log_start, look.start - PICTURE_OFFSETS) if look.start > look.log_start else None,
        later=look.shown_to if at is not None and look.shown_to < look.high_watermark else None,
    )


def drawn(judged: JudgedBatch) -> Drawn:
    batch, fate = judged.batch, judged.fate
    what = fate.value if fate.is_control else plural(batch.records_count, "record")
    offsets = f"offset {batch.base_offset}"
    if batch.last_offset > batch.base_offset:
        offsets = f"offsets {batch.base_offset} to {batch.last_offset}"
    lines = [f"{what} at {offsets}", f"{batch.size} bytes, {moment(batch.max_timestamp) or 'no time'}"]
    if batch.has_producer_id:
        lines.append(f"producer {batch.producer_id}, epoch {batch.producer_epoch}, sequence {batch.base_sequence}")
    if not fate.is_control:
        lines.append(fate.value)
    return Drawn(
        batch.base_offset,
        batch.last_offset,
        batch.producer_id,
        KINDS.get(fate, "data"),
        fate.name.lower(),
        "\n".join(lines),
    )
