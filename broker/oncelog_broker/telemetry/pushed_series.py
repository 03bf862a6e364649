"""Stores the latest values of the metrics that clients have pushed, as series for Prometheus. This module has no I/O.
Times are in monotonic seconds.

Clients push counters as differences since their previous push. This module adds the differences up, because Prometheus
expects totals. The numbers of clients, series and metric names are limited, because clients choose names and attributes
freely and Prometheus stores each series for weeks. Values beyond a limit are dropped; the dropped values are counted by
the reason. The series of a client are removed when the client has pushed nothing for three push intervals (at least one
minute).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

from oncelog_broker.runtime.steps import Steps
from oncelog_broker.telemetry.client_instances import ClientInstance
from oncelog_broker.telemetry.metrics_data import Attributes, Point
from oncelog_protocol.light_classes import NamedTuple

MAX_CLIENTS: Final = 500
"""Maximum number of clients whose pushed metrics are stored as series."""
MAX_SERIES_PER_CLIENT: Final = 500
MAX_SERIES: Final = 10_000
"""Maximum number of series of all clients; each series takes about 500 bytes of memory, and one line in each scrape by
Prometheus.
"""
MAX_NAMES: Final = 1_000
"""Maximum number of different metric names that all clients together have pushed since the broker started."""
MAX_LABEL_CHARS: Final = 1_000
"""Maximum total characters of all label names and label values that a series gets from attributes."""
POINTS_PER_STEP: Final = 200
"""Number of values that are added before other work may run."""
OF_CLIENT: Final = ("metric", "client_id", "client_instance_id", "client_software_name", "client_software_version")
"""The labels that every series has. An attribute of a metric with one of these names is left out."""
NOT_IN_A_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")


class Dropped(StrEnum):
    """Why a value was dropped."""

    CLIENTS = "clients"
    SERIES = "series"
    LABELS = "labels"
    NAMES = "names"
    UNREAD = "unread"
    """The value was dropped because values of this kind are not decoded, or because the push exceeds a limit of the
    decoder.
    """


class Series(NamedTuple):
    """One series with its labels and its value: the latest value of a gauge, or the total of a counter."""

    labels: Mapping[str, str]
    value: float


_Key = tuple[str, bool, Attributes]
"""Metric name, whether the metric is a counter, and the labels that come from attributes, in ascending order."""


class _Client:
    __slots__ = ("expires", "labels", "values")

    def __init__(self, instance: ClientInstance) -> None:
        of = instance.attributes
        self.labels = (of.client_id, of.client_instance_id, of.client_software_name, of.client_software_version)
        self.values: dict[_Key, float] = {}
        self.expires = 0.0


class PushedSeries:
    """The series that all clients of one broker have pushed."""

    def __init__(self) -> None:
        self.dropped: Counter[Dropped] = Counter()
        """Number of dropped values since the broker started, by reason."""
        self._clients: dict[bytes, _Client] = {}
        self._names: set[str] = set()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, instance: ClientInstance, points: list[Point], now: float) -> Steps[None]:
        """Add the values of one push."""
        for number, point in enumerate(points, 1):
            reason = self._add(instance, point, now)
            if reason is not None:
                self.dropped[reason] += 1
            if number % POINTS_PER_STEP == 0:
                yield None

    def series(self, *, counters: bool, now: float) -> Iterator[Series | None]:
        """Yield all counters, or all gauges. After the series of each client yield None, so that other work may run."""
        self._remove_silent(now)
        for client in list(self._clients.values()):
            for (name, is_counter, attributes), value in list(client.values.items()):
                if is_counter is counters:
                    labels = dict(zip(OF_CLIENT, (name, *client.labels), strict=True))
                    labels.update(attributes)
                    yield Series(labels, value)
            yield None

    def _add(self, instance: ClientInstance, point: Point, now: float) -> Dropped | None:
        client = self._clients.get(instance.id)
        if client is None:
            if len(self._clients) >= MAX_CLIENTS:
                self._remove_silent(now)
            if len(self._clients) >= MAX_CLIENTS:
                return Dropped.CLIENTS
            client = self._clients[instance.id] = _Client(instance)
        client.expires = now + instance.expiry_seconds
        key = (point.name, point.is_counter, _labels(point.attributes))
        if key not in client.values:
            if sum(len(name) + len(value) for name, value in key[2]) > MAX_LABEL_CHARS:
                return Dropped.LABELS
            if point.name not in self._names:
                if len(self._names) >= MAX_NAMES:
                    return Dropped.NAMES
                self._names.add(point.name)
            if len(client.values) >= MAX_SERIES_PER_CLIENT or self._count >= MAX_SERIES:
                return Dropped.SERIES
            self._count += 1
        before = client.values.get(key, 0.0) if point.is_delta else 0.0
        client.values[key] = before + point.value
        return None

    def _remove_silent(self, now: float) -> None:
        for id_, client in list(self._clients.items()):
            if client.expires < now:
                del self._clients[id_]
                self._count -= len(client.values)


def _labels(attributes: Attributes) -> Attributes:
    """Return attributes as Prometheus labels: with valid names, without duplicates, and without the labels that every
    series has.
    """
    labels = {}
    for key, value in attributes:
        name = NOT_IN_A_LABEL.sub("_", key).lstrip("_0123456789")
        if name and name not in OF_CLIENT:
            labels[name] = value
    return tuple(sorted(labels.items()))
