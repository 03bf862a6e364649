"""Fills and reads topics with oncelog's client, and streams from one topic to another."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from oncelog import Admin, Consumer, NewTopic, Producer, TopicPartition

T = TypeVar("T")

PARTITIONS = 2
LATE = "connect back"
"""The text that Spark's two errors for a Python worker that did not start within ten seconds have in common. The limit
of ten seconds cannot be configured, and a worker on a busy machine takes longer.
"""
TRIES = 30
AVAILABLE_NOW: Mapping[str, Any] = {"availableNow": True}


def again_if_late(do: Callable[[], T]) -> T:
    """Run work, and repeat it if a worker started too late; the work must be repeatable: a query with a checkpoint, or
    a write with a writeId.
    """
    for left in range(TRIES, 0, -1):
        try:
            return do()
        except Exception as error:
            if LATE not in str(error) or left == 1:
                raise
    raise AssertionError


@dataclass(frozen=True)
class Stream:
    """A stream from topic to topic, which ends when all existing records are written."""

    address: str
    source: str
    target: str
    checkpoint: str
    reads: Mapping[str, str] = field(default_factory=dict)
    writes: Mapping[str, str] = field(default_factory=dict)
    """Additional options of the sink."""
    sums: bool = False
    """Whether the stream counts the records by minute, with a watermark of a minute; the number in a record's value is
    its second.
    """

    def start(self, spark: Any, trigger: Mapping[str, Any] = AVAILABLE_NOW) -> Any:
        from dying import DyingDataSource

        spark.dataSource.register(DyingDataSource)
        servers = {"kafka.bootstrap.servers": self.address}
        reads = servers | {"startingOffsets": "earliest"} | dict(self.reads)
        if "subscribePattern" not in reads:
            reads["subscribe"] = self.source
        writes = servers | {"topic": self.target, "checkpointLocation": self.checkpoint} | dict(self.writes)
        table = spark.readStream.format("dying").options(**reads).load()
        rows = table.select("key", "value", "headers") if "includeHeaders" in reads else table.select("key", "value")
        rows = _counted_by_minute(table) if self.sums else rows
        return rows.writeStream.format("dying").options(**writes).trigger(**trigger).start()

    def run(self, spark: Any) -> list[Any]:
        """Run the query, and return the progress of each batch. Raises the error of the query."""
        return again_if_late(lambda: self._run(spark))

    def _run(self, spark: Any) -> list[Any]:
        query = self.start(spark)
        query.awaitTermination()
        return list(query.recentProgress)


def _counted_by_minute(table: Any) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    seconds = table.selectExpr("timestamp_seconds(cast(substring(cast(value as string), 7) as bigint)) as time")
    counts = seconds.withWatermark("time", "1 minute").groupBy(F.window("time", "1 minute")).count()
    return counts.selectExpr("concat(cast(unix_seconds(window.start) / 60 as bigint), ': ', count) as value")


async def _create(address: str, topics: Sequence[str], partitions: int) -> None:
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, partitions) for topic in topics])


def create(address: str, *topics: str, partitions: int = PARTITIONS) -> None:
    asyncio.run(_create(address, topics, partitions))


def values(count: int, first: int = 0) -> list[bytes]:
    return [b"value %d" % number for number in range(first, first + count)]


async def _produce(address: str, topic: str, records: Sequence[bytes], options: Mapping[str, Any]) -> None:
    async with Producer(address) as producer:
        for number, value in enumerate(records):
            await producer.send(topic, value, b"key %d" % (number % 17), partition=number % PARTITIONS, **options)


def produce(address: str, topic: str, records: Sequence[bytes], **options: Any) -> None:
    """Write records with keys, to the partitions in rotation."""
    asyncio.run(_produce(address, topic, records, options))


async def _seen(address: str, topic: str, partitions: int, *, is_over: bool) -> list[Any]:
    parts = [TopicPartition(topic, index) for index in range(partitions)]
    async with Consumer(address, auto_offset_reset="earliest", isolation_level="read_committed") as stable:
        async with Consumer(address, auto_offset_reset="earliest") as all_of_it:
            ends = await stable.end_offsets(parts)
            if is_over:
                assert ends == await all_of_it.end_offsets(parts), "a transaction is still open"
        stable.assign(parts)
        records: list[Any] = []
        async with asyncio.timeout(60):
            while any([await stable.position(part) < ends[part] for part in parts]):
                for found in (await stable.poll(200)).values():
                    records += found
    return records


def committed(address: str, topic: str, partitions: int = PARTITIONS) -> list[Any]:
    """Return all records that a read_committed consumer sees, and check that no transaction is open."""
    return asyncio.run(_seen(address, topic, partitions, is_over=True))


def committed_values(address: str, topic: str, partitions: int = PARTITIONS) -> Counter[bytes]:
    return Counter(record.value for record in committed(address, topic, partitions))


def seen_values(address: str, topic: str, partitions: int = PARTITIONS) -> Counter[bytes]:
    """Return the values that a read_committed consumer sees while transactions may be open."""
    return Counter(record.value for record in asyncio.run(_seen(address, topic, partitions, is_over=False)))


async def _is_over(address: str, topic: str, partitions: int) -> bool:
    parts = [TopicPartition(topic, index) for index in range(partitions)]
    async with Consumer(address, isolation_level="read_committed") as stable, Consumer(address) as all_of_it:
        return await stable.end_offsets(parts) == await all_of_it.end_offsets(parts)


def is_over(address: str, topic: str, partitions: int = PARTITIONS) -> bool:
    """Return whether no transaction is open. Apache Kafka reports a commit before consumers can see the committed
    records.
    """
    return asyncio.run(_is_over(address, topic, partitions))


async def _open_transactions(address: str) -> list[str]:
    async with Admin(address) as admin:
        return [each.transactional_id for each in await admin.transactions.list(states=["Ongoing"])]


def open_transactions(address: str) -> list[str]:
    return asyncio.run(_open_transactions(address))
