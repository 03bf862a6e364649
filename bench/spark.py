"""Measures the time of one small batch of a stream with Spark, by the kind of sink.

Separate parts measure the source (`spark_source.py`), the sink (`spark_sink.py`) and the latency (`spark_latency.py`).
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, Final

from spark_turns import session
from table import Add

from oncelog import Admin, NewTopic, Producer

ROUNDS: Final = 3
PARTITIONS: Final = 2


def measure(add: Add, scale: int) -> None:
    with session() as found:
        if found is None:
            return
        _micro_batches(add, found.spark, found.address, found.directory, 12 // scale + 2)


def _micro_batches(add: Add, spark: Any, address: str, directory: str, count: int) -> None:
    """Measure how long one small batch takes, from trigger to trigger; the lowest median of several rounds in turns
    counts.
    """
    topic = "small"
    asyncio.run(_fill(address, topic, 100, 20 * count))
    asyncio.run(_create(address, "small-out"))

    def run(name: str, **options: str) -> float:
        table = spark.readStream.format("oncelog").options(
            **{
                "kafka.bootstrap.servers": address,
                "subscribe": topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "20",
            }
        )
        given = {"checkpointLocation": f"{directory}/{uuid.uuid4().hex}"} | options
        writer = table.load().select("value").writeStream.format(name).options(**given).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        taken = sorted(each["batchDuration"] for each in query.recentProgress if each["numInputRows"])
        return float(taken[len(taken) // 2])

    topic_options = {"kafka.bootstrap.servers": address, "topic": "small-out"}
    ways = {
        "no sink": lambda: run("noop"),
        "a sink in Python that does nothing": lambda: run("python-noop"),
        "at least once": lambda: run("oncelog", delivery="at-least-once", **topic_options),
        "exactly once": lambda: run("oncelog", **topic_options),
    }
    best = dict.fromkeys(ways, float("inf"))
    for turn in range(ROUNDS + 1):  # the first round is a warm-up
        for name, do in ways.items():
            taken = do()
            if turn:
                best[name] = min(best[name], taken)
    for name, taken in best.items():
        add(f"one micro-batch of 20 rows: {name}", taken, "ms")
    more = best["exactly once"] - best["a sink in Python that does nothing"]
    add("one micro-batch of 20 rows: what exactly once adds to the Python API", more, "ms", at_most=150)


async def _create(address: str, topic: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS)])


async def _fill(address: str, topic: str, size: int, rows: int) -> None:
    await _create(address, topic)
    async with Producer(address, batch_size=100_000) as producer:
        for partition in range(PARTITIONS):
            for first in range(0, rows // PARTITIONS, 10_000):
                count = min(10_000, rows // PARTITIONS - first)
                await producer.send_columns(topic, partition, [b"x" * size] * count)
