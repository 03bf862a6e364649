"""Tests jobs that are described by files, through a live Spark: values are decoded, transformed and written once, and
each batch is reported in a line.
"""

from __future__ import annotations

import asyncio
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql.functions import lit
from streams import committed, create

from oncelog import Producer
from oncelog_pipeline.jobs.failures import told
from oncelog_pipeline.jobs.job import Job
from oncelog_pipeline.jobs.job_file import read_job
from oncelog_pipeline.jobs.keys import JobError
from oncelog_pipeline.jobs.run import check, run_in, with_what_there_is
from oncelog_pipeline.values.columns import as_value, decoded
from oncelog_pipeline.values.format import ValueFormat
from oncelog_pipeline.values.wire import framed

ROWS = 200
BATCH = 100
ORDERS_TO_BILLS = """
[input]
bootstrap = "{address}"
topics = ["{topic}"]
key = {{format = "string"}}
value = {{schema = "customer STRING, amount DOUBLE"}}
options.maxOffsetsPerTrigger = {batch}
[transform]
sql = "SELECT key, value.customer, value.amount * 2 AS gross FROM input WHERE value.amount >= 0"
[output]
topic = "{topic}-out"
value = {{format = "json"}}
[checkpoint]
location = "checkpoint"
"""
RATE = {
    "type": "record",
    "name": "Rate",
    "fields": [
        {"name": "currency", "type": "string"},
        {"name": "rate", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
RATES_TO_PARQUET = """
[input]
bootstrap = "{address}"
topics = ["{topic}"]
view = "rates"
[input.value]
format = "avro"
schema_file = "rate.avsc"
registry = "schemas"
[transform]
function = "{module}:flat"
[output]
parquet = "lake"
partition_by = ["currency"]
[checkpoint]
location = "checkpoint"
"""
FUNCTION = """
from pyspark.sql import DataFrame


def flat(rates: DataFrame) -> DataFrame:
    return rates.select("offset", "value.*")
"""


def job(folder: Path, text: str, **names: Any) -> Job:
    path = folder / "job.toml"
    path.write_text(text.format(**names))
    return with_what_there_is(read_job(path))


async def _send(address: str, topic: str, values: list[bytes]) -> None:
    async with Producer(address) as producer:
        for number, value in enumerate(values):
            await producer.send(topic, value, b"k%d" % number, partition=number % 2)


def send(address: str, topic: str, values: list[bytes]) -> None:
    asyncio.run(_send(address, topic, values))


def orders(count: int, first: int = 0) -> list[bytes]:
    return [b'{"customer": "c%d", "amount": %d}' % (number, number) for number in range(first, first + count)]


def test_a_json_job_runs_and_continues(
    spark: Any, address: str, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each row is written once, each batch is reported in a line, and a restarted job reads only records that are
    newer.
    """
    create(address, topic, f"{topic}-out")
    send(address, topic, orders(ROWS))
    bills = job(tmp_path, ORDERS_TO_BILLS, address=address, topic=topic, batch=BATCH)
    rows = run_in(spark, bills, form="plain")
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [(row.batch, row.rows, row.lag) for row in rows] == [(0, BATCH, ROWS - BATCH), (1, BATCH, 0)]
    assert all(
        str(row.transaction).startswith("committed") for row in rows
    )  # the line may also report open transactions of the next batch
    assert [line[2] for line in lines] == [str(BATCH)] * 2
    send(address, topic, [*orders(3, ROWS), b'{"customer": "nobody", "amount": -1}'])
    check(bills)
    (row,) = run_in(spark, bills, form="json")
    assert json.loads(capsys.readouterr().out) == {**json.loads(row.as_json()), "rows": 4}
    written = [(record.key, json.loads(record.value)) for record in committed(address, f"{topic}-out")]
    expected = {
        b"k%d" % (number if number < ROWS else number - ROWS): {"customer": f"c{number}", "gross": number * 2.0}
        for number in range(ROWS)
    }
    assert len(written) == ROWS + 3
    assert sorted(bill["gross"] for _, bill in written) == [number * 2.0 for number in range(ROWS + 3)]
    assert all(key in expected for key, _ in written)


def test_an_avro_job_writes_parquet_through_a_function(spark: Any, address: str, topic: str, tmp_path: Path) -> None:
    create(address, topic)
    (tmp_path / "schemas").mkdir()
    (tmp_path / "rate.avsc").write_text(json.dumps(RATE))
    (tmp_path / "schemas" / "7.avsc").write_text(json.dumps(RATE))
    module = f"rates_{topic.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(FUNCTION)
    values = []
    for number in range(10):
        stream = io.BytesIO()
        row = {"currency": "EUR" if number % 2 else "CHF", "rate": number / 4, "at": 1_700_000_000_000 + number}
        fastavro.schemaless_writer(stream, fastavro.parse_schema(RATE), row)
        values.append(framed(7, stream.getvalue()))
    send(address, topic, values)
    names = {"address": address, "topic": topic, "module": module}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        (row,) = run_in(spark, job(tmp_path, RATES_TO_PARQUET, **names), form="plain")
    assert (row.rows, row.transaction) == (10, None)
    lake = spark.read.parquet(str(tmp_path / "lake"))
    found = [(each.currency, each.rate) for each in lake.orderBy("rate").collect()]
    assert found == [("EUR" if number % 2 else "CHF", number / 4) for number in range(10)]
    assert {path.name for path in (tmp_path / "lake").glob("currency=*")} == {"currency=CHF", "currency=EUR"}


def test_avro_columns_are_written_and_read_back(spark: Any) -> None:
    """Columns are written as Avro values and read back; a tombstone becomes null."""
    form = ValueFormat("avro", json.dumps(RATE))
    rows = [("EUR", 1.5, datetime(2026, 1, 1, tzinfo=UTC)), ("CHF", 0.9, datetime(2026, 2, 1, tzinfo=UTC))]
    table = spark.createDataFrame(rows, "currency string, rate double, at timestamp").withColumn("key", lit("k"))
    values = as_value(table, form, ("key",))
    assert values.columns == ["key", "value"]
    records = values.unionByName(spark.sql("SELECT 'k' AS key, CAST(NULL AS BINARY) AS value"))
    placed = records.selectExpr("value", "'t' AS topic", "0 AS partition", "0L AS offset")
    found = [row.value for row in decoded(placed, "value", form).collect()]
    assert [row and (row.currency, row.rate) for row in found] == [("EUR", 1.5), ("CHF", 0.9), None]


@pytest.mark.soak
def test_common_failures_are_explained(spark: Any, address: str, topic: str, tmp_path: Path) -> None:
    """The command line shows this text, however Spark has wrapped the error."""
    create(address, topic, f"{topic}-out")
    send(address, topic, [b"no JSON"])
    names = {"address": address, "topic": topic, "batch": BATCH}

    def failure(text: str, folder: str) -> str:
        (tmp_path / folder).mkdir()
        with pytest.raises(Exception, match=r".") as raised:
            run_in(spark, job(tmp_path / folder, text, **names), form="plain")
        return told(type(raised.value).__name__, str(raised.value))

    unknown = ORDERS_TO_BILLS.replace('topics = ["{topic}"]', 'topics = ["{topic}-not"]')
    assert f"{topic}-not" in (said := failure(unknown, "unknown"))
    assert "oncelog topics create" in said
    said = failure(ORDERS_TO_BILLS.replace("value.amount *", "value.amuont *"), "misspelt")
    assert "amuont" in said
    assert said.endswith("Look at the query in [transform], and at the schemas of its inputs")
    said = failure(ORDERS_TO_BILLS, "invalid")
    assert said.startswith(f"{topic}-0, offset 0: is not of the JSON schema: no JSON")
    assert said.endswith('to have nulls in its place, set invalid = "null"')
    said = failure(ORDERS_TO_BILLS.replace('value = {{format = "json"}}', ""), "plain")
    assert said.startswith('[output] needs value = {format = "json"}')
    other = job(tmp_path / "invalid", unknown, **names)
    with pytest.raises(JobError, match="is the checkpoint of another query"):
        check(other)


COUNTS = """
[input]
bootstrap = "{address}"
topics = ["{topic}"]
value = {{format = "string"}}
[transform]
sql = "SELECT value AS key, count(*) AS seen FROM input GROUP BY value"
[output]
topic = "{topic}-out"
mode = "update"
value = {{format = "json"}}
[checkpoint]
location = "checkpoint"
"""


def test_update_writes_the_rows_that_have_changed_once(spark: Any, address: str, topic: str, tmp_path: Path) -> None:
    create(address, topic, f"{topic}-out")
    counts = job(tmp_path, COUNTS, address=address, topic=topic)
    send(address, topic, [b"a", b"a", b"b"])
    rows = run_in(spark, counts, form="plain")
    assert str(rows[0].transaction).startswith("committed")
    send(address, topic, [b"b"])
    run_in(spark, counts, form="plain")
    found = sorted((record.key, json.loads(record.value)["seen"]) for record in committed(address, f"{topic}-out"))
    assert found == [(b"a", 2), (b"b", 1), (b"b", 2)]
