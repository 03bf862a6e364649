"""Implements the audit by producer, in Spark: each task reads ranges of offsets as chains of batches, and the chains
are then checked for each producer.

Tasks read only batch headers, also those of aborted batches, and Spark shuffles only chains. For a topic without
faults, each producer has one chain for each range, however large the topic is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from oncelog_pipeline.jobs.audit.chain_reading import read_chains
from oncelog_pipeline.jobs.audit.chains import NO_PRODUCER, Chain, judged
from oncelog_pipeline.jobs.audit.counting import verdict_of
from oncelog_pipeline.jobs.audit.topics import Extent
from oncelog_pipeline.jobs.audit.verdict import Audited, Verdict
from oncelog_pipeline.source.ranges import OffsetRange, cut

RANGES_PER_CORE: Final = 2
PLACE: Final = (pa.field("topic", pa.string()), pa.field("partition", pa.int32()))
CHAIN: Final = pa.schema([*PLACE, *(pa.field(name, pa.int64()) for name in Chain._fields)])
CHAIN_DDL: Final = "topic string, partition int, " + ", ".join(f"{name} bigint" for name in Chain._fields)
FAULT_DDL: Final = "kind string, topic string, who string, place string, records bigint"
FAULT: Final = pa.schema(
    [pa.field(name, pa.string()) for name in ("kind", "topic", "who", "place")] + [pa.field("records", pa.int64())]
)


def audit(spark: SparkSession, bootstrap_servers: str, there: Extent, settings: Mapping[str, Any]) -> Verdict:
    """Audit the offset ranges in `there` by producer. Raises Spark's errors."""
    least = RANGES_PER_CORE * spark.sparkContext.defaultParallelism
    ranges = cut(there.earliest, there.latest, min_partitions=least)
    topics = sorted({partition.topic for partition in there.latest})
    if not ranges:
        return Verdict("producer", tuple(Audited(topic, 0, 0, 0) for topic in topics))
    chains = _chains(spark, ranges, bootstrap_servers, settings).persist()
    try:
        faults = chains.groupBy("topic", "partition", "producer_id").applyInArrow(_judge(there), FAULT_DDL).persist()
        of_log = F.col("producer_id") == NO_PRODUCER
        totals = (
            chains.groupBy("topic")
            .agg(
                F.sum(F.when(of_log, F.col("records"))).alias("records"),
                F.sum(F.when(of_log, F.col("numbered"))).alias("judged"),
                F.countDistinct(F.when(~of_log, F.col("producer_id"))).alias("numbering"),
            )
            .collect()
        )
        found = {row.topic: row for row in totals}
        audited = [_audited(topic, found.get(topic), there) for topic in topics]
        return verdict_of("producer", audited, faults)
    finally:
        chains.unpersist()


def _chains(
    spark: SparkSession, ranges: Sequence[OffsetRange], bootstrap_servers: str, settings: Mapping[str, Any]
) -> DataFrame:
    rows = spark.sparkContext.parallelize([tuple(each) for each in ranges], len(ranges))
    table = spark.createDataFrame(rows, "topic string, partition int, start bigint, end bigint")
    options = dict(settings)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from _read(bootstrap_servers, OffsetRange(**row), options)

    return table.mapInArrow(read, CHAIN_DDL)


def _read(bootstrap_servers: str, wanted: OffsetRange, settings: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """Yield the chains of a task's ranges as Arrow batches; the event loop runs only while Spark waits for the next
    Arrow batch.
    """
    chains = read_chains(bootstrap_servers, wanted, settings=settings)
    with asyncio.Runner() as runner:
        while (some := runner.run(_next(chains))) is not None:
            rows = [{"topic": wanted.topic, "partition": wanted.partition, **chain._asdict()} for chain in some]
            yield pa.RecordBatch.from_pylist(rows, CHAIN)


async def _next(chains: Any) -> list[Chain] | None:
    found: list[Chain] | None = await anext(chains, None)
    return found


def _judge(there: Extent) -> Callable[[pa.Table], pa.Table]:
    whole = {partition for partition in there.earliest if there.is_whole(*partition)}
    compacted = there.compacted

    def judge(table: pa.Table) -> pa.Table:
        rows = table.sort_by("first_offset").to_pylist()
        topic, partition = rows[0]["topic"], rows[0]["partition"]
        chains = (Chain(**{name: row[name] for name in Chain._fields}) for row in rows)
        found = judged(chains, is_whole=(topic, partition) in whole, is_compacted=topic in compacted)
        faults = [
            {
                "kind": each.kind.value,
                "topic": topic,
                "who": "-" if each.producer_id == NO_PRODUCER else f"producer {each.producer_id}, epoch {each.epoch}",
                "place": f"{topic}-{partition}, offset {each.offset}",
                "records": each.records,
            }
            for each in found
        ]
        return pa.Table.from_pylist(faults, FAULT)

    return judge


def _audited(topic: str, totals: Any, there: Extent) -> Audited:
    if totals is None:
        return Audited(topic, 0, 0, 0)
    remarks = []
    if totals.judged < totals.records:
        remarks.append(f"{totals.records - totals.judged} records are of producers that number nothing: not judged")
    if topic in there.compacted:
        remarks.append("it is compacted, so records may be missing: gaps are not judged")
    deleted = [part for part in sorted(there.earliest) if part.topic == topic and not there.is_whole(*part)]
    if deleted:
        remarks.append(f"the beginning of {len(deleted)} of its partitions is deleted: only the rest is judged")
    return Audited(topic, totals.records, totals.judged, totals.numbering, tuple(remarks))
