"""Metrics of queries are computed from progress reports of Spark."""

from __future__ import annotations

import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from oncelog_pipeline.metrics import query_metrics
from oncelog_pipeline.metrics.query_metrics import MAX_QUERIES, QueryMetrics

QUERY = {"query": "orders", "query_id": "q1"}


def progress(batch: int = 0, **changed: Any) -> dict[str, Any]:
    return {
        "id": "q1",
        "name": "orders",
        "timestamp": "2026-11-22T10:00:00.500Z",
        "batchId": batch,
        "batchDuration": 1500,
        "numInputRows": 3000,
        "processedRowsPerSecond": 2000.0,
        "durationMs": {"triggerExecution": 1500, "addBatch": 1200},
        "eventTime": {"watermark": "2026-11-22T09:59:00.000Z"},
        "stateOperators": [
            {"numRowsTotal": 7, "numRowsDroppedByWatermark": 2, "memoryUsedBytes": 100},
            {"numRowsTotal": 1, "numRowsDroppedByWatermark": 1, "memoryUsedBytes": 50},
        ],
        "sources": [{"endOffset": {"t": {"0": 10}}, "latestOffset": {"t": {"0": 14}}}],
    } | changed


def values(metrics: QueryMetrics) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(metrics)
    return registry


def test_batches_are_counted_and_the_last_one_is_shown() -> None:
    metrics = QueryMetrics()
    metrics.started("q1", "orders")
    metrics.progressed(progress(0))
    metrics.progressed(progress(1, numInputRows=500, batchDuration=90, processedRowsPerSecond=float("nan")))
    value = values(metrics).get_sample_value
    assert value("oncelog_query_batches_total", QUERY) == 2
    assert value("oncelog_query_rows_total", QUERY) == 3500
    assert value("oncelog_query_late_rows_total", QUERY) == 6
    assert value("oncelog_query_batch", QUERY) == 1
    assert value("oncelog_query_rows_per_second", QUERY) == 0, "no rate is not a rate"
    assert value("oncelog_query_last_batch_seconds", QUERY) == 0.09
    assert value("oncelog_query_lag_offsets", QUERY) == 4
    assert value("oncelog_query_state_rows", QUERY) == 8
    assert value("oncelog_query_state_memory_bytes", QUERY) == 150
    assert value("oncelog_query_watermark_timestamp_seconds", QUERY) == 1_795_341_540
    assert value("oncelog_query_last_batch_timestamp_seconds", QUERY) == 1_795_341_600.5
    assert value("oncelog_query_phase_seconds_total", QUERY | {"phase": "addBatch"}) == 2.4
    assert value("oncelog_query_batch_seconds_bucket", QUERY | {"le": "0.1"}) == 1
    assert value("oncelog_query_batch_seconds_bucket", QUERY | {"le": "2.5"}) == 2
    assert value("oncelog_query_batch_seconds_count", QUERY) == 2
    assert value("oncelog_query_batch_seconds_sum", QUERY) == 1.59


def test_a_trigger_without_a_batch_counts_no_batch() -> None:
    metrics = QueryMetrics()
    idle = progress(3, durationMs={"triggerExecution": 5, "latestOffset": 4}, stateOperators=[], eventTime={})
    metrics.progressed(idle)
    value = values(metrics).get_sample_value
    assert value("oncelog_query_batches_total", QUERY) == 0
    assert value("oncelog_query_batch", QUERY) is None
    assert value("oncelog_query_lag_offsets", QUERY) == 4
    assert value("oncelog_query_watermark_timestamp_seconds", QUERY) is None


def test_the_watermark_before_the_first_event_is_none() -> None:
    metrics = QueryMetrics()
    metrics.progressed(progress(eventTime={"watermark": "1970-01-01T00:00:00.000Z"}))
    assert values(metrics).get_sample_value("oncelog_query_watermark_timestamp_seconds", QUERY) is None


def test_a_query_that_failed_and_starts_again_counts_on() -> None:
    metrics = QueryMetrics()
    metrics.progressed(progress())
    metrics.ended("q1", has_failed=True)
    value = values(metrics).get_sample_value
    assert (value("oncelog_query_running", QUERY), value("oncelog_query_failed", QUERY)) == (0, 1)
    metrics.started("q1", "orders")
    metrics.progressed(progress(1))
    assert (value("oncelog_query_running", QUERY), value("oncelog_query_failed", QUERY)) == (1, 0)
    assert value("oncelog_query_batches_total", QUERY) == 2


def test_open_transactions_are_asked_for_while_a_query_runs() -> None:
    metrics = QueryMetrics(lambda query_id: 3 if query_id == "q1" else None)
    metrics.progressed(progress())
    metrics.progressed(progress(id="q2", name=None))
    value = values(metrics).get_sample_value
    assert value("oncelog_query_open_transactions", QUERY) == 3
    assert value("oncelog_query_open_transactions", {"query": "q2", "query_id": "q2"}) is None
    metrics.ended("q1", has_failed=False)
    assert value("oncelog_query_open_transactions", QUERY) is None


def test_a_cluster_that_does_not_answer_costs_one_number_and_not_the_scrape() -> None:
    def broken(_query_id: str) -> int:
        raise RuntimeError("away")

    metrics = QueryMetrics(broken)
    metrics.progressed(progress())
    value = values(metrics).get_sample_value
    assert value("oncelog_query_open_transactions", QUERY) is None
    assert value("oncelog_query_batches_total", QUERY) == 1


def test_a_cluster_that_answers_late_is_not_asked_for_every_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape must not wait for the cluster once per query, because it would then time out and return no metrics while
    the cluster is down.
    """
    seconds = [0.0]
    asked = []

    def late(query_id: str) -> None:
        asked.append(query_id)
        seconds[0] += query_metrics.ASK_SECONDS

    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    metrics = QueryMetrics(late)
    for number in range(100):
        metrics.progressed(progress(id=f"q{number}"))
    list(metrics.collect())
    assert asked == ["q0"]


def test_queries_that_ended_longest_ago_leave_first_and_running_ones_stay() -> None:
    metrics = QueryMetrics()
    metrics.started("q1", "orders")
    for number in range(MAX_QUERIES + 5):
        metrics.started(f"e{number}", None)
        metrics.ended(f"e{number}", has_failed=False)
    value = values(metrics).get_sample_value
    assert value("oncelog_query_running", QUERY) == 1
    assert value("oncelog_query_running", {"query": "e0", "query_id": "e0"}) is None
    newest = f"e{MAX_QUERIES + 4}"
    assert value("oncelog_query_running", {"query": newest, "query_id": newest}) == 0
