"""The report of `oncelog bench` about waiting times: quantiles and a histogram."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from oncelog.cli.bench_loads import values
from oncelog.cli.bench_report import BARS, Measured, Waits, histogram_rows


def noted(*seconds: float) -> Waits:
    waits = Waits()
    for each in seconds:
        waits.note(each)
    return waits


def test_quantiles_are_right_to_a_few_percent_however_the_waits_are_spread() -> None:
    source = random.Random(1)
    seconds = sorted(source.lognormvariate(-6, 2) for _ in range(5000))
    waits = noted(*seconds)
    for share in (0.5, 0.95, 0.99, 0.999):
        assert waits.quantile(share) == pytest.approx(seconds[int(share * 5000) - 1], rel=0.05)
    assert waits.quantile(1.0) == seconds[-1]
    assert waits.mean_seconds == pytest.approx(sum(seconds) / 5000)


def test_the_bars_hold_every_wait_once() -> None:
    source = random.Random(2)
    waits = noted(*(source.expovariate(100) for _ in range(1000)))
    bars = waits.bars()
    assert len(bars) <= BARS
    assert sum(count for _, _, count in bars) == 1000
    assert all(before[1] == after[0] for before, after in pairwise(bars))


@pytest.mark.parametrize("seconds", [(), (0.0,), (0.003, 0.003), (1e-9, 3600.0)])
def test_a_histogram_can_always_be_drawn(seconds: tuple[float, ...]) -> None:
    waits = noted(*seconds)
    assert sum(count for _, count, _ in histogram_rows(waits)) == len(seconds)
    assert waits.quantile(0.99) <= waits.longest_seconds


def test_figures_are_named_alike_for_people_and_programs() -> None:
    measured = Measured("records", "acknowledged", count=200, size_bytes=2_000_000, seconds=2.0, waits=noted(0.004))
    assert dict(measured.figures()) == {
        "records": 200,
        "seconds": 2.0,
        "records_per_second": 100.0,
        "megabytes_per_second": 1.0,
        "mean_ms": 4.0,
        "p50_ms": pytest.approx(4.0, rel=0.05),
        "p95_ms": pytest.approx(4.0, rel=0.05),
        "p99_ms": pytest.approx(4.0, rel=0.05),
        "p999_ms": pytest.approx(4.0, rel=0.05),
        "max_ms": 4.0,
    }
    assert measured.as_json()["histogram"][0]["count"] == 1
    assert "200 records, 100/s, 1.00 MB/s, acknowledged: half within" in measured.line()


def test_an_empty_histogram_has_a_line_to_show() -> None:
    assert Measured("records", "polled").line() == "0 records, 0/s, 0.00 MB/s"


def test_values_have_their_size_and_are_the_same_in_every_run() -> None:
    assert {len(value) for value in values(17)} == {17}
    assert values(17) == values(17)
    assert values(0) == [b""]
    assert len(values(10 << 20)) == 1, "large ones are few"
