"""Tests the rows of a task: they are encoded from Arrow's columns and sent to a live broker; librdkafka reads them, and
would choose the same partitions.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as Librdkafka
from foreign_clients import TIMEOUT_SECONDS

from oncelog import Admin, NewTopic, Producer
from oncelog_pipeline.spark.row_sender import PlainSender, RowSender

PARTITIONS = 4
FIRST_MS = 1_700_000_000_000
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]
"""A row: key, value, headers, timestamp (ms)."""


def row_of(number: int) -> Row:
    """Return a row; its number determines its features: nulls, empty fields, tombstones, large and small values, no
    header or several, decreasing timestamps.
    """
    key = None if number % 17 == 0 else b"k%d" % number * (number % 30)
    value = None if number % 11 == 0 else b"%d," % number * (number % 97 if number % 100 else 9000)
    headers: list[tuple[str, bytes | None]] = [("h", b"%d" % number), ("h", None), ("é", b"")][: number % 4]
    return key, value, headers, FIRST_MS + number * 37 % 1000


ROWS = [row_of(number) for number in range(3000)]


def batches() -> Iterator[pa.RecordBatch]:
    for first in range(0, len(ROWS), 700):
        keys, values, headers, times = zip(*ROWS[first : first + 700], strict=True)
        as_structs = [[{"key": name, "value": value} for name, value in each] or None for each in headers]
        yield pa.record_batch(
            {
                "key": pa.array(keys, pa.binary()),
                "value": pa.array(values, pa.binary()),
                "headers": pa.array(as_structs, pa.list_(HEADER)),
                "timestamp": pa.array([time * 1000 for time in times], pa.timestamp("us", tz="UTC")),
            }
        )


def read(address: str, topic: str) -> dict[int, list[Row]]:
    """Return the rows of each partition in order."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic, "check.crcs": True})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        found: dict[int, list[Row]] = defaultdict(list)
        for _ in ROWS:
            message: Any = consumer.poll(TIMEOUT_SECONDS)
            assert message is not None, f"{sum(map(len, found.values()))} of {len(ROWS)} rows"
            assert not message.error(), message.error()
            fields = message.key(), message.value(), message.headers() or [], message.timestamp()[1]
            found[message.partition()].append(fields)
        return dict(found)
    finally:
        consumer.close()


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_librdkafka_reads_each_row_where_it_would_have_put_it(address: str, topic: str, compression: Any) -> None:
    async def sent() -> None:
        async with Admin(address) as admin:
            await admin.create_topics([NewTopic(name, PARTITIONS) for name in (topic, f"{topic}-theirs")])
        async with Producer(address, compression_type=compression, batch_size=20_000) as producer:
            sender = PlainSender(producer)
            await RowSender(sender, topic, 0, 0).send_all(batches())
            await sender.finish()

    asyncio.run(sent())
    found = read(address, topic)
    by_partition: dict[Row, int] = {}
    for partition, rows in found.items():
        numbers = [ROWS_AT[fields_of(row)] for row in rows]
        assert numbers == sorted(numbers), "in order within a partition"
        by_partition.update({fields_of(row): partition for row in rows})
    assert Counter(fields_of(row) for rows in found.values() for row in rows) == Counter(map(fields_of, ROWS))
    theirs = Librdkafka({"bootstrap.servers": address, "partitioner": "murmur2_random"})
    placed: dict[Row, int] = {}
    for row in ROWS:
        if row[0] is not None:
            key, value, headers, time = row
            theirs.produce(
                f"{topic}-theirs",
                value,
                key,
                headers=headers,
                timestamp=time,
                on_delivery=lambda _, message, row=row: placed.update({fields_of(row): message.partition()}),
            )
            theirs.poll(0)
    theirs.flush(TIMEOUT_SECONDS)
    assert len(placed) == sum(row[0] is not None for row in ROWS)
    assert {row: by_partition[row] for row in placed} == placed


def fields_of(row: Row) -> Any:
    key, value, headers, time = row
    return key, value, tuple(headers), time


ROWS_AT = {fields_of(row): number for number, row in enumerate(ROWS)}
