"""Metrics of quota usage and throttle times of clients (Kafka's ClientQuotaManager), and of connection rates.

Names and labels are those that Kafka's attributes get from the exporter rule `kafka.server<type=(.+), user=(.+),
client-id=(.+)><>(.+)` -> `kafka_server_$1_$4`. Clients that share a quota are reported together; the label `user` or
`client_id` is empty if the quota applies to all users or client ids. Clients without a quota are not reported.
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.config.listeners import listeners
from oncelog_broker.metrics.family import NO_LABELS, Families, Sample, Samples
from oncelog_broker.metrics.source import Source
from oncelog_broker.security.quotas.observed import MAX_NAMED, MAX_OTHERS
from oncelog_protocol.quotas import QuotaKey

families = Families()

QUOTAS: Final = (
    (QuotaKey.PRODUCER_BYTE_RATE, "produce", "byte_rate", 1, "Bytes of Produce requests per second"),
    (QuotaKey.CONSUMER_BYTE_RATE, "fetch", "byte_rate", 1, "Bytes of records in Fetch responses per second"),
    (QuotaKey.REQUEST_PERCENTAGE, "request", "request_time", 100, "Percent of one processor's time"),
    (
        QuotaKey.CONTROLLER_MUTATION_RATE,
        "controllermutation",
        "mutation_rate",
        1,
        "Partitions created and deleted per second",
    ),
)
"""Each entry is a tuple: quota, type and attribute of Kafka's metric, unit, meaning."""
WHO: Final = (
    f"for clients with such a quota; clients that share one have one sample. Clients beyond {MAX_NAMED} quotas set by "
    f"name and {MAX_OTHERS} others share a sample with empty labels."
)


def _declare(key: QuotaKey, kind: str, attribute: str, unit: int, text: str) -> None:
    @families.gauge(f"kafka_server_{kind}_{attribute}", f"{text}, {WHO}", "user", "client_id")
    def rate(source: Source) -> Samples:
        for seen in source.quotas(key):
            yield Sample({"user": seen.user, "client_id": seen.client_id}, seen.rate * unit)

    @families.gauge(
        f"kafka_server_{kind}_throttle_time",
        f"Average throttle time in milliseconds of throttled requests, because of {key}; 0 without any.",
        "user",
        "client_id",
    )
    def throttle_time(source: Source) -> Samples:
        for seen in source.quotas(key):
            yield Sample({"user": seen.user, "client_id": seen.client_id}, seen.throttle_ms)


for _quota in QUOTAS:
    _declare(*_quota)


@families.gauge(
    "kafka_server_socket_server_metrics_connection_creation_rate", "Connections accepted per second.", "listener"
)
def creation_rate(source: Source) -> Samples:
    rates, now = source.parts.connections.rates, source.services.clock.monotonic()
    for listener in listeners(source.services.config):
        made = rates.made.get(listener.name) if rates is not None else None
        yield Sample({"listener": listener.name}, made.recent.rate(now) if made is not None else 0)


@families.counter(
    "kafka_server_socket_server_metrics_connection_creation_total", "Connections accepted since the start.", "listener"
)
def creations(source: Source) -> Samples:
    rates = source.parts.connections.rates
    for listener in listeners(source.services.config):
        made = rates.made.get(listener.name) if rates is not None else None
        yield Sample({"listener": listener.name}, made.total if made is not None else 0)


@families.counter(
    "oncelog_connections_turned_away_total",
    "Connections closed because their address exceeded its quota of new connections.",
)
def turned_away(source: Source) -> Samples:
    rates = source.parts.connections.rates
    yield Sample(NO_LABELS, rates.turned_away if rates is not None else 0)
