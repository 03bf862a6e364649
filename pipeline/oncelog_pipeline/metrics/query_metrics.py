"""Adds the progress reports of each streaming query to counters, and creates metrics from the counters.

A query is identified by its id, which remains the same when the query restarts from its checkpoint. Counters begin at 0
when the process starts. Ended queries are kept while there are at most `MAX_QUERIES` queries; beyond that the query
that started longest ago is dropped first.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from oncelog_pipeline.source.lag import lag_of

MAX_QUERIES: Final = 100
RUN_BATCH: Final = "addBatch"
"""The phase of a trigger that Spark reports only if the trigger ran a batch."""
BATCH_SECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds, in seconds, of the histogram buckets for the duration of a batch."""
LABELS: Final = ("query", "query_id")
NO_WATERMARK: Final = "1970-01-01T00:00:00.000Z"
"""The watermark that Spark reports before the first event."""

ASK_SECONDS: Final = 5.0
"""A scrape counts the open transactions of one query after another, and omits the remaining queries after this many
seconds, because Prometheus waits only 10 seconds for the scrape.
"""

OpenTransactions = Callable[[str], int | None]
"""Maps a query id to the number of its open transactions; None if that number cannot be determined."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Query:
    name: str
    is_running: bool = True
    has_failed: bool = False
    batches: int = 0
    rows: int = 0
    late_rows: int = 0
    batch_seconds: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BATCH_SECONDS) + 1))
    """Item i counts the batches that took at most BATCH_SECONDS[i]; the last item counts all batches."""
    phases: dict[str, float] = field(default_factory=dict)
    """Phase of a trigger, as Spark names the phase -> total seconds since the process started."""
    latest: dict[str, float] = field(default_factory=dict)
    """Name of a gauge -> its value in the last progress report that contained it."""


GAUGES: Final = {
    "batch": "The number of the last batch.",
    "rows_per_second": "Rows that the last batch processed per second.",
    "last_batch_seconds": "Duration of the last batch.",
    "last_batch_timestamp_seconds": "When the last batch began, in seconds since the epoch.",
    "lag_offsets": "Offsets from the end of the last batch to the ends of the partitions, over all sources.",
    "watermark_timestamp_seconds": "The watermark, in seconds since the epoch.",
    "state_rows": "Rows in the state of the query: open windows, rows waiting for a join, keys seen.",
    "state_memory_bytes": "Memory that this state takes.",
}


class QueryMetrics(Collector):
    """The metrics of the queries of one Spark session. Safe to call from several threads."""

    def __init__(self, open_transactions: OpenTransactions | None = None) -> None:
        self._open_transactions = open_transactions
        self._queries: dict[str, _Query] = {}
        """Query id -> counters; a query moves to the end when it starts."""
        self._lock = threading.Lock()

    def started(self, query_id: str, name: str | None) -> None:
        """Record that a query has started or restarted; its counters keep their values."""
        with self._lock:
            query = self._queries.pop(query_id, None) or _Query("")
            query.name, query.is_running, query.has_failed = name or query_id, True, False
            self._queries[query_id] = query
            for each in [key for key, known in self._queries.items() if not known.is_running]:
                if len(self._queries) <= MAX_QUERIES:
                    break
                del self._queries[each]

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """Add one progress report of a query (the JSON of a StreamingQueryProgress) to the query's counters. An unknown
        query is added first.
        """
        query_id = str(progress["id"])
        if query_id not in self._queries:
            self.started(query_id, progress.get("name"))
        with self._lock:
            _count(self._queries[query_id], progress)

    def ended(self, query_id: str, *, has_failed: bool) -> None:
        with self._lock:
            if (query := self._queries.get(query_id)) is not None:
                query.is_running, query.has_failed = False, has_failed

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families. The call requests the number of open transactions from the cluster, and may wait
        for the response.
        """
        running = [key for key, query in list(self._queries.items()) if query.is_running]
        until = time.monotonic() + ASK_SECONDS
        counts = {key: count for key in running if time.monotonic() < until and (count := self._open(key)) is not None}
        with self._lock:
            yield from _families(self._queries, counts)

    def _open(self, query_id: str) -> int | None:
        try:
            return None if self._open_transactions is None else self._open_transactions(query_id)
        except Exception:  # the scrape then omits the number of open transactions
            logger.exception("query %s: its open transactions could not be counted", query_id)
            return None


