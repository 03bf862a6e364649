"""Pushed values become series for Prometheus: counters are added up, and clients, series, labels and names limited."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog_broker.runtime.steps import run_steps
from oncelog_broker.telemetry import pushed_series
from oncelog_broker.telemetry.client_instances import ClientInstance
from oncelog_broker.telemetry.metrics_data import Point
from oncelog_broker.telemetry.pushed_series import Dropped, PushedSeries
from oncelog_broker.telemetry.subscriptions import ClientAttributes, Subscribed


def client(number: int = 1, interval_ms: int = 1_000) -> ClientInstance:
    attributes = ClientAttributes(f"id-{number}", f"client-{number}", "librdkafka", "2.6.0", "127.0.0.1", "1")
    return ClientInstance(bytes([number] * 16), attributes, Subscribed(("*",), interval_ms), 1)


def gauge(name: str, value: float, *attributes: tuple[str, str]) -> Point:
    return Point(name, attributes, value, False, False)


def add(pushed: PushedSeries, points: list[Point], instance: ClientInstance | None = None, now: float = 0) -> None:
    run_steps(pushed.add(instance or client(), points, now))


def values(pushed: PushedSeries, *, counters: bool = False, now: float = 0) -> dict[str, float]:
    return {found.labels["metric"]: found.value for found in pushed.series(counters=counters, now=now) if found}


def test_differences_of_a_counter_are_added_up() -> None:
    pushed = PushedSeries()
    for value in (3.0, 4.0):
        add(pushed, [Point("delta", (), value, True, True), Point("total", (), value, True, False)])
    assert values(pushed, counters=True) == {"delta": 7.0, "total": 4.0}
    assert values(pushed) == {}


def test_a_gauge_has_its_latest_value_and_the_labels_of_its_client() -> None:
    pushed = PushedSeries()
    add(pushed, [gauge("lag", 1.0, ("topic", "a")), gauge("lag", 2.0, ("topic", "a"))])
    (series,) = filter(None, pushed.series(counters=False, now=0))
    assert series.value == 2.0
    assert series.labels == {
        "metric": "lag",
        "client_id": "client-1",
        "client_instance_id": "id-1",
        "client_software_name": "librdkafka",
        "client_software_version": "2.6.0",
        "topic": "a",
    }


def test_attributes_become_valid_labels_each_once() -> None:
    pushed = PushedSeries()
    add(pushed, [gauge("g", 1.0, ("node.id", "1"), ("node_id", "2"), ("__name__", "x"), ("9", "y"), ("metric", "z"))])
    (series,) = filter(None, pushed.series(counters=False, now=0))
    assert {name: value for name, value in series.labels.items() if name not in pushed_series.OF_CLIENT} == {
        "node_id": "2",
        "name__": "x",
    }


def test_the_series_of_a_silent_client_are_removed() -> None:
    pushed = PushedSeries()
    add(pushed, [gauge("g", 1.0)], now=0)
    assert values(pushed, now=60) == {"g": 1.0}
    assert values(pushed, now=61) == {}
    assert len(pushed) == 0


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("MAX_CLIENTS", Dropped.CLIENTS),
        ("MAX_SERIES", Dropped.SERIES),
        ("MAX_SERIES_PER_CLIENT", Dropped.SERIES),
        ("MAX_NAMES", Dropped.NAMES),
        ("MAX_LABEL_CHARS", Dropped.LABELS),
    ],
)
def test_values_beyond_a_limit_are_dropped_and_counted(monkeypatch: Any, limit: str, reason: Dropped) -> None:
    monkeypatch.setattr(pushed_series, limit, 4 if limit == "MAX_LABEL_CHARS" else 2)
    pushed = PushedSeries()
    for number in range(3):
        of = client(number if limit == "MAX_CLIENTS" else 1)
        add(pushed, [gauge(f"g{number}", 1.0, ("t", "x" * 2 * number))], of)
    assert pushed.dropped == {reason: 1}
    assert len(pushed) == 2
    add(pushed, [gauge("g0", 5.0, ("t", ""))], client(0 if limit == "MAX_CLIENTS" else 1))
    assert values(pushed)["g0"] == 5.0, "a series that is there keeps being updated"


def test_many_values_are_added_in_steps() -> None:
    points = [gauge("g", 1.0)] * (2 * pushed_series.POINTS_PER_STEP)
    assert sum(1 for _ in PushedSeries().add(client(), points, 0)) == 2
