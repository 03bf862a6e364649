"""The Spark program: it sums orders by window and customer, reads them from one topic and writes the sums to another,
with `format("oncelog")`.

python query.py SPEC       (JSON: the fields of `Query`)

Each line that it prints is JSON: {"jvm": pid}, {"started": run}, {"batch": ..., "rows": ..., "watermark": ...},
{"failed": error}, {"done": true}. A query that fails is started again by the program. If the query does not even start,
the program ends with 1, and its observer starts the program again, because a session that has once not found the data
source never finds it. When the watermark has passed all orders except the closing orders, all windows of the passed
orders are written, and the program ends with 0.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from oncelog_pipeline.spark.pyspark_api import HAS_READ_LIMITS, PYSPARK
from spark_soak.orders import CLOSING_MS, DELAY_MS, WINDOW_MS

ORDER = "number bigint, customer string, at bigint, amount bigint"
LOOK_SECONDS = 1
ERROR_CHARACTERS = 1500


@dataclass(frozen=True)
class Query:
    addresses: str
    source: str
    target: str
    checkpoint: str

    def start(self, spark: Any) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        servers = {"kafka.bootstrap.servers": self.addresses}
        reads = {"subscribe": self.source, "startingOffsets": "earliest"}
        if HAS_READ_LIMITS:
            reads["maxOffsetsPerTrigger"] = "2000"
        orders = (
            spark.readStream.format("oncelog")
            .options(**servers, **reads)
            .load()
            .select(F.from_json(F.col("value").cast("string"), ORDER).alias("order"))
            .select("order.*")
            .withColumn("time", F.timestamp_millis("at"))
            .withWatermark("time", f"{DELAY_MS} milliseconds")
        )
        sums = orders.groupBy(F.window("time", f"{WINDOW_MS} milliseconds"), "customer").agg(
            F.count("*").alias("rows"),
            F.sum("amount").alias("amount"),
            F.sort_array(F.collect_list("number")).alias("numbers"),
        )
        written = sums.select(
            F.col("customer").alias("key"),
            F.to_json(
                F.struct(F.unix_millis("window.start").alias("start"), "customer", "rows", "amount", "numbers")
            ).alias("value"),
        )
        return (
            written.writeStream.format("oncelog")
            .options(**servers, topic=self.target)
            .option("checkpointLocation", self.checkpoint)
            .outputMode("append")
            .start()
        )


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def milliseconds(watermark: str) -> float:
    """Convert a watermark from the query's progress into milliseconds since the epoch; 0 if there is no watermark
    yet."""
    return datetime.fromisoformat(watermark).timestamp() * 1000 if watermark else 0


def follow(running: Any) -> None:
    """Print each batch until the closing orders have closed all windows except their own. Raises the error of the
    query.
    """
    told = -1
    while not running.awaitTermination(LOOK_SECONDS):
        progress = running.lastProgress
        if progress is None or progress["batchId"] == told:
            continue
        told = progress["batchId"]
        watermark = progress["eventTime"].get("watermark", "")
        say(batch=told, rows=progress["numInputRows"], watermark=watermark)
        if milliseconds(watermark) >= CLOSING_MS - DELAY_MS:
            running.stop()
            return


def main() -> None:
    from spark_session import started

    query = Query(**json.loads(sys.argv[1]))
    with started() as spark:
        say(jvm=spark.sparkContext._gateway.proc.pid, pyspark=PYSPARK)
        is_done = False
        while not is_done:
            try:
                running = query.start(spark)
            except Exception as error:
                say(failed=str(error)[:ERROR_CHARACTERS])
                sys.exit(1)
            say(started=str(running.runId))
            try:
                follow(running)
                is_done = True
            except Exception as error:  # any error ends this query, and the program starts the query again
                say(failed=str(error)[:ERROR_CHARACTERS])
        say(done=True)


if __name__ == "__main__":
    main()
