"""Puts the same load on Apache Kafka and on oncelog's broker, in turns: `python bench/run.py --only apache`.

Both brokers run at the same time, on one core with the client that loads them. Each kind of load (`apache_loads`) runs
in turns A B B A, in RUNS runs; each turn gives one ratio. The table shows the median of all turns, the 10th and the
90th percentile of the ratios, and the median of each run. All turns are kept in `apache_turns.json`, and `apache.svg`
shows the ratios.

A JVM is slow until it has compiled its hot code. So before the first run, Kafka gets each kind of load until its CPU
per request no longer falls: until the last WARM_ROUNDS rounds were not cheaper than the WARM_ROUNDS rounds before them.
The heap of the JVM is touched at its start, so the cost of fresh pages is not measured.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import broker_cost as cost
from apache_kafka import ApacheKafka
from apache_loads import Load, Metric, Side, loads
from broker_process import BrokerProcess
from maven import Unavailable
from meter import percentile
from ratio_plot import Bar, plot
from raw import RawClient
from table import Add

RELEASE: Final = "4.3.1"
KAFKA: Final = f"Apache Kafka {RELEASE}"
OURS: Final = "oncelog"
JAVA_OPTIONS: Final = ("-Xms512m", "-Xmx512m", "-XX:+AlwaysPreTouch", "-XX:+UseSerialGC")
RUNS: Final = 3
TURNS: Final = 4
"""Turns of each load in each run; both brokers have the load once in each turn."""
WARM_SECONDS: Final = (15.0, 60.0)
"""The least and the most seconds for which Kafka gets one kind of load before the first run."""
WARM_ROUNDS: Final = 5
WARM_GAIN: Final = 0.97
"""Kafka is warm when the cheapest of the last rounds costs at least this part of the cheapest round before them."""
SETTINGS: Final = {"log.retention.check.interval.ms": "200"}
KAFKA_SETTINGS: Final = {**SETTINGS, "log.initial.task.delay.ms": "200"}
HERE: Final = Path(__file__).parent

Found = dict[str, list[list[tuple[float, float]]]]
"""Maps the name of each measurement to its runs; a run has the pair of numbers (ours, Kafka's) of each turn."""


def compare(add: Add, scale: int) -> None:
    """Measure both brokers; the amount of work is divided by `scale`, and nothing but the table is made if it is not
    1.
    """
    try:
        with tempfile.TemporaryDirectory() as directory:
            kafka = ApacheKafka(RELEASE, Path(directory) / "kafka", KAFKA_SETTINGS, JAVA_OPTIONS)
            with contextlib.ExitStack() as stack:
                ours = stack.enter_context(BrokerProcess(Path(directory) / "ours", SETTINGS))
                sides = [
                    Side(name, broker.port, broker.pid, stack.enter_context(contextlib.closing(RawClient(broker.port))))
                    for name, broker in ((OURS, ours), (KAFKA, stack.enter_context(kafka)))
                ]
                _compare(add, sides, scale)
    except Unavailable as reason:
        print(f"no comparison with Apache Kafka: {reason}")


def _compare(add: Add, sides: Sequence[Side], scale: int) -> None:
    kinds = loads(scale)
    for load in kinds:
        for side in sides:
            load.prepare(side)
        _warm(load, sides, scale)
    found: Found = {}
    for _ in range(1 if scale > 1 else RUNS):
        for load in kinds:
            _run(load, sides, found)
    metrics = {f"{load.name}: {metric.name}": metric for load in kinds for metric in load.metrics}
    summaries = {what: _Summary(runs) for what, runs in found.items()}
    for what, summary in summaries.items():
        summary.add_to(add, what, metrics[what])
    for side in sides:
        add(f"resident memory: {side.name}", cost.resident_megabytes(side.pid), "MB")
    if scale == 1:
        (HERE / "apache_turns.json").write_text(json.dumps({"release": RELEASE, "turns": found}, indent=1) + "\n")
        bars = [Bar(what, *summaries[what].spread, metrics[what].is_better) for what in summaries]
        (HERE / "apache.svg").write_text(plot(f"oncelog beside {KAFKA}", bars))


def _warm(load: Load, sides: Sequence[Side], scale: int) -> None:
    """Run a load until Kafka's CPU per request no longer falls, and once on our broker."""
    ours, kafka = sides
    load.run(ours)
    least, most = (seconds / scale for seconds in WARM_SECONDS)
    began, spent = time.monotonic(), list[float]()
    while (taken := time.monotonic() - began) < most:
        spent.append(load.run(kafka).cpu_us_per_request)
        if taken > least and _falls_no_longer(spent):
            break
    print(f"{load.name}: Kafka warmed for {taken:.0f} s: {spent[0]:.0f} -> {min(spent):.0f} CPU us", flush=True)


def _falls_no_longer(spent: Sequence[float]) -> bool:
    """Return whether the last rounds were hardly cheaper than the rounds before them."""
    last, before = spent[-WARM_ROUNDS:], spent[:-WARM_ROUNDS]
    return bool(before) and min(last) >= WARM_GAIN * min(before)


def _run(load: Load, sides: Sequence[Side], found: Found) -> None:
    """Measure a load in turns A B B A, and add a run to its measurements."""
    for metric in load.metrics:
        found.setdefault(f"{load.name}: {metric.name}", []).append([])
    for turn in range(TURNS):
        costs: dict[str, cost.Cost] = {}
        for side in sides if turn % 2 == 0 else reversed(sides):
            with cost.pinned(side.pid, together=load.shares_a_core):
                costs[side.name] = load.run(side)
        for metric in load.metrics:
            pair = metric.of(costs[OURS]), metric.of(costs[KAFKA])
            found[f"{load.name}: {metric.name}"][-1].append(pair)


class _Summary:
    """The medians of one measurement: `spread` is the median, the 10th and the 90th percentile of the ratios."""

    def __init__(self, runs: Sequence[Sequence[tuple[float, float]]]) -> None:
        ratios = [[ours / kafka for ours, kafka in run] for run in runs]
        every = [ratio for run in ratios for ratio in run]
        self.ours = statistics.median(ours for run in runs for ours, _ in run)
        self.kafka = statistics.median(kafka for run in runs for _, kafka in run)
        self.spread = statistics.median(every), percentile(every, 0.1), percentile(every, 0.9)
        self.runs = [statistics.median(run) for run in ratios]

    def add_to(self, add: Add, what: str, metric: Metric) -> None:
        add(f"{what}: {OURS}", self.ours, metric.unit)
        add(f"{what}: {KAFKA}", self.kafka, metric.unit)
        middle, low, high = self.spread
        goals: Mapping[str, Any] = {} if metric.goal is None else {metric.goal_word: metric.goal}
        add(f"{what}: ratio, median of all turns", middle, "ratio", **goals)
        add(f"{what}: ratio, 10th percentile", low, "ratio")
        add(f"{what}: ratio, 90th percentile", high, "ratio")
        for number, median in enumerate(self.runs, 1):
            add(f"{what}: ratio, median of run {number}", median, "ratio")
