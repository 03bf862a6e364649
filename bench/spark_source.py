"""The source beside Spark's own connector: rows per CPU second of the JVM and all Python processes, in turns.

Two kinds of query, of records of 100 B and 1 KB, over several numbers of partitions:

- a batch read (`spark.read`) into `noop`, of which the reading itself is most;
- a short stream (`trigger(availableNow=True)`), of which the start of Python processes is a large part.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

from spark_turns import CONNECTOR, rates, tree_of
from table import Add

from oncelog import Admin, NewTopic, Producer

ROUNDS: Final = 3
ROWS: Final = {100: 300_000, 1000: 80_000}
"""By the size of a record in bytes."""
BATCH_PARTITIONS: Final = (1, 4)
STREAM_PARTITIONS: Final = (1, 4, 16)
BATCH_GOALS: Final = {100: 2.0, 1000: 1.5}
"""Ratio to Spark's connector, by the size of a record."""
STREAM_GOAL: Final = 1.0
WARM_UPS: Final = 2
"""The JVM compiles what it runs often: the first rounds of either side are slower."""


def measure(add: Add, spark: Any, address: str, directory: str, scale: int, *, has_peer: bool) -> None:
    """`has_peer`: whether the session has Spark's connector. Checkpoints are made in `directory`."""
    tree = tree_of(spark)
    names = {"oncelog": "oncelog", **({CONNECTOR: "kafka"} if has_peer else {})}
    for size, all_rows in ROWS.items():
        rows = all_rows // scale
        for partitions in STREAM_PARTITIONS:
            asyncio.run(_fill(address, _topic(size, partitions), size, rows, partitions))
        target = 300_000 if size == 100 else None
        worker = _worker(address, _topic(size, 1))
        add(f"source, {size} B, the Python worker alone", worker, "rows/CPU s", at_least=target)
        for partitions in BATCH_PARTITIONS:
            ways = {who: _batch_read(spark, name, address, size, partitions) for who, name in names.items()}
            what = f"batch read, {size} B, {_counted(partitions)}"
            _add(add, what, rates(tree, ways, rows, warm_ups=WARM_UPS), BATCH_GOALS[size])
        for partitions in STREAM_PARTITIONS:
            ways = {
                who: _short_stream(spark, name, address, directory, size, partitions) for who, name in names.items()
            }
            what = f"short AvailableNow query, {size} B, {_counted(partitions)}"
            _add(add, what, rates(tree, ways, rows, warm_ups=WARM_UPS), STREAM_GOAL)


def _topic(size: int, partitions: int) -> str:
    return f"source-{size}-{partitions}"


def _counted(partitions: int) -> str:
    return f"{partitions} partition{'s' if partitions > 1 else ''}"


def _add(add: Add, what: str, found: dict[str, float], goal: float) -> None:
    for who, rate in found.items():
        add(f"{what}: {who}", rate, "rows/CPU s")
    if CONNECTOR in found:
        add(f"{what}, to {CONNECTOR}", found["oncelog"] / found[CONNECTOR], "ratio", at_least=goal)


def _options(address: str, size: int, partitions: int) -> dict[str, str]:
    """The peer reads what is committed, too, as ours does by default."""
    return {
        "subscribe": _topic(size, partitions),
        "kafka.bootstrap.servers": address,
        "kafka.isolation.level": "read_committed",
        "startingOffsets": "earliest",
    }


def _batch_read(spark: Any, name: str, address: str, size: int, partitions: int) -> Callable[[], None]:
    def read() -> None:
        table = spark.read.format(name).options(**_options(address, size, partitions)).load()
        table.write.format("noop").mode("overwrite").save()

    return read


def _short_stream(
    spark: Any, name: str, address: str, directory: str, size: int, partitions: int
) -> Callable[[], None]:
    def read() -> None:
        table = spark.readStream.format(name).options(**_options(address, size, partitions)).load()
        writer = table.writeStream.format("noop").option("checkpointLocation", f"{directory}/{uuid.uuid4().hex}")
        writer.trigger(availableNow=True).start().awaitTermination()

    return read


def _worker(address: str, topic: str) -> float:
    """What a task does in Python, without Spark: from the broker to Arrow batches. The best of three rounds."""
    from oncelog_pipeline.spark.data_source import OncelogDataSource

    reader: Any = OncelogDataSource({"kafka.bootstrap.servers": address, "subscribe": topic}).reader(None)  # type: ignore[arg-type]
    best = 0.0
    for _ in range(ROUNDS + 1):  # the first imports what it needs
        before = time.process_time()
        rows = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
        best = max(best, rows / (time.process_time() - before))
    return best


async def _fill(address: str, topic: str, size: int, rows: int, partitions: int) -> None:
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, partitions)])
    async with Producer(address, batch_size=100_000) as producer:
        for partition in range(partitions):
            for first in range(0, rows // partitions, 10_000):
                count = min(10_000, rows // partitions - first)
                await producer.send_columns(topic, partition, [b"x" * size] * count)
