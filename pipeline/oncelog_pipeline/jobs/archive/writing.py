"""Writes topics to partitioned Parquet, in Spark: the committed records between offsets that are fixed before reading
begins.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from oncelog_pipeline.jobs.archive.manifest import COLUMNS, DATE, FOLDER, Archived
from oncelog_pipeline.jobs.archive.topics import described
from oncelog_pipeline.options.client_settings import SERVERS

PLACE = ("topic", "partition")


def archive(
    spark: SparkSession, bootstrap_servers: str, topics: Sequence[str], path: str, *, by_date: bool = False
) -> list[Archived]:
    """Archive the named topics to the new directory `path`, and return the manifest. `path` must not exist yet. Raises
    KafkaError, and Spark's errors.
    """
    wanted = [replace(each, by_date=by_date) for each in asyncio.run(described(bootstrap_servers, topics))]
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    records = _records(spark, bootstrap_servers, wanted)
    if by_date:
        records = records.withColumn(DATE, F.to_date("timestamp"))
    folders = (*PLACE, DATE) if by_date else PLACE
    records.write.mode("errorifexists").partitionBy(*folders).parquet(path)
    counted = _counted(spark, path, wanted)
    lines = spark.createDataFrame([(each.as_json(),) for each in counted], "value string")
    lines.coalesce(1).write.mode("errorifexists").text(f"{path}/{FOLDER}")
    return counted


def stored(spark: SparkSession, path: str) -> DataFrame:
    """Return the Parquet files of an archive as a table. Columns that come from folder names get fixed types, because
    Spark would otherwise guess the types.
    """
    schema = f"{COLUMNS}, topic string, partition int, {DATE} string"
    return spark.read.schema(schema).parquet(path)


def _records(spark: SparkSession, bootstrap_servers: str, wanted: Sequence[Archived]) -> DataFrame:
    def bounds(which: int) -> str:
        return json.dumps({each.topic: {part: ends[which] for part, ends in each.offsets.items()} for each in wanted})

    options = {
        SERVERS: bootstrap_servers,
        "subscribe": ",".join(each.topic for each in wanted),
        "startingOffsets": bounds(0),
        "endingOffsets": bounds(1),
        "includeHeaders": "true",
    }
    return spark.read.format("oncelog").options(**options).load()


def _counted(spark: SparkSession, path: str, wanted: Sequence[Archived]) -> list[Archived]:
    """Return the manifest with record counts that are read back from the written files. The Spark driver receives one
    row for each partition.
    """
    per_partition = (
        stored(spark, path)
        .groupBy(*PLACE)
        .agg(F.count("*").alias("records"), (F.unix_micros(F.min("timestamp")) / 1000).cast("bigint").alias("oldest"))
        .collect()
    )
    found = []
    for each in wanted:
        mine = [row for row in per_partition if row.topic == each.topic]
        oldest = [row.oldest for row in mine if row.oldest is not None]
        counts = {str(row.partition): row.records for row in mine}
        found.append(replace(each, records=counts, oldest_ms=min(oldest, default=None)))
    return found
