"""/queries and /query: streaming queries of Spark, their throughput, lag, batch time and open transactions."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from oncelog.clock import now_ms
from oncelog_console.drawing.lag_chart import lag_chart, spark
from oncelog_console.limits import MAX_ROWS
from oncelog_console.pages.page_request import console_of, page, text_of
from oncelog_console.rendering import Refused, render


@page
async def queries(request: Request) -> Response:
    histories = console_of(request).queries
    now = now_ms()
    found = sorted(histories.queries.values(), key=lambda each: (each.state != "running", each.name, each.query_id))
    rows = [(each, spark([(point.at_ms, point.lag) for point in each.points], now)) for each in found[:MAX_ROWS]]
    return render(request, "queries.html", rows=rows, histories=histories)


@page
async def query(request: Request) -> Response:
    query_id = text_of(request.query_params.get("id"), "id")
    history = console_of(request).queries.queries.get(query_id)
    if history is None:
        raise Refused("this query is not known: no driver has reported it since the console was started", 404)
    now = now_ms()
    charts = [
        (title, unit, lag_chart([(point.at_ms, value) for point, value in points], now) if len(points) > 1 else None)
        for title, unit, points in (
            ("Throughput", "rows/s", [(point, point.rows_per_second) for point in history.points]),
            ("Lag", "offsets", [(point, point.lag) for point in history.points]),
            ("Batch time", "ms", [(point, point.batch_ms) for point in history.points]),
        )
    ]
    return render(request, "query.html", query=history, charts=charts)
