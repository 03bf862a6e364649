"""Measures how long one record takes through a streaming query, from topic to topic: from produced to visible.

A query copies records between topics of two partitions. A client produces one record, waits until a read_committed
consumer has seen the copy, pauses, and produces the next record. So each record is a separate micro-batch, and the
query is idle before it. oncelog's connector and Spark's own connector take turns in one session. The phases are those
of Spark's progress, in milliseconds. The CPU milliseconds for each record are those of the JVM, of all its descendant
processes (Python, and the processes that Hadoop's local file system starts for each file of the checkpoint), and of the
broker. The last rows of the table are the results of an idle query.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import psutil
from broker_process import BrokerProcess
from maven import Unavailable
from spark_connector import connector
from table import Add

from oncelog import Admin, NewTopic

ROOT: Final = Path(__file__).parent.parent
PARTITIONS: Final = 2
IDLE_PARTITIONS: Final = 1000
RECORDS: Final = 16
"""The number of records in each turn."""
TURNS: Final = 4
PAUSE_SECONDS: Final = 0.2
WARM_UP: Final = 8
"""The first records of each turn, this many, do not count: the query's processes are starting, and the JVM is
compiling.
"""
TIMEOUT_SECONDS: Final = 60.0
PHASES: Final = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets", "triggerExecution")
READ_COMMITTED: Final = {"kafka.isolation.level": "read_committed"}


@dataclass(frozen=True)
class Way:
    """A query to measure: format and options of the source and of the sink."""

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
    """The results of one kind of sink, all in milliseconds."""

    visible: list[float] = field(default_factory=list)
    phases: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in PHASES})
    cpu: dict[str, list[float]] = field(default_factory=lambda: {"JVM": [], "Python": [], "broker": []})
    """The CPU milliseconds for each record; each turn adds one number."""


def measure(add: Add, scale: int) -> None:
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        print("the latency of Spark is skipped: make pipeline", file=sys.stderr)
        return
    sys.path.insert(0, str(ROOT / "tests" / "spark"))
    from spark_session import started

    jars = _connector(version)
    settings = {"spark.jars": ",".join(map(str, jars))} if jars else {}
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory) / "data") as broker,
        started(settings, "local[2]") as spark,
    ):
        ways = (*OURS, *(PEER if jars else ()))
        in_turns(add, spark, broker, directory, ways, turns=max(1, TURNS // scale))
        idle(add, spark, broker, IDLE_PARTITIONS // scale, 30 // scale)


def _connector(version: str) -> list[Path]:
    """Return the jars of Spark's connector of the same minor version, which its stream source requires; empty if they
    are not available.
    """
    try:
        jars = connector()
    except Unavailable as error:
        print(f"left out: {error}", file=sys.stderr)
        return []
    minor = version.rpartition(".")[0]
    if f"-{minor}." not in jars[0].name:
        print(f"left out: {jars[0].name}, as it cannot be the source of a stream in PySpark {version}", file=sys.stderr)
        return []
    return jars


def in_turns(add: Add, spark: Any, broker: BrokerProcess, directory: str, ways: Sequence[Way], *, turns: int) -> None:
    taken = {way.name: Taken() for way in ways}
    for _ in range(turns):
        for way in ways:
            _turn(spark, broker, directory, way, taken[way.name], RECORDS)
    for way in ways:
        found = taken[way.name]
        what = f"one record, produced to visible: {way.name}"
        add(what, median(found.visible), "ms", at_most=way.at_most)
        add(f"{what}, 90 %", quantiles(found.visible, n=10)[-1], "ms")
        for name, values in found.phases.items():
            add(f"{what}, {name}", median(values), "ms")
        for name, values in found.cpu.items():
            add(f"{what}, CPU of {name}", median(values), "ms/record")


def idle(add: Add, spark: Any, broker: BrokerProcess, partitions: int, seconds: float) -> None:
    """Measure the CPU of a query without new records."""
    asyncio.run(_create(broker.address, "idle", partitions=partitions))
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": "idle"}
    query = spark.readStream.format("oncelog").options(**options).load().writeStream.format("noop").start()
    try:
        # Wait until the query has started, and the pauses between its requests to the brokers have grown.
        time.sleep(10)
        before, began = _cpu_seconds(_pid(spark), broker.pid), time.perf_counter()
        time.sleep(seconds)
        after, passed = _cpu_seconds(_pid(spark), broker.pid), time.perf_counter() - began
    finally:
        query.stop()
    for name, most in (("JVM", None), ("Python", 2), ("broker", None)):
        share = (after[name] - before[name]) / passed * 100
        add(f"idle query, {partitions:,} source partitions: CPU of {name}", share, "% of a core", at_most=most)


def _pid(spark: Any) -> int:
    """Return the process id of the JVM."""
    pid: int = spark.sparkContext._gateway.proc.pid
    return pid


def _turn(spark: Any, broker: BrokerProcess, directory: str, way: Way, taken: Taken, count: int) -> None:
    """Run one query from its start to its end. Raises TimeoutError if a record does not arrive."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    name = uuid.uuid4().hex
    source, target = f"latency-{name}", f"latency-{name}-copy"
    asyncio.run(_create(broker.address, source, target))
    servers = {"kafka.bootstrap.servers": broker.address}
    given = {"subscribe": source, "startingOffsets": "earliest"} | servers | dict(way.source_options)
    table = spark.readStream.format(way.format).options(**given).load().select("key", "value")
    writer = table.writeStream.format(way.format).options(**(servers | {"topic": target} | dict(way.sink_options)))
    query = writer.option("checkpointLocation", os.path.join(directory, name)).start()
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    settings = {"bootstrap.servers": broker.address, "group.id": name, "isolation.level": "read_committed"}
    consumer = Consumer(settings | {"fetch.wait.max.ms": 20, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(target, partition, 0) for partition in range(PARTITIONS)])
    try:
        before: dict[str, float] = {}
        for number in range(WARM_UP + count):
            if number == WARM_UP:
                before = _cpu_seconds(_pid(spark), broker.pid)
            produced = time.perf_counter()
            producer.produce(source, b"%d" % number, partition=number % PARTITIONS)
            producer.flush()
            _wait_for(consumer, query, b"%d" % number)
            if number >= WARM_UP:
                taken.visible.append((time.perf_counter() - produced) * 1000)
            time.sleep(PAUSE_SECONDS)
        after = _cpu_seconds(_pid(spark), broker.pid)
        for each, spent in taken.cpu.items():
            spent.append((after[each] - before[each]) * 1000 / count)
        batches = [progress["durationMs"] for progress in query.recentProgress if progress["numInputRows"]]
        for phase, durations in taken.phases.items():
            durations += [float(each.get(phase, 0)) for each in batches[-count:]]
    finally:
        query.stop()
        consumer.close()


def _wait_for(consumer: Any, query: Any, value: bytes) -> None:
    """Wait until the consumer has this record. Raises TimeoutError."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and not message.error() and message.value() == value:
            return
    raise TimeoutError(f"record {value!r} is not visible after {TIMEOUT_SECONDS:.0f} s: {query.exception()}")


def _cpu_seconds(jvm_pid: int, broker_pid: int) -> dict[str, float]:
    """Return the CPU seconds used so far by the JVM, by the processes that it has started, and by the broker."""
    jvm = psutil.Process(jvm_pid)
    own = jvm.cpu_times()
    python = own.children_user + own.children_system
    for each in jvm.children(recursive=True):
        try:
            python += sum(each.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue  # the process has ended, and the time of its parent now includes the time of this process
    broker = psutil.Process(broker_pid).cpu_times()
    return {"JVM": own.user + own.system, "Python": python, "broker": broker.user + broker.system}


async def _create(address: str, *topics: str, partitions: int = PARTITIONS) -> None:
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, partitions) for topic in topics])
