"""/topics and /topic: names, sizes, partitions, settings."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from oncelog_console.limits import MAX_ROWS
from oncelog_console.lookups import topics as look_at
from oncelog_console.lookups.missing import Missing
from oncelog_console.pages.page_request import admin_of, console_of, page, text_of
from oncelog_console.rendering import render


@page
async def topics(request: Request) -> Response:
    async def load() -> tuple[list[look_at.TopicRow], Missing]:
        return await look_at.rows(await admin_of(request))

    rows, missing = await console_of(request).shared.get("topics", load)
    search = request.query_params.get("q", "")
    internal = "internal" in request.query_params
    found = [row for row in rows if search.lower() in row.name.lower() and (internal or not row.is_internal)]
    return render(
        request,
        "topics.html",
        rows=found[:MAX_ROWS],
        left_out=max(0, len(found) - MAX_ROWS),
        hidden=sum(row.is_internal for row in rows),
        count=len(rows),
        search=search,
        internal=internal,
        missing=missing,
    )


@page
async def topic(request: Request) -> Response:
    name = text_of(request.query_params.get("name"), "name")

    async def load() -> look_at.TopicView:
        return await look_at.look(await admin_of(request), name)

    look: look_at.TopicView = await console_of(request).shared.get(("topic", name), load)
    return render(
        request,
        "topic.html",
        look=look,
        topic=look.topic,
        partitions=look.partitions[:MAX_ROWS],
        left_out=max(0, len(look.partitions) - MAX_ROWS),
        every="all" in request.query_params,
    )
