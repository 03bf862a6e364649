"""Tests the metrics of a live query with a window and a watermark: they report what the query did, and fill oncelog's
dashboard.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

from streams import again_if_late, create

from oncelog import Producer
from oncelog_pipeline.metrics import serve_query_metrics

DEPLOY = Path(__file__).parents[2] / "deploy"
sys.path.append(str(DEPLOY))

from grafana_panels import grouping, missing, panels, told  # noqa: E402

MINUTE_MS = 60_000
START_MS = 1_700_000_000_000


def produce_at(address: str, topic: str, minutes: list[int]) -> None:
    """Produce one record for each of these minutes, as its timestamp."""

    async def run() -> None:
        async with Producer(address) as producer:
            for minute in minutes:
                await producer.send_and_wait(topic, b"v", timestamp_ms=START_MS + minute * MINUTE_MS, partition=0)

    asyncio.run(run())


def metrics_of(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        text: str = answer.read().decode()
    return text


def test_a_query_is_measured_and_its_dashboard_fills(spark: Any, address: str, topic: str, checkpoint: str) -> None:
    target = f"{topic}-out"
    create(address, topic, target)
    sink = {"kafka.bootstrap.servers": address, "topic": target}

    def run() -> None:
        table = spark.readStream.format("oncelog").option("kafka.bootstrap.servers", address)
        table = table.option("subscribe", topic).option("startingOffsets", "earliest").load()
        counts = table.withWatermark("timestamp", "1 minute").groupBy("timestamp").count()
        rows = counts.selectExpr("cast(count as string) as value")
        writer = rows.writeStream.format("oncelog").options(**sink).option("checkpointLocation", checkpoint)
        query = writer.queryName("minutes").trigger(availableNow=True).start()
        query.awaitTermination()

    server = serve_query_metrics(spark, 0, sink=sink)
    try:
        produce_at(address, topic, [0, 1, 10])
        again_if_late(run)
        # this record (minute 2) is late, because the watermark is already near minute 9
        produce_at(address, topic, [2, 11])
        again_if_late(run)
        ended = re.compile(r'oncelog_query_running{query="minutes",.*} 0.0')
        read_all = re.compile(r'oncelog_query_rows_total{query="minutes",.*} 5.0')
        # wait, because Spark calls listeners only some time after the batch, and the first run has ended before
        while not (ended.search(text := metrics_of(server.url)) and read_all.search(text)):
            pass
    finally:
        server.close()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if 'query="minutes"' in line)
    (query_id,) = {line.split('query_id="')[1].split('"')[0] for line in lines}

    def value(name: str) -> float:
        return float(lines[f'oncelog_query_{name}{{query="minutes",query_id="{query_id}"}}'])

    assert value("rows_total") == 5
    assert value("late_rows_total") == 1
    assert value("lag_offsets") == 0
    assert value("running") == 0
    assert value("failed") == 0
    assert value("batches_total") >= 2
    # The watermark is a minute behind the newest event, counted either before the last batch or after it, because Spark
    # may end with a batch without rows.
    assert (value("watermark_timestamp_seconds") - START_MS / 1000) / 60 in (9, 10)
    dashboard = json.loads((DEPLOY / "grafana" / "oncelog-spark.json").read_text())
    metrics = told(text)
    lacking = {reason for panel in panels(dashboard) for query in panel.queries for reason in missing(query, metrics)}
    # Only running queries report open transactions.
    assert {each.partition("{")[0] for each in lacking} <= {"oncelog_query_open_transactions"}
    labels = {label for samples in metrics.values() for sample in samples for label in sample}
    assert {label for panel in panels(dashboard) for query in panel.queries for label in grouping(query)} <= labels
