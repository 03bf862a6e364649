"""The loads that `apache.py` puts on Apache Kafka and on oncelog's broker: requests over raw connections.

The goals of the ratios (oncelog's number to Kafka's) stand beside each load. CPU is the CPU of the broker; rates and
times are of the wall clock, with a client that needs a part of the same cores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import broker_cost as cost
from raw import RawClient
from table import counted
from transaction_load import GROUP, ONE_RECORD, RawProducer, find_coordinator, one_after_another, side_by_side

MEGABYTES: Final = 64
"""Megabytes that one turn of a load with large batches writes."""
FETCH_ROUNDS: Final = 8
PRODUCERS: Final = 64
CONNECTIONS: Final = (50, 500)


@dataclass
class Side:
    """One of the two brokers. `kept` has what the loads have prepared for this broker, by load."""

    name: str
    port: int
    pid: int
    client: RawClient
    kept: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Metric:
    """A number of a measured cost. `is_better`: whether a larger number is better. `goal` is the goal of the ratio."""

    name: str
    unit: str
    of: Callable[[cost.Cost], float]
    goal: float | None = None
    is_better: bool = False

    @property
    def goal_word(self) -> str:
        return "at_least" if self.is_better else "at_most"


@dataclass(frozen=True)
class Load:
    """`prepare` runs once for each broker, `run` once in each turn. With `shares_a_core`, broker and client run on one
    core.
    """

    name: str
    metrics: tuple[Metric, ...]
    prepare: Callable[[Side], None]
    run: Callable[[Side], cost.Cost]
    shares_a_core: bool = True


def loads(scale: int) -> list[Load]:
    """Return all loads; their amount of work is divided by `scale`."""
    return [
        _single(1, 3000 // scale, _cpu(0.6)),
        _single(64, 6000 // scale, _cpu(0.35)),
        *(_connections(count, 6000 // count // scale) for count in CONNECTIONS),
        *(_produce_batches(kilobytes, scale) for kilobytes in (64, 1024)),
        *(_fetch(kilobytes, scale) for kilobytes in (64, 1024)),
        _transactions(1, 200 // scale, cpu=0.3, time=0.3),
        _transactions(10, 60 // scale, cpu=0.5, time=0.5),
        _producers(max(1, 6 // scale)),
    ]


def _cpu(goal: float, unit: str = "request") -> Metric:
    return Metric("CPU", f"CPU us/{unit}", lambda spent: spent.cpu_us_per_request, goal)


def _rate(goal: float, unit: str = "requests") -> Metric:
    return Metric("rate", f"{unit}/s", lambda spent: spent.requests / spent.seconds, goal, is_better=True)


def _time(goal: float) -> Metric:
    return Metric("time", "ms", lambda spent: spent.seconds / spent.requests * 1000, goal)


def _bytes(goal: float) -> Metric:
    return Metric("bytes per CPU second", "GB/CPU s", lambda spent: spent.gb_per_cpu_second, goal, is_better=True)


def _single(window: int, count: int, metric: Metric) -> Load:
    batch = cost.batch(100, 100)
    topic = f"single-{window}"
    request = cost.produce_request(topic, batch)
    return Load(
        f"produce, 1 record of 100 B, {window} in flight",
        (metric,),
        lambda side: cost.recycled_topic(side.client, topic),
        lambda side: cost.produce_cost(side.client, side.pid, request, len(batch), count, window),
    )


def _connections(count: int, rounds: int) -> Load:
    """One record is in flight on each of `count` connections; the broker has a core for itself."""
    topic = f"connections-{count}"
    request = cost.produce_request(topic, cost.batch(100, 100))

    def prepare(side: Side) -> None:
        cost.recycled_topic(side.client, topic)
        side.kept[topic] = [RawClient(side.port) for _ in range(count)]

    def run(side: Side) -> cost.Cost:
        clients: list[RawClient] = side.kept[topic]

        def work() -> tuple[int, int]:
            frame = b""
            for _ in range(max(1, rounds)):
                for client in clients:
                    client.socket.sendall(request)
                for client in clients:
                    frame = client.read_frame()
            cost.check_produced(frame)
            return count * max(1, rounds), 0

        return cost.measured(side.pid, work)

    cpu, rate = {50: (0.8, 1.0), 500: (0.9, 1.0)}[count]
    name = f"produce, 1 record of 100 B, {count} connections"
    return Load(name, (_cpu(cpu), _rate(rate)), prepare, run, shares_a_core=False)


def _produce_batches(kilobytes: int, scale: int) -> Load:
    batch = cost.batch(kilobytes << 10, 1000)
    topic = f"batches-{kilobytes}"
    request = cost.produce_request(topic, batch)
    count = max(4, (MEGABYTES << 20) // len(batch) // scale)
    return Load(
        f"produce, {kilobytes} KB batches",
        (_bytes(2.0),),
        lambda side: cost.recycled_topic(side.client, topic),
        lambda side: cost.produce_cost(side.client, side.pid, request, len(batch), count, 4),
    )


def _fetch(kilobytes: int, scale: int) -> Load:
    batch = cost.batch(kilobytes << 10, 1000)
    topic = f"read-{kilobytes}"

    def prepare(side: Side) -> None:
        side.kept[topic] = cost.readable_log(side.client, topic, batch)

    def run(side: Side) -> cost.Cost:
        return cost.fetch_cost(side.client, side.pid, *side.kept[topic], max(1, FETCH_ROUNDS // scale))

    return Load(f"fetch, {kilobytes} KB batches, 1 MB per request", (_bytes(1.15),), prepare, run)


def _transactions(partitions: int, count: int, *, cpu: float, time: float) -> Load:
    """V1 transactions of one record to each partition, one after another over one connection."""
    topic = f"transactions-{partitions}"

    def prepare(side: Side) -> None:
        find_coordinator(side.client, "any", GROUP)
        cost.recycled_topic(side.client, topic, partitions)
        side.kept[topic] = RawProducer(side.client, topic, range(partitions), ONE_RECORD, transactional_id=topic)

    def run(side: Side) -> cost.Cost:
        transactions = [side.kept[topic].transaction() for _ in range(count)]

        def work() -> tuple[int, int]:
            one_after_another(side.client, transactions)
            return count, 0

        return cost.measured(side.pid, work)

    name = f"transaction, 1 record to each of {counted(partitions, 'partition')}"
    return Load(name, (_cpu(cpu, "txn"), _time(time)), prepare, run)


def _producers(count: int) -> Load:
    """`PRODUCERS` transactional producers at once, each over its own connection, with one partition each."""
    topic = "producers"

    def prepare(side: Side) -> None:
        cost.recycled_topic(side.client, topic, PRODUCERS)
        clients = [RawClient(side.port) for _ in range(PRODUCERS)]
        side.kept[topic] = [
            RawProducer(client, topic, [number], ONE_RECORD, transactional_id=f"{topic}-{number}")
            for number, client in enumerate(clients)
        ]

    def run(side: Side) -> cost.Cost:
        producers: list[RawProducer] = side.kept[topic]
        transactions = [[each.transaction() for _ in range(count)] for each in producers]

        def work() -> tuple[int, int]:
            side_by_side([each.client for each in producers], transactions)
            return count * len(producers), 0

        return cost.measured(side.pid, work)

    metrics = (_cpu(0.7, "txn"), _rate(1.5, "txns"))
    return Load(f"transactions of {PRODUCERS} producers at once", metrics, prepare, run, shares_a_core=False)
