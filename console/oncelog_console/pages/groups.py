"""/groups and /group: members, positions, and the lag over time."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from oncelog.clock import now_ms
from oncelog_console.drawing.lag_chart import lag_chart, spark
from oncelog_console.limits import MAX_ROWS
from oncelog_console.lookups import groups as look_at
from oncelog_console.lookups.share_groups import ShareGroupView
from oncelog_console.pages.page_request import admin_of, console_of, page, text_of
from oncelog_console.rendering import render


@page
async def groups(request: Request) -> Response:
    history = console_of(request).history
    if not history.samples:
        await admin_of(request)  # this call raises a clear error if the cluster cannot be reached
    search = request.query_params.get("q", "")
    found = [each for each in history.groups.values() if search.lower() in each.group_id.lower()]
    found.sort(key=lambda each: (-(each.lag or 0), each.group_id))
    now = now_ms()
    rows = [(each, spark(each.points, now)) for each in found[:MAX_ROWS]]
    return render(request, "groups.html", rows=rows, history=history, search=search)


@page
async def group(request: Request) -> Response:
    group_id = text_of(request.query_params.get("id"), "id")
    console = console_of(request)

    async def load() -> look_at.GroupView | ShareGroupView:
        return await look_at.look_at_any(await admin_of(request), group_id)

    look: look_at.GroupView | ShareGroupView = await console.shared.get(("group", group_id), load)
    known = console.history.groups.get(group_id)
    points = () if known is None else known.points
    return render(
        request,
        "share-group.html" if isinstance(look, ShareGroupView) else "group.html",
        look=look,
        group=look.group,
        rows=look.rows[:MAX_ROWS],
        members=look.group.members[:MAX_ROWS],
        left_out=max(0, len(look.rows) - MAX_ROWS),
        chart=lag_chart(points, now_ms()) if len(points) > 1 else None,
        topics=sorted({row.partition.topic for row in look.rows}),
    )
