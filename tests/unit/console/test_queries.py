"""The pages of Spark queries are built from metrics in the format that drivers export."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from oncelog_console.application import application
from oncelog_console.clusters import Cluster
from oncelog_console.lookups import query_history
from oncelog_console.lookups.query_history import QueryHistories
from oncelog_console.site import site_of
from oncelog_pipeline.metrics.http_server import MetricsHttpServer
from oncelog_pipeline.metrics.query_metrics import QueryMetrics

HOME = "http://127.0.0.1:8080"
NOBODY = "127.0.0.1:1"


def progress(batch: int, *, behind: int, name: str = "orders", query_id: str = "q1") -> dict[str, Any]:
    return {
        "id": query_id,
        "name": name,
        "timestamp": "2026-11-22T10:00:00.500Z",
        "batchId": batch,
        "batchDuration": 1234,
        "numInputRows": 3000,
        "processedRowsPerSecond": 4321.0,
        "durationMs": {"addBatch": 1200},
        "stateOperators": [{"numRowsTotal": 7, "numRowsDroppedByWatermark": 2, "memoryUsedBytes": 100}],
        "sources": [{"endOffset": {"t": {"0": 10}}, "latestOffset": {"t": {"0": 10 + behind}}}],
    }


@pytest.fixture
def metrics() -> QueryMetrics:
    return QueryMetrics(lambda _query_id: 3)


@pytest.fixture
def driver(metrics: QueryMetrics) -> Iterator[str]:
    """Serve the metrics; yield their URL."""
    server = MetricsHttpServer("127.0.0.1", 0, metrics)
    server.start()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.close()


class Browser:
    def __init__(self, client: httpx.AsyncClient, histories: QueryHistories) -> None:
        self.client = client
        self.histories = histories

    async def page(self, path: str, status: int = 200) -> str:
        answer = await self.client.get(path)
        assert answer.status_code == status, answer.text
        return answer.text

    async def words(self, path: str, status: int = 200) -> str:
        return " ".join(re.sub(r"<[^>]*>", " ", await self.page(path, status)).split())


@pytest_asyncio.fixture
async def browser(driver: str) -> AsyncIterator[Browser]:
    app = application(site_of([Cluster("test", NOBODY, queries_at=(driver,))]))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=HOME) as client:
        yield Browser(client, app.state.site.places[0].queries)


async def test_a_query_is_shown_with_its_numbers(browser: Browser, metrics: QueryMetrics) -> None:
    metrics.progressed(progress(6, behind=40))
    await browser.histories.sample()
    metrics.progressed(progress(7, behind=25))
    await browser.histories.sample()
    words = await browser.words("/queries")
    assert "orders running 7 4 321 1 234 4 3 25" in words
    page = await browser.page("/query?id=q1")
    assert [int(most) for most in re.findall(r"over time, (\d+) ", page)] == [4321, 40, 1234]
    assert len(re.findall("<polyline", page)) == 3, "throughput, lag and batch time are drawn"
    assert "oncelog-spark-q1/" in page


async def test_a_query_that_failed_says_so(browser: Browser, metrics: QueryMetrics) -> None:
    metrics.progressed(progress(7, behind=0))
    metrics.ended("q1", has_failed=True)
    await browser.histories.sample()
    assert "orders failed" in await browser.words("/queries")


async def test_a_driver_that_is_gone_is_named_and_its_queries_stay(metrics: QueryMetrics) -> None:
    metrics.progressed(progress(7, behind=0))
    server = MetricsHttpServer("127.0.0.1", 0, metrics)
    server.start()
    address = f"http://127.0.0.1:{server.server_port}/metrics"
    histories = QueryHistories([address])
    await histories.sample()
    assert not histories.problems
    server.close()
    await histories.sample()
    assert "refused" in histories.problems[address]
    assert histories.queries["q1"].number("batch") == 7
    assert len(histories.queries["q1"].points) == 1, "nothing is noted of what was not told"


async def test_an_address_that_serves_something_else_is_named(driver: str) -> None:
    histories = QueryHistories([driver.replace("/metrics", "/elsewhere")])
    await histories.sample()
    (problem,) = histories.problems.values()
    assert "404" in problem


async def test_metrics_beyond_the_limit_are_not_read(
    driver: str, metrics: QueryMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics.progressed(progress(7, behind=0))
    monkeypatch.setattr(query_history, "MAX_METRICS_BYTES", 100)
    histories = QueryHistories([driver])
    await histories.sample()
    assert "more than 100 bytes" in histories.problems[driver]
    assert not histories.queries


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
async def test_a_metric_that_is_no_number_is_not_told(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """The sampling continues, and the invalid value is omitted."""
    labels = '{query="orders",query_id="q1"}'
    text = f"oncelog_query_lag_offsets{labels} {value}\noncelog_query_batch{labels} 7\n"
    monkeypatch.setattr(query_history, "_ask", lambda _address: query_history.read_metrics(text))
    histories = QueryHistories(["http://of.a.driver/metrics"])
    await histories.sample()
    history = histories.queries["q1"]
    assert (history.number("batch"), history.number("lag_offsets"), history.points[-1].lag) == (7, None, None)


async def test_more_queries_than_are_watched_are_counted(
    driver: str, metrics: QueryMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_history, "MAX_SAMPLED_QUERIES", 2)
    for number in range(5):
        metrics.progressed(progress(0, behind=0, query_id=f"q{number}"))
    histories = QueryHistories([driver])
    await histories.sample()
    assert histories.left_out == 3
    assert len(histories.queries) == 2


async def test_names_of_queries_are_text(browser: Browser, metrics: QueryMetrics) -> None:
    metrics.progressed(progress(0, behind=0, name="<script>alert('x')</script>"))
    await browser.histories.sample()
    assert "<script>alert" not in await browser.page("/queries") + await browser.page("/query?id=q1")


async def test_an_unknown_query_is_not_found(browser: Browser) -> None:
    assert "this query is not known" in await browser.words("/query?id=other", 404)


async def test_without_addresses_the_page_says_how_to_begin() -> None:
    app = application(site_of([Cluster("test", NOBODY)]))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=HOME) as client:
        assert "--queries" in await Browser(client, app.state.site.places[0].queries).words("/queries")
