"""A Spark stream from topic to topic that survives kill -9 of its driver, and writes each record once.

    python -m examples.spark_exactly_once fill     numbers into the topic "numbers", in random order
    python -m examples.spark_exactly_once run      the stream: each number and its square, to the topic "squares"
    python -m examples.spark_exactly_once check    is each number there once?

You can kill `run` with -9 at any time and start it again: it continues where it ended, and `check` finds no number
twice and none missing. With `run --delivery at-least-once` the check does find duplicates.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

from oncelog import Admin, Consumer, NewTopic, Producer, TopicPartition
from oncelog.errors import TopicAlreadyExists

SOURCE, TARGET = "numbers", "squares"
PARTITIONS = 4
BATCH = 5_000
"""The number of records in one batch. It is small, so that there are many batches in which the query can be killed."""


async def fill(servers: str, records: int, source: str = SOURCE, target: str = TARGET) -> None:
    async with Admin(servers) as admin:
        for topic in (source, target):
            try:
                await admin.create_topics([NewTopic(topic, PARTITIONS)])
            except TopicAlreadyExists:
                pass
    numbers = list(range(records))
    random.shuffle(numbers)
    async with Producer(servers) as producer:
        for number in numbers:
            await producer.send(source, b"%d" % number, partition=number % PARTITIONS)


def squares(
    spark: Any,
    servers: str,
    checkpoint: str,
    *,
    delivery: str = "exactly-once",
    source: str = SOURCE,
    target: str = TARGET,
) -> Any:
    """Start the query and return it. The query ends when it has read all present records."""
    numbers = (
        spark.readStream.format("oncelog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BATCH)
        .load()
    )
    return (
        numbers.selectExpr("cast(value as string) as key")
        .selectExpr("key", "concat(key, ' ', cast(key as bigint) * cast(key as bigint)) as value")
        .writeStream.format("oncelog")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("delivery", delivery)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


async def check(servers: str, records: int, target: str = TARGET) -> str:
    """Return a summary of the squares that a read_committed consumer finds."""
    partitions = [TopicPartition(target, index) for index in range(PARTITIONS)]
    seen: Counter[int] = Counter()
    async with Consumer(servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        for partition, end in ends.items():
            while await consumer.position(partition) < end:
                for found in (await consumer.poll(500)).values():
                    seen.update(int(record.key or b"-1") for record in found)
    twice = sum(1 for count in seen.values() if count > 1)
    missing = records - len(seen)
    return f"{len(seen):,} of {records:,} numbers: {twice:,} more than once, {missing:,} missing"


def run(servers: str, checkpoint: str, delivery: str) -> None:
    from pyspark.sql import SparkSession

    from oncelog_pipeline.spark.environment import set_environment

    set_environment()
    spark = SparkSession.builder.master("local[2]").appName("squares").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    pid = spark.sparkContext._gateway.proc.pid
    print(f"the driver is process {pid}: kill -9 {pid}, then start this again", flush=True)
    query = squares(spark, servers, checkpoint, delivery=delivery)
    seen = -1
    while not query.awaitTermination(1):
        progress = query.lastProgress
        if progress is not None and progress["batchId"] != seen:
            seen = progress["batchId"]
            print(f"batch {seen}: {progress['numInputRows']:,} records", flush=True)
    print("everything is written")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("step", choices=["fill", "run", "check"])
    arguments.add_argument("--servers", default="127.0.0.1:9092")
    arguments.add_argument("--records", type=int, default=200_000)
    arguments.add_argument("--checkpoint", default=str(Path("squares-checkpoint").absolute()))
    arguments.add_argument("--delivery", default="exactly-once")
    options = arguments.parse_args()
    if options.step == "fill":
        asyncio.run(fill(options.servers, options.records))
    elif options.step == "run":
        run(options.servers, options.checkpoint, options.delivery)
    else:
        print(asyncio.run(check(options.servers, options.records)))


if __name__ == "__main__":
    main()
