"""Puts the same load on Apache Kafka and on oncelog's broker, in turns: `python bench/run.py --only apache`.

Both brokers run on one core with the client that loads them; the best of several turns counts. A JVM is slow until it
has compiled its hot code, so Kafka gets each kind of request before any measurement: the first kind for
FIRST_WARM_UP_SECONDS, and every other kind for WARM_UP_SECONDS. The heap of the JVM is touched at its start, so the
cost of fresh pages is not measured.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import broker_cost as cost
from apache_kafka import ApacheKafka
from broker_process import BrokerProcess
from maven import Unavailable
from raw import RawClient
from table import counted
from transaction_load import GROUP, ONE_RECORD, RawProducer, find_coordinator, one_after_another

RELEASE: Final = "3.9.1"
JAVA_OPTIONS: Final = ("-Xms256m", "-Xmx256m", "-XX:+AlwaysPreTouch", "-XX:+UseSerialGC")
TURNS: Final = 5
FIRST_WARM_UP_SECONDS: Final = 30.0
WARM_UP_SECONDS: Final = 8.0
SETTINGS: Final = {"log.retention.check.interval.ms": "200"}
KAFKA_SETTINGS: Final = {**SETTINGS, "log.initial.task.delay.ms": "200"}

Load = Callable[[RawClient, int], float]
"""A load is a function that gets a connection and the broker's process id, and returns the measured number."""


@dataclass(frozen=True)
class Contender:
    name: str
    pid: int
    client: RawClient


def compare(add: Callable[[str, float, str], None], scale: int) -> None:
    """Measure both brokers; `add` gets the name of each measurement, its value and its unit. The amount of work is
    divided by `scale`.
    """
    try:
        with tempfile.TemporaryDirectory() as directory:
            kafka = ApacheKafka(RELEASE, Path(directory) / "kafka", KAFKA_SETTINGS, JAVA_OPTIONS)
            _compare(add, kafka, Path(directory) / "ours", scale)
    except Unavailable as reason:
        print(f"no comparison with Apache Kafka: {reason}")


def _compare(add: Callable[[str, float, str], None], kafka: ApacheKafka, directory: Path, scale: int) -> None:
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(BrokerProcess(directory, SETTINGS))
        theirs = stack.enter_context(kafka)
        contenders = [
            Contender(name, broker.pid, stack.enter_context(contextlib.closing(RawClient(broker.port))))
            for name, broker in (("oncelog", ours), (f"Apache Kafka {RELEASE}", theirs))
        ]
        warm_up_seconds = FIRST_WARM_UP_SECONDS
        for what, unit, best, load in _loads(contenders, scale):
            figures = _measure(contenders, load, best, warm_up_seconds / scale)
            warm_up_seconds = WARM_UP_SECONDS
            for contender, figure in zip(contenders, figures, strict=True):
                add(f"{what}: {contender.name}", figure, unit)
            add(f"{what}: oncelog against Apache Kafka", figures[0] / figures[1], "ratio")
        for contender in contenders:
            add(f"resident memory: {contender.name}", cost.resident_megabytes(contender.pid), "MB")


def _loads(contenders: list[Contender], scale: int) -> Iterator[tuple[str, str, Callable[..., float], Load]]:
    """Yield for each load: name, unit, the function that chooses the better of two numbers, and the load itself."""
    for contender in contenders:
        cost.recycled_topic(contender.client, "single")
    one = cost.batch(100, 100)
    for window in (1, 64):
        yield (
            f"produce, 1 record of 100 B per request, {window} in flight",
            "CPU us/request",
            min,
            _produce_single("single", one, 5000 // scale, window),
        )
    for kilobytes in (64, 1024):
        batch = cost.batch(kilobytes << 10, 1000)
        for contender in contenders:
            cost.recycled_topic(contender.client, f"batches-{kilobytes}")
        count = max(4, (100 << 20) // len(batch) // scale)
        yield (
            f"produce, {kilobytes} KB batches",
            "GB/CPU second",
            max,
            _produce_batches(f"batches-{kilobytes}", batch, count),
        )
        reads = {
            contender.pid: cost.readable_log(contender.client, f"read-{kilobytes}", batch) for contender in contenders
        }
        yield f"fetch, {kilobytes} KB batches, 1 MB per request", "GB/CPU second", max, _fetch(reads)
    yield from _transactions(contenders, scale)


def _transactions(contenders: list[Contender], scale: int) -> Iterator[tuple[str, str, Callable[..., float], Load]]:
    """Yield loads of V1 transactions, one after another: their cost, and the client's waiting time."""
    for contender in contenders:
        find_coordinator(contender.client, "any", GROUP)
    for partitions, group in ((1, None), (10, None), (1, "consume-process-produce")):
        topic = f"transactions-{partitions}" if group is None else group
        producers = {}
        for contender in contenders:
            cost.recycled_topic(contender.client, topic, partitions)
            producers[contender.pid] = RawProducer(
                contender.client, topic, range(partitions), ONE_RECORD, transactional_id=topic, group=group
            )
        count = max(20, 300 // partitions // scale)
        what = f"transaction, 1 record to each of {counted(partitions, 'partition')}"
        if group is None:
            yield what, "CPU us/txn", min, _transaction_cost(producers, count)
        else:
            what = f"{what}, and an offset"
        yield f"{what}, one after another", "ms", min, _transaction_time(producers, count)


def _transaction_cost(producers: dict[int, RawProducer], count: int) -> Load:
    def load(client: RawClient, pid: int) -> float:
        transactions = [producers[pid].transaction() for _ in range(count)]
        before = cost.cpu_seconds(pid)
        one_after_another(client, transactions)
        return (cost.cpu_seconds(pid) - before) / count * 1e6

    return load


def _transaction_time(producers: dict[int, RawProducer], count: int) -> Load:
    def load(client: RawClient, pid: int) -> float:
        taken = one_after_another(client, [producers[pid].transaction() for _ in range(count)])
        return statistics.median(took.whole for took in taken) * 1000

    return load


def _produce_single(topic: str, batch: bytes, count: int, window: int) -> Load:
    request = cost.produce_request(topic, batch)
    return lambda client, pid: cost.produce_cost(client, pid, request, len(batch), count, window).cpu_us_per_request


def _produce_batches(topic: str, batch: bytes, count: int) -> Load:
    request = cost.produce_request(topic, batch)
    return lambda client, pid: cost.produce_cost(client, pid, request, len(batch), count, 4).gb_per_cpu_second


def _fetch(reads: dict[int, tuple[list[bytes], int]]) -> Load:
    return lambda client, pid: cost.fetch_cost(client, pid, *reads[pid], 8).gb_per_cpu_second


def _measure(
    contenders: list[Contender], load: Load, best: Callable[..., float], warm_up_seconds: float
) -> list[float]:
    """Return the best number of each broker, measured in turns."""
    for contender in contenders:
        until = time.monotonic() + warm_up_seconds
        while True:
            load(contender.client, contender.pid)
            if time.monotonic() > until or contender is contenders[0]:
                break
    figures: list[list[float]] = [[] for _ in contenders]
    for _ in range(TURNS):
        for contender, found in zip(contenders, figures, strict=True):
            with cost.pinned(contender.pid, together=True):
                found.append(load(contender.client, contender.pid))
    return [best(found) for found in figures]
