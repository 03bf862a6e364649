"""Metrics that clients push to this broker (KIP-714), and counts of these pushes."""

from __future__ import annotations

from typing import Final

from oncelog_broker.metrics.family import NO_LABELS, Families, Sample, Samples
from oncelog_broker.metrics.source import Source
from oncelog_broker.telemetry.pushed_series import MAX_CLIENTS, MAX_SERIES, OF_CLIENT, Dropped
from oncelog_protocol.errors import ErrorCode

families = Families()

BOUNDED: Final = f"At most {MAX_SERIES} series of {MAX_CLIENTS} clients; each attribute is a label of its own."


@families.gauge(
    "kafka_server_client_metrics_instance_count", "Clients that have asked which metrics to push, and are connected."
)
def instances(source: Source) -> Samples:
    yield Sample(NO_LABELS, len(source.services.telemetry.instances))


@families.counter("oncelog_client_metrics_pushes_total", "PushTelemetry requests of clients.", "error")
def pushes(source: Source) -> Samples:
    counts = source.services.telemetry.pushes
    for code in sorted({ErrorCode.NONE, *counts}):
        yield Sample({"error": code.name}, counts[code])


@families.counter(
    "oncelog_client_metrics_dropped_total",
    "Values of clients that were dropped: beyond the limit of clients, series, labels or names, or of an unread kind.",
    "reason",
)
def dropped(source: Source) -> Samples:
    for reason in Dropped:
        yield Sample({"reason": reason}, source.services.telemetry.pushed.dropped[reason])


@families.gauge(
    "oncelog_client_metric",
    f"A gauge that a client has pushed; the label metric is its name. {BOUNDED}",
    *OF_CLIENT,
)
def gauges(source: Source) -> Samples:
    yield from _series(source, counters=False)


@families.counter(
    "oncelog_client_metric_total",
    f"The sum of a counter's increases that a client has pushed to this broker. {BOUNDED}",
    *OF_CLIENT,
)
def counters(source: Source) -> Samples:
    yield from _series(source, counters=True)


def _series(source: Source, *, counters: bool) -> Samples:
    now = source.services.clock.monotonic()
    for series in source.services.telemetry.pushed.series(counters=counters, now=now):
        yield None if series is None else Sample(series.labels, series.value)
