"""Counts faults in Spark, since a topic may have as many faults as records, and keeps a few of each kind as
examples.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from oncelog_pipeline.jobs.audit.verdict import EXAMPLES, Audited, Count, Fault, Verdict


def verdict_of(by: str, topics: Sequence[Audited], faults: DataFrame) -> Verdict:
    """Count the faults and return the verdict. `faults` is a Spark table with the columns of the class Fault; it is
    persisted while the count runs.
    Only the verdict is sent to the driver."""
    try:
        counts = [
            Count(row.kind, row.topic, row.faults, row.records)
            for row in faults.groupBy("kind", "topic")
            .agg(F.count("*").alias("faults"), F.sum("records").alias("records"))
            .orderBy("topic", "kind")
            .collect()
        ]
        examples = _examples(faults) if counts else []
        return Verdict(by, tuple(topics), tuple(counts), tuple(examples))
    finally:
        faults.unpersist()


def _examples(faults: DataFrame) -> list[Fault]:
    turn = F.row_number().over(Window.partitionBy("kind", "topic").orderBy("place", "who"))
    shown = faults.withColumn("turn", turn).where(F.col("turn") <= EXAMPLES).orderBy("topic", "kind", "turn")
    return [Fault(row.kind, row.topic, row.who, row.place, row.records) for row in shown.collect()]
