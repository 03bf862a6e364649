"""Metrics of request counts and durations, kafka.network:type=RequestMetrics, and of connections.

Quantiles are computed from the latest thousand timed requests of each API; every eighth request is timed. For a request
that does not wait, only the total time is reported, because its total time equals its local time. Kafka's times for
queued requests and responses are omitted, because this broker has no such queues.
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.metrics.family import Families, Sample, Samples
from oncelog_broker.metrics.source import Source
from oncelog_broker.observability.request_times import LOCAL, QUANTILES, REMOTE, SEND, TOTAL, quantiles
from oncelog_protocol.api import ApiKey

families = Families()

STAGES: Final = (
    (TOTAL, "totaltimems", "Milliseconds from the received request to the response passed to the transport."),
    (LOCAL, "localtimems", "Milliseconds of local work before a request waits; only requests that wait."),
    (REMOTE, "remotetimems", "Milliseconds that a request waits: for replicas, for records, or for long work."),
    (
        SEND,
        "responsesendtimems",
        "Milliseconds to encode and pass on the response of a request that has waited.",
    ),
)


def kafka_name(api_key: int) -> str:
    """Return the name of an API in Kafka's metrics: PRODUCE -> Produce, END_TXN -> EndTxn."""
    return "".join(word.capitalize() for word in ApiKey(api_key).name.split("_"))


def _declare(stage: str, kafkas: str, text: str) -> None:
    name = f"kafka_network_requestmetrics_{kafkas}"

    @families.gauge(name, text, "request", "quantile")
    def read(source: Source) -> Samples:
        for api_key, times in list(source.parts.times.apis.items()):
            api = kafka_name(api_key)
            for quantile, seconds in zip(QUANTILES, quantiles(times.samples(stage)), strict=False):
                yield Sample({"request": api, "quantile": _shown(quantile)}, seconds * 1000)


def _shown(quantile: float) -> str:
    """Format a quantile as jmx_exporter derives it from 50thPercentile: 0.5 -> 0.50."""
    return f"{quantile:.2f}" if round(quantile, 2) == quantile else str(quantile)


for _stage in STAGES:
    _declare(*_stage)


@families.counter("kafka_network_requestmetrics_requests_total", "Requests received.", "request", "version")
def requests(source: Source) -> Samples:
    for api_key, version, count in list(source.parts.dispatcher.requests()):
        yield Sample({"request": kafka_name(api_key), "version": str(version)}, count)


@families.counter(
    "oncelog_requests_waited_total",
    "Requests whose response had to wait: for replicas, for records, or for long work.",
    "request",
)
def waited(source: Source) -> Samples:
    for api_key, times in list(source.parts.times.apis.items()):
        yield Sample({"request": kafka_name(api_key)}, times.waited)


@families.gauge("kafka_server_socket_server_metrics_connection_count", "Open connections.", "listener")
def connection_count(source: Source) -> Samples:
    for listener, count in sorted(source.connections.items()):
        yield Sample({"listener": listener}, count)


@families.gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "Requests that wait in the purgatory, by the kind of operation.",
    "delayedOperation",
)
def waiting(source: Source) -> Samples:
    appends = fetches = 0
    for number, partition in enumerate(source.led, 1):
        appends += len(partition.purgatory.appends)
        fetches += len(partition.purgatory.fetches) + len(partition.purgatory.replica_fetches)
        if number % 200 == 0:
            yield None
    yield Sample({"delayedOperation": "Produce"}, appends)
    yield Sample({"delayedOperation": "Fetch"}, fetches)


@families.gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", "Incremental fetch sessions (KIP-227).")
def fetch_sessions(source: Source) -> Samples:
    yield Sample({}, len(source.services.fetch_sessions))
