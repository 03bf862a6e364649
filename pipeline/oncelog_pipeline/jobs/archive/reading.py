"""Restores Parquet files to topics, in Spark: records keep their bytes, partitions and order.

Restored records get consecutive new offsets, because deleted, compacted and aborted records leave no gaps in the
restored topic.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from oncelog_pipeline.jobs.archive.manifest import (
    FOLDER,
    Archived,
    ArchiveError,
    archived_from_json,
    check_counts,
)
from oncelog_pipeline.jobs.archive.topics import make
from oncelog_pipeline.jobs.archive.writing import stored
from oncelog_pipeline.options.client_settings import SERVERS

RECORD: Final = ("key", "value", "headers", "timestamp", "partition")


def contents(spark: SparkSession, path: str) -> list[Archived]:
    """Return the manifest of the archive at `path`, after checking it against the Parquet files. Raises ArchiveError if
    the directory is not an archive, or the archive is incomplete or has lost records.
    """
    try:
        lines = spark.read.text(f"{path}/{FOLDER}").collect()
    except AnalysisException as error:
        raise ArchiveError(f"{path} is not an archive, or one whose writing was not finished: no {FOLDER}") from error
    found = [archived_from_json(row.value) for row in lines]
    if not any(each.total for each in found):
        return found
    counts = stored(spark, path).groupBy("topic", "partition").count().collect()
    for each in found:
        of_topic = {str(row.partition): row["count"] for row in counts if row.topic == each.topic}
        check_counts(each, of_topic, path)
    return found


def restore(
    spark: SparkSession,
    bootstrap_servers: str,
    path: str,
    topics: Sequence[str] = (),
    *,
    name: str | None = None,
    configs: Mapping[str, str] | None = None,
    delivery: str = "exactly-once",
) -> list[tuple[Archived, str]]:
    """Restore the named topics of an archive, or all of its topics; a single topic may get another `name`. Returns each
    archived topic with its restored name.

    Each topic is written atomically if the option `delivery` is exactly-once. Raises ArchiveError, KafkaError, and
    Spark's errors.
    """
    there = {each.topic: each for each in contents(spark, path)}
    for topic in topics:
        if topic not in there:
            raise ArchiveError(f"{path} has no topic {topic}; it has {', '.join(sorted(there))}")
    chosen = [there[topic] for topic in topics or sorted(there)]
    if name is not None and len(chosen) > 1:
        raise ArchiveError(f"{len(chosen)} topics cannot all be restored as {name}: name one of them")
    done = []
    for each in chosen:
        target = name or each.topic
        asyncio.run(make(bootstrap_servers, each, target, configs or {}))
        if each.total:
            _write(spark, bootstrap_servers, path, each, target, delivery)
        done.append((each, target))
    return done


def _write(
    spark: SparkSession, bootstrap_servers: str, path: str, archived: Archived, target: str, delivery: str
) -> None:
    """Write the records of a topic. Each partition is written by one task, which sorts the partition's records by
    offset, because the rows of the Parquet files have no guaranteed order.
    """
    # A new writeId for each run, so that the sink does not treat this run as a retry of an earlier run.
    write_id = f"restore-{uuid.uuid4().hex}"
    options = {SERVERS: bootstrap_servers, "topic": target, "delivery": delivery, "writeId": write_id}
    (
        stored(spark, path)
        .where(F.col("topic") == archived.topic)
        .repartition(archived.partitions, "partition")
        .sortWithinPartitions("partition", "offset")
        .select(*RECORD)
        .write.format("oncelog")
        .options(**options)
        .mode("append")
        .save()
    )
