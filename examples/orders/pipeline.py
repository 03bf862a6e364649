"""The Spark program: two queries read the topic "orders", and each query writes each of its rows once.

    python -m examples.orders.pipeline --master 'local[2,3]'                     until it is stopped or killed
    python -m examples.orders.pipeline --master 'local[2,3]' --available-now     until it has read all that is there
    python -m examples.orders.pipeline --master spark://127.0.0.1:7077           the same on a cluster

You can kill the program with -9 at any time and start it again: it continues where it ended. Without --master the
program uses the master that spark-submit sets.

- The query `revenue` joins orders with their customers, and sums them by country in windows of a minute. A window is
  written once, when the newest order is two minutes later than its end. Spark drops and counts orders that are later.
- The query `dead-letters` writes records that are not orders, with headers for the reason and for topic, partition and
  offset.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from examples.orders import order as fields
from examples.orders.order import (
    AVRO,
    CUSTOMERS_FILE,
    DEAD_LETTERS,
    DEFAULT_SERVERS,
    FORMATS,
    JSON,
    LATENESS_SECONDS,
    ORDERS,
    REVENUE,
    SCHEMA,
    SERVERS_VARIABLE,
    UNKNOWN_COUNTRY,
    WINDOW_SECONDS,
    read_customers,
)
from examples.orders.topics import create_topics
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming import StreamingQuery

from oncelog_pipeline.spark.environment import set_environment
from oncelog_pipeline.values.columns import decoded
from oncelog_pipeline.values.format import ValueFormat

FORMAT = "oncelog"
VALUES: Final = {
    JSON: ValueFormat(JSON, "order STRING, customer STRING, cents BIGINT, at TIMESTAMP", fails_if_invalid=False),
    AVRO: ValueFormat(AVRO, SCHEMA, fails_if_invalid=False),
}
"""A value that cannot be parsed as an order becomes null, and its record becomes a dead letter."""
SESSION: Final = {
    # Each shuffle partition is a task with its own transaction in each batch, so Spark's default of 200 would be too
    # many. A checkpoint keeps the number of partitions with which it began.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
}
HEADERS: Final = "array<struct<key: string, value: binary>>"
SECOND_SHAPE: Final = "yyyy-MM-dd'T'HH:mm:ss'Z'"


@dataclass(frozen=True)
class Settings:
    """`directory` contains the checkpoints; all machines of a cluster must be able to access it. Only the driver reads
    the file `customers`. `batch` is the maximum number of records of one batch.
    """

    servers: str
    directory: str
    customers: Path = CUSTOMERS_FILE
    form: str = JSON
    batch: int = 2_000
    available_now: bool = False


# The next functions define what the queries compute.


def read_orders(spark: SparkSession, settings: Settings) -> DataFrame:
    """Return the records of the topic with the columns `order` and `reason`; the reason is null if the record is an
    order.
    """
    options = {
        "kafka.bootstrap.servers": settings.servers,
        "subscribe": ORDERS,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(settings.batch),
    }
    records = spark.readStream.format(FORMAT).options(**options).load()
    read = decoded(records.withColumn("order", F.col("value")), "order", VALUES[settings.form])
    return read.withColumn("reason", why_not())


def why_not() -> Column:
    """Return a column with the reason why a record is not an order, the same as `read_order` returns; null for an
    order. The reason depends only on the value.
    """
    is_missing = F.col("order").isNull()
    for name in fields.Order.__slots__:
        is_missing |= F.col(f"order.{name}").isNull()
    return (
        F.when(F.col("value").isNull(), fields.NO_VALUE)
        .when(is_missing, fields.NO_ORDER)
        .when(F.col("order.cents") < 0, fields.NEGATIVE)
    )


def revenue(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """Return one record for each closed window and country."""
    window = F.window("at", f"{WINDOW_SECONDS} seconds")
    windows = (
        orders.where("reason IS NULL")
        .select("order.*")
        .withWatermark("at", f"{LATENESS_SECONDS} seconds")
        .join(F.broadcast(customers), "customer", "left")
        .groupBy(window, F.coalesce("country", F.lit(UNKNOWN_COUNTRY)).alias("country"))
        .agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))
    )
    start, end = (F.date_format(f"window.{name}", SECOND_SHAPE) for name in ("start", "end"))
    result = F.struct(start.alias("from"), end.alias("to"), "country", "orders", "cents")
    return windows.select(F.concat_ws(" ", start, "country").alias("key"), F.to_json(result).alias("value"))


def dead_letters(orders: DataFrame) -> DataFrame:
    """Return the records that are not orders, with headers for the reason, topic, partition and offset."""
    places = {
        fields.REASON: F.col("reason"),
        fields.TOPIC: F.col("topic"),
        fields.PARTITION: F.col("partition").cast("string"),
        fields.OFFSET: F.col("offset").cast("string"),
    }
    added = F.array(*(_header(name, text) for name, text in places.items()))
    own = F.coalesce("headers", F.array().cast(HEADERS))
    return orders.where("reason IS NOT NULL").select("key", "value", F.concat(own, added).alias("headers"))


def _header(name: str, text: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value"))


# The next functions start the queries and report their progress.


def start(spark: SparkSession, settings: Settings) -> list[StreamingQuery]:
    """Start both queries. Raises ValueError if the file of customers contains a customer twice."""
    for name, setting in SESSION.items():
        spark.conf.set(name, setting)
    # Read the table once: if the table changed while a query runs, a replayed batch would have other rows, which the
    # sink refuses.
    rows = list(read_customers(settings.customers).items())
    customers = spark.createDataFrame(rows, "customer STRING, country STRING")
    # Each query has its own DataFrame of orders. If queries shared a DataFrame, they would share parts of their plans,
    # which Spark changes while it sends them to tasks; this fails occasionally ("Task not serializable: Illegal size of
    # collection").
    return [
        write(revenue(read_orders(spark, settings), customers), "revenue", REVENUE, settings),
        write(dead_letters(read_orders(spark, settings)), "dead-letters", DEAD_LETTERS, settings),
    ]


def write(records: DataFrame, name: str, topic: str, settings: Settings) -> StreamingQuery:
    """Start a query that writes these records to the topic, with its own checkpoint directory."""
    options = {
        "kafka.bootstrap.servers": settings.servers,
        "topic": topic,
        "checkpointLocation": os.path.join(settings.directory, name),
    }
    writer = records.writeStream.queryName(name).format(FORMAT).options(**options)
    return (writer.trigger(availableNow=True) if settings.available_now else writer).start()


def follow(queries: Sequence[StreamingQuery]) -> Iterator[str]:
    """Yield a line for each batch, until all queries have ended. Raises the error with which a query has ended."""
    told = {query.name: -1 for query in queries}
    is_over = False
    while not is_over:
        is_over = not any(query.isActive for query in queries)
        for query in queries:
            for progress in news(query, told[query.name]):
                told[query.name] = progress["batchId"]
                yield line(progress)
            if not query.isActive:
                query.awaitTermination()  # if the query has ended with an error, this call raises it
        for query in [each for each in queries if each.isActive][:1]:
            query.awaitTermination(1)


def news(query: StreamingQuery, told: int) -> list[Mapping[str, Any]]:
    """Return the progress of the batches after number `told`. The progress of an idle query is skipped, because it has
    the number of the next batch, and no phase addBatch.
    """
    last = query.lastProgress
    if (
        last is None
        or last["batchId"] <= told
        or (last["batchId"] == told + 1 and "addBatch" not in last["durationMs"])
    ):
        return []  # use the last progress, because `recentProgress` would fetch all reports that Spark has stored
    return [each for each in query.recentProgress if each["batchId"] > told and "addBatch" in each["durationMs"]]


def line(progress: Mapping[str, Any]) -> str:
    """Describe a batch in one line. `late` is the number of rows of closed windows, which Spark has dropped."""
    text = f"{progress['name']}: batch {progress['batchId']}, {progress['numInputRows']:,} records"
    states = progress["stateOperators"]
    if not states:
        return text
    closed, open_, late = (
        sum(state[name] for state in states) for name in ("numRowsRemoved", "numRowsTotal", "numRowsDroppedByWatermark")
    )
    return f"{text}, {closed:,} windows closed, {open_:,} open, {late:,} late"


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--master")
    arguments.add_argument("--servers", default=os.environ.get(SERVERS_VARIABLE, DEFAULT_SERVERS))
    arguments.add_argument("--directory", default="orders-pipeline")
    arguments.add_argument("--customers", type=Path, default=CUSTOMERS_FILE)
    arguments.add_argument("--format", choices=FORMATS, default=JSON)
    arguments.add_argument("--batch", type=int, default=Settings.batch)
    arguments.add_argument("--available-now", action="store_true")
    return arguments


def main() -> None:
    options = parser().parse_args()
    asyncio.run(create_topics(options.servers))
    set_environment()
    builder = SparkSession.builder.appName("orders").config("spark.ui.showConsoleProgress", "false")
    spark = (builder.master(options.master) if options.master else builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    directory = options.directory if "://" in options.directory else os.path.abspath(options.directory)
    settings = Settings(
        options.servers, directory, options.customers, options.format, options.batch, options.available_now
    )
    print(
        f"the driver is process {spark.sparkContext._gateway.proc.pid}: kill -9 it, then start this again", flush=True
    )
    try:
        for text in follow(start(spark, settings)):
            print(text, flush=True)
    except Exception as error:
        # Print the message without the query plan that Spark appends.
        reason = str(error).partition("=== Streaming Query ===")[0]
        sys.exit(f"the pipeline has ended; started again it goes on where it was. {reason.strip()}")
    finally:
        spark.stop()
    print("everything is written")


if __name__ == "__main__":
    main()
