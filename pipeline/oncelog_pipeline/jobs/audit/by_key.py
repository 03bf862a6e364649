"""Implements the audit by key, in Spark: checks, for each key and in the order of offsets, the sequence numbers that
the application has put into its records.

This audit reads committed records only. The audit by key also finds records that the application sent twice, which no
broker can detect.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from oncelog_pipeline.jobs.audit.chains import Kind
from oncelog_pipeline.jobs.audit.counting import verdict_of
from oncelog_pipeline.jobs.audit.topics import Extent
from oncelog_pipeline.jobs.audit.verdict import Audited, Verdict
from oncelog_pipeline.options.client_settings import SERVERS

DISORDER: Final = "disorder"
UNNUMBERED: Final = "unnumbered"


def sequence_in_json(path: str) -> Column:
    """Return a Spark column with the sequence number of each record, which the record's JSON value has at this path,
    such as $.seq.
    """
    return F.get_json_object(F.col("value").cast("string"), path).try_cast("bigint")


def sequence_in_header(name: str) -> Column:
    """Return a Spark column with the sequence number of each record, which is the text of the record's last header with
    this name.
    """
    values = F.filter(F.col("headers"), lambda header: header["key"] == name)
    return F.element_at(values, -1)["value"].cast("string").try_cast("bigint")


def audit(
    spark: SparkSession, bootstrap_servers: str, there: Extent, sequence: Column, first: int | None = None
) -> Verdict:
    """Audit the offset ranges in `there` by key. The first record of each key must have the number `first`; a `first`
    of None allows any number. Raises Spark's errors.
    """
    topics = sorted({partition.topic for partition in there.latest})
    options = {SERVERS: bootstrap_servers, "subscribe": ",".join(topics), "includeHeaders": "true"}
    read = spark.read.format("oncelog").options(**options).load()
    key = F.coalesce(F.col("key").cast("string"), F.lit("(no key)"))
    records = read.select("topic", "partition", "offset", key.alias("who"), sequence.alias("number"))
    faults = _faults(records, first).persist()
    totals = records.groupBy("topic").agg(
        F.count("*").alias("records"), F.count("number").alias("judged"), F.approx_count_distinct("who").alias("keys")
    )
    found = {row.topic: row for row in totals.collect()}
    audited = [
        Audited(topic, found[topic].records, found[topic].judged, found[topic].keys)
        if topic in found
        else Audited(topic, 0, 0, 0)
        for topic in topics
    ]
    return verdict_of("key", audited, faults)


def _faults(records: DataFrame, first: int | None) -> DataFrame:
    """Return the faults, with one shuffle by key; the records of each key are sorted once by number and once by
    offset.
    """
    of_key = Window.partitionBy("topic", "who")
    by_number = of_key.orderBy("number", "partition", "offset")
    by_offset = Window.partitionBy("topic", "who", "partition").orderBy("offset")
    before = F.lag("number").over(by_number)
    step = F.col("number") - (F.coalesce(before, F.lit(first - 1)) if first is not None else before)
    marked = (
        records.where("number IS NOT NULL")
        .withColumn("before", before)
        .withColumn("step", step)
        .withColumn("earlier", F.lag("number").over(by_offset))
    )
    place = F.concat_ws(
        "", "topic", F.lit("-"), "partition", F.lit(", offset "), "offset", F.lit(", number "), "number"
    )
    kinds = F.array(
        F.when(F.col("step") > 1, F.struct(F.lit(Kind.GAP.value).alias("kind"), (F.col("step") - 1).alias("records"))),
        F.when(
            F.col("before") == F.col("number"),
            F.struct(F.lit(Kind.TWICE.value).alias("kind"), F.lit(1).alias("records")),
        ),
        F.when(F.col("earlier") > F.col("number"), F.struct(F.lit(DISORDER).alias("kind"), F.lit(1).alias("records"))),
    )
    found = marked.withColumn("fault", F.explode(kinds)).where("fault IS NOT NULL")
    numbered = found.select("fault.kind", "topic", "who", place.alias("place"), "fault.records")
    where = F.concat_ws("", "topic", F.lit("-"), "partition", F.lit(", offset "), "offset")
    unnumbered = records.where("number IS NULL").select(
        F.lit(UNNUMBERED).alias("kind"), "topic", "who", where.alias("place"), F.lit(1).cast("bigint").alias("records")
    )
    return numbered.unionAll(unnumbered)
