"""Tests writing tables to topics and reading topics as tables, through a live Spark."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from dying import DyingDataSource, has_died
from streams import again_if_late, committed, committed_values, create, produce, values


def reads(spark: Any, address: str, topic: str, **options: str) -> Any:
    given = {"kafka.bootstrap.servers": address, "subscribe": topic} | options
    return spark.read.format("oncelog").options(**given).load()


def write(table: Any, address: str, **options: str) -> None:
    spark = table.sparkSession
    spark.dataSource.register(DyingDataSource)
    given = {"kafka.bootstrap.servers": address, "writeId": uuid.uuid4().hex} | options
    again_if_late(lambda: table.write.format("dying").options(**given).mode("append").save())


def test_every_column_comes_back(spark: Any, address: str, topic: str) -> None:
    """The rows have keys, headers, tombstones, topics and partitions; the columns that are read are those of Spark's
    own connector.
    """
    other = f"{topic}-other"
    create(address, topic, other)
    schema = "key string, value binary, headers array<struct<key: string, value: binary>>, topic string, partition int"
    rows = [
        ("a", b"1", [("h", b"x"), ("none", None)], topic, 1),
        (None, None, None, topic, 0),
        ("b", b"", [], other, 0),
        ("", b"3", None, other, None),
    ]
    write(spark.createDataFrame(rows, schema), address)
    begin = datetime(2020, 1, 1, tzinfo=UTC)
    table = reads(spark, address, f"{topic}, {other}", includeHeaders="true")
    assert table.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    found = {(row.topic, bytes(row.value) if row.value is not None else None): row for row in table.collect()}
    assert len(found) == 4
    first = found[topic, b"1"]
    assert (bytes(first.key), first.partition, first.offset, first.timestampType) == (b"a", 1, 0, 0)
    assert [(each.key, each.value) for each in first.headers] == [("h", b"x"), ("none", None)]
    assert first.timestamp.astimezone(UTC) > begin
    assert (found[topic, None].key, found[topic, None].headers, found[topic, None].partition) == (None, None, 0)
    assert (bytes(found[other, b""].key), found[other, b""].partition) == (b"b", 0)
    assert bytes(found[other, b"3"].key) == b""


def test_a_range_is_read_and_limit_ends_early(spark: Any, address: str, topic: str) -> None:
    create(address, topic)
    produce(address, topic, values(100))
    bounds = {
        "startingOffsets": f'{{"{topic}": {{"0": 10, "1": -2}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": 20, "1": -1}}}}',
    }
    rows = reads(spark, address, topic, **bounds, minPartitions="4").select("partition", "offset").collect()
    assert Counter(row.partition for row in rows) == {0: 10, 1: 50}
    assert {row.offset for row in rows if row.partition == 0} == set(range(10, 20))
    assert len(reads(spark, address, topic).limit(3).collect()) == 3


def test_a_batch_with_a_write_id_is_written_once(spark: Any, address: str, topic: str, tmp_path: Path) -> None:
    """Spark replaces a dead worker and retries its task. A second write with the same writeId writes nothing."""
    create(address, topic)
    table = spark.range(0, 300, 1, 3).selectExpr("cast(id as string) as value")
    write(
        table,
        address,
        topic=topic,
        writeId=f"job-{topic}",
        dieAt="rows flushed",
        diePart="0",
        dieFile=str(tmp_path / "died"),
    )
    assert has_died(tmp_path / "died") == 1
    write(table, address, topic=topic, writeId=f"job-{topic}")
    assert committed_values(address, topic) == Counter(b"%d" % number for number in range(300))


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once-per-task"])
def test_the_other_delivery_modes_write_batches(spark: Any, address: str, topic: str, delivery: str) -> None:
    create(address, topic)
    table = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) as value", "cast(id % 5 as string) as key")
    write(table, address, topic=topic, delivery=delivery, writeId=f"job-{topic}")
    records = committed(address, topic)
    assert Counter(record.value for record in records) == Counter(b"%d" % number for number in range(100))
    assert len({(record.key, record.partition) for record in records}) == 5


def test_wrong_options_are_refused_with_the_right_ones(spark: Any, address: str, topic: str) -> None:
    create(address, topic)
    with pytest.raises(Exception, match=r"unknown option 'subscrib': did you mean 'subscribe'"):
        reads(spark, address, topic, subscrib="x")
    with pytest.raises(Exception, match=r"must be binary|must be string or binary: cast it"):
        write(spark.range(1).selectExpr("id as value"), address, topic=topic)
    with pytest.raises(Exception, match=r"did you mean 'value'"):
        write(spark.range(1).selectExpr("cast(id as string) as valu"), address, topic=topic)
    with pytest.raises(Exception, match=r"unknown topic no-such-topic"):
        reads(spark, address, "no-such-topic").count()
