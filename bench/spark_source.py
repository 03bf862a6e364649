"""Compares the source with Spark's own connector, in turns: rows per CPU second of the JVM and all Python processes.

Two kinds of query are measured, with records of 100 B and 1 KB, and several numbers of partitions:

- a batch read (`spark.read`) into `noop`, which spends most of its time on the reading itself;
- a short stream (`trigger(availableNow=True)`), which spends a large part of its time on starting Python processes.

A third source, "nothing, in Python", takes turns with the two: it is written in Python and repeats an Arrow batch made
beforehand. Its CPU time is the cost of Spark's API for sources in Python. Its ratio to Spark's connector is the highest
ratio that a source in Python can reach.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from spark_turns import CONNECTOR, Session, rates, session, tree_of
from table import Add

from oncelog import Admin, NewTopic, Producer

ROUNDS: Final = 3
ROWS: Final = {100: 300_000, 1000: 80_000}
"""Size of a record in bytes -> number of rows."""
BATCH_PARTITIONS: Final = (1, 4)
STREAM_PARTITIONS: Final = (1, 4, 16)
BATCH_GOALS: Final = {100: 2.0, 1000: 1.5}
"""The required ratio to Spark's connector, by the size of a record."""
STREAM_GOAL: Final = 1.0
WARM_UPS: Final = 2
"""The number of warm-up rounds: the JVM compiles hot code, so the first rounds of either side are slower."""
NOTHING: Final = "nothing, in Python"


class Load(NamedTuple):
    """The input of a query: a topic, or rows of a source that does nothing. `size` is the size of a value in bytes."""

    topic: str
    rows: int
    size: int
    partitions: int


def measure(add: Add, scale: int) -> None:
    with session() as found:
        if found is not None:
            _measure(add, found, scale)


def _measure(add: Add, session: Session, scale: int) -> None:
    address = session.address
    for size, all_rows in ROWS.items():
        rows = all_rows // scale
        for partitions in STREAM_PARTITIONS:
            asyncio.run(
                _fill(address, _topic(size, partitions), rows, partitions, lambda number, size=size: b"x" * size)
            )
        target = 300_000 if size == 100 else None
        worker = _worker(address, _topic(size, 1))
        add(f"source, {size} B, the Python worker alone", worker, "rows/CPU s", at_least=target)
        for partitions in BATCH_PARTITIONS:
            found = _rates(session, _batch_read, Load(_topic(size, partitions), rows, size, partitions))
            _add(add, f"batch read, {size} B, {_counted(partitions)}", found, BATCH_GOALS[size])
        for partitions in STREAM_PARTITIONS:
            found = _rates(session, _short_stream, Load(_topic(size, partitions), rows, size, partitions))
            _add(add, f"short AvailableNow query, {size} B, {_counted(partitions)}", found, STREAM_GOAL)
    rows = ROWS[100] // scale
    asyncio.run(_fill(address, "varying", rows, BATCH_PARTITIONS[-1], lambda number: b"x" * (60 + number * 7919 % 80)))
    what = f"batch read, values of 60 to 139 B, {_counted(BATCH_PARTITIONS[-1])}"
    load = Load("varying", rows, 100, BATCH_PARTITIONS[-1])
    _add(add, what, _rates(session, _batch_read, load), None)


def _rates(
    session: Session, read: Callable[[Session, str, Mapping[str, str]], Callable[[], None]], load: Load
) -> dict[str, float]:
    topic = _options(session.address, load.topic)
    ways = {
        NOTHING: read(session, "python-noop", {name: str(value) for name, value in load._asdict().items()}),
        "oncelog": read(session, "oncelog", topic),
        **({CONNECTOR: read(session, "kafka", topic)} if session.has_peer else {}),
    }
    return rates(tree_of(session.spark), ways, load.rows, warm_ups=WARM_UPS)


def _topic(size: int, partitions: int) -> str:
    return f"source-{size}-{partitions}"


def _counted(partitions: int) -> str:
    return f"{partitions} partition{'s' if partitions > 1 else ''}"


def _add(add: Add, what: str, found: dict[str, float], goal: float | None) -> None:
    for who, rate in found.items():
        add(f"{what}: {who}", rate, "rows/CPU s")
    if CONNECTOR in found:
        add(f"{what}: {NOTHING}, to {CONNECTOR}", found[NOTHING] / found[CONNECTOR], "ratio")
        add(f"{what}, to {CONNECTOR}", found["oncelog"] / found[CONNECTOR], "ratio", at_least=goal)


def _options(address: str, topic: str) -> dict[str, str]:
    """Spark's connector must also read committed records, as oncelog's source does by default."""
    return {
        "subscribe": topic,
        "kafka.bootstrap.servers": address,
        "kafka.isolation.level": "read_committed",
        "startingOffsets": "earliest",
    }


def _batch_read(session: Session, name: str, options: Mapping[str, str]) -> Callable[[], None]:
    def read() -> None:
        table = session.spark.read.format(name).options(**options).load()
        table.write.format("noop").mode("overwrite").save()

    return read


def _short_stream(session: Session, name: str, options: Mapping[str, str]) -> Callable[[], None]:
    def read() -> None:
        table = session.spark.readStream.format(name).options(**options).load()
        checkpoint = f"{session.directory}/{uuid.uuid4().hex}"
        writer = table.writeStream.format("noop").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()

    return read


def _worker(address: str, topic: str) -> float:
    """Measure the Python part of a task without Spark, from the broker to Arrow batches. Returns the rows per CPU
    second of the best round.
    """
    from oncelog_pipeline.spark.data_source import OncelogDataSource

    reader: Any = OncelogDataSource({"kafka.bootstrap.servers": address, "subscribe": topic}).reader(None)  # type: ignore[arg-type]
    best = 0.0
    for _ in range(ROUNDS + 1):  # the first round imports modules
        before = time.process_time()
        rows = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
        best = max(best, rows / (time.process_time() - before))
    return best


async def _fill(address: str, topic: str, rows: int, partitions: int, value: Callable[[int], bytes]) -> None:
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, partitions)])
    async with Producer(address, batch_size=100_000) as producer:
        for partition in range(partitions):
            for first in range(0, rows // partitions, 10_000):
                numbers = range(first, min(first + 10_000, rows // partitions))
                await producer.send_columns(topic, partition, list(map(value, numbers)))