def _count(query: _Query, progress: Mapping[str, Any]) -> None:
    durations = progress.get("durationMs") or {}
    for phase, milliseconds in durations.items():
        query.phases[phase] = query.phases.get(phase, 0.0) + milliseconds / 1000
    operators = progress.get("stateOperators") or ()
    query.late_rows += sum(int(each.get("numRowsDroppedByWatermark", 0)) for each in operators)
    if operators:
        query.latest["state_rows"] = sum(int(each.get("numRowsTotal", 0)) for each in operators)
        query.latest["state_memory_bytes"] = sum(int(each.get("memoryUsedBytes", 0)) for each in operators)
    watermark = (progress.get("eventTime") or {}).get("watermark")
    if watermark is not None and watermark != NO_WATERMARK:
        query.latest["watermark_timestamp_seconds"] = _seconds(watermark)
    if (lag := lag_of(progress.get("sources") or ())) is not None:
        query.latest["lag_offsets"] = lag
    if RUN_BATCH in durations:
        _count_batch(query, progress, durations)


def _count_batch(query: _Query, progress: Mapping[str, Any], durations: Mapping[str, float]) -> None:
    seconds = progress.get("batchDuration", durations.get("triggerExecution", 0)) / 1000
    rate = progress.get("processedRowsPerSecond")
    query.batches += 1
    query.rows += int(progress.get("numInputRows", 0))
    query.batch_seconds += seconds
    for index, bound in enumerate((*BATCH_SECONDS, math.inf)):
        query.buckets[index] += seconds <= bound
    query.latest |= {
        "batch": int(progress["batchId"]),
        "rows_per_second": rate if isinstance(rate, (int, float)) and math.isfinite(rate) else 0.0,
        "last_batch_seconds": seconds,
        "last_batch_timestamp_seconds": _seconds(progress["timestamp"]),
    }


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def _families(queries: Mapping[str, _Query], open_transactions: Mapping[str, int]) -> Iterator[Metric]:
    running = GaugeMetricFamily("oncelog_query_running", "1 while the query runs, else 0.", labels=LABELS)
    failed = GaugeMetricFamily("oncelog_query_failed", "1 if the query ended with an error, else 0.", labels=LABELS)
    batches = CounterMetricFamily("oncelog_query_batches", "Batches that were run.", labels=LABELS)
    rows = CounterMetricFamily("oncelog_query_rows", "Rows read from the sources.", labels=LABELS)
    late = CounterMetricFamily(
        "oncelog_query_late_rows", "Rows dropped because they were older than the watermark.", labels=LABELS
    )
    seconds = HistogramMetricFamily("oncelog_query_batch_seconds", "Durations of batches.", labels=LABELS)
    phases = CounterMetricFamily(
        "oncelog_query_phase_seconds",
        "Time in each phase of triggers, as Spark names them; addBatch runs the query and writes.",
        labels=(*LABELS, "phase"),
    )
    held = GaugeMetricFamily(
        "oncelog_query_open_transactions",
        "Transactions of the query's tasks that are open in the cluster.",
        labels=LABELS,
    )
    gauges = {name: GaugeMetricFamily(f"oncelog_query_{name}", text, labels=LABELS) for name, text in GAUGES.items()}
    for query_id, query in queries.items():
        labels = (query.name, query_id)
        running.add_metric(labels, float(query.is_running))
        failed.add_metric(labels, float(query.has_failed))
        batches.add_metric(labels, query.batches)
        rows.add_metric(labels, query.rows)
        late.add_metric(labels, query.late_rows)
        bounds = [*map(str, BATCH_SECONDS), "+Inf"]
        seconds.add_metric(labels, list(zip(bounds, query.buckets, strict=True)), query.batch_seconds)
        for phase, spent in query.phases.items():
            phases.add_metric((*labels, phase), spent)
        if query_id in open_transactions:
            held.add_metric(labels, open_transactions[query_id])
        for name, value in query.latest.items():
            gauges[name].add_metric(labels, value)
    yield from (running, failed, batches, rows, late, seconds, phases, held, *gauges.values())
