"""How long one record takes through a streaming query, from topic to topic: from produced to visible.

A query copies records between topics of two partitions. A client produces one record, waits until a read_committed
consumer has seen the copy, pauses, and produces the next one: so each record is a micro-batch of its own, and the query
is idle before it. Ours and Spark's own connector take turns in one session. The phases are those of Spark's progress
(milliseconds), and CPU milliseconds for each record of the JVM, of all Python processes below it, and of the broker.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any, Final

import psutil
from table import Add

from oncelog import Admin, NewTopic

PARTITIONS: Final = 2
PAUSE_SECONDS: Final = 0.2
WARM_UP: Final = 8
"""Records at the start of each turn that do not count: the query's processes start, the JVM compiles."""
TIMEOUT_SECONDS: Final = 60.0
PHASES: Final = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets", "triggerExecution")
READ_COMMITTED: Final = {"kafka.isolation.level": "read_committed"}


@dataclass(frozen=True)
class Way:
    """A query to measure: the source's and the sink's format and options."""

    name: str
    format: str
    source_options: Mapping[str, str] = field(default_factory=dict)
    sink_options: Mapping[str, str] = field(default_factory=dict)
    at_most: float | None = None


OURS: Final = (
    Way("oncelog, exactly once", "oncelog", at_most=200),
    Way("oncelog, at least once", "oncelog", sink_options={"delivery": "at-least-once"}),
)
PEER: Final = (
    Way("Spark's connector", "kafka", READ_COMMITTED),
    Way("Spark's connector, fetch.max.wait.ms=20", "kafka", READ_COMMITTED | {"kafka.fetch.max.wait.ms": "20"}),
)


@dataclass
class Taken:
    """What was measured of one way: milliseconds each."""

    visible: list[float] = field(default_factory=list)
    phases: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in PHASES})
    cpu: dict[str, list[float]] = field(default_factory=lambda: {"JVM": [], "Python": [], "broker": []})
    """For each record, one figure a turn."""


def measure(add: Add, spark: Any, address: str, broker_pid: int, directory: str, *, turns: int, has_peer: bool) -> None:
    """`turns`: of 16 records each."""
    ways = (*OURS, *(PEER if has_peer else ()))
    taken = {way.name: Taken() for way in ways}
    for _ in range(turns):
        for way in ways:
            _turn(spark, address, broker_pid, directory, way, taken[way.name], 16)
    for way in ways:
        found = taken[way.name]
        what = f"one record, produced to visible: {way.name}"
        add(what, median(found.visible), "ms", at_most=way.at_most)
        add(f"{what}, 90 %", quantiles(found.visible, n=10)[-1], "ms")
        for name, values in found.phases.items():
            add(f"{what}, {name}", median(values), "ms")
        for name, values in found.cpu.items():
            add(f"{what}, CPU of {name}", median(values), "ms/record")


def _turn(spark: Any, address: str, broker_pid: int, directory: str, way: Way, taken: Taken, count: int) -> None:
    """One query, from its start to its end. Raises TimeoutError where a record does not come."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    name = uuid.uuid4().hex
    source, target = f"latency-{name}", f"latency-{name}-copy"
    asyncio.run(_create(address, source, target))
    servers = {"kafka.bootstrap.servers": address}
    given = {"subscribe": source, "startingOffsets": "earliest"} | servers | dict(way.source_options)
    table = spark.readStream.format(way.format).options(**given).load().select("key", "value")
    writer = table.writeStream.format(way.format).options(**(servers | {"topic": target} | dict(way.sink_options)))
    query = writer.option("checkpointLocation", os.path.join(directory, name)).start()
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    settings = {"bootstrap.servers": address, "group.id": name, "isolation.level": "read_committed"}
    consumer = Consumer(settings | {"fetch.wait.max.ms": 20, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(target, partition, 0) for partition in range(PARTITIONS)])
    pid = spark.sparkContext._gateway.proc.pid
    try:
        before: dict[str, float] = {}
        for number in range(WARM_UP + count):
            if number == WARM_UP:
                before = _cpu_seconds(pid, broker_pid)
            produced = time.perf_counter()
            producer.produce(source, b"%d" % number, partition=number % PARTITIONS)
            producer.flush()
            _wait_for(consumer, query, b"%d" % number)
            if number >= WARM_UP:
                taken.visible.append((time.perf_counter() - produced) * 1000)
            time.sleep(PAUSE_SECONDS)
        after = _cpu_seconds(pid, broker_pid)
        for each, spent in taken.cpu.items():
            spent.append((after[each] - before[each]) * 1000 / count)
        batches = [progress["durationMs"] for progress in query.recentProgress if progress["numInputRows"]]
        for phase, durations in taken.phases.items():
            durations += [float(each.get(phase, 0)) for each in batches[-count:]]
    finally:
        query.stop()
        consumer.close()


def _wait_for(consumer: Any, query: Any, value: bytes) -> None:
    """Until the consumer has this record. Raises TimeoutError."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and not message.error() and message.value() == value:
            return
    raise TimeoutError(f"record {value!r} is not visible after {TIMEOUT_SECONDS:.0f} s: {query.exception()}")


def _cpu_seconds(jvm_pid: int, broker_pid: int) -> dict[str, float]:
    """Used so far by the JVM, by the Python processes that it has started, and by the broker."""
    jvm = psutil.Process(jvm_pid)
    own = jvm.cpu_times()
    python = own.children_user + own.children_system
    for each in jvm.children(recursive=True):
        try:
            python += sum(each.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue  # it has ended since, and its parent's children's times have it from now on
    broker = psutil.Process(broker_pid).cpu_times()
    return {"JVM": own.user + own.system, "Python": python, "broker": broker.user + broker.system}


async def _create(address: str, *topics: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS) for topic in topics])
