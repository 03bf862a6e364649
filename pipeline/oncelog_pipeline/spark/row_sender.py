"""The rows of a task, each to its topic and partition; an Arrow batch at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from oncelog import Producer, RecordMetadata
from oncelog.producer.partitioner import partition_for_key
from oncelog_pipeline.spark.sink_columns import RecordColumns, record_columns

BATCH_SIZE: Final = 256 * 1024
"""batch.size where it is not set: a task has many rows at once, and nobody who waits for one of them."""

TURN: Final = 1 << 32
GOLDEN_RATIO: Final = 2_654_435_769
"""Its fraction, of TURN."""


class BadRow(ValueError):
    """A row that is no record: without a topic, for one."""


class Sender(Protocol):
    """What rows are sent with: `cluster.RowProducer`, or `PlainSender`."""

    async def partition_count(self, topic: str) -> int: ...

    async def send_columns(
        self, topic: str, partition: int, values: Sequence[bytes | None], *columns: Any, **options: Any
    ) -> None: ...


def first_partition(task: int, batch: int, count: int) -> int:
    """Where a task begins with its rows without a key, of `count` partitions of a topic.

    A small batch has fewer rows than one partition takes at a time, so each batch of a query begins elsewhere: at a
    multiple of the golden ratio, whose fractions lie evenly for all batches, and for every other one, too (a query
    with state has batches without rows between those with some). The tasks of a batch follow one another.
    """
    return ((batch * GOLDEN_RATIO % TURN) * count // TURN + task) % count


class PlainSender:
    """Rows without a transaction: at least once."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self._sent: list[asyncio.Future[RecordMetadata]] = []

    async def send_columns(
        self, topic: str, partition: int, values: Sequence[bytes | None], *columns: Any, **options: Any
    ) -> None:
        """As `Producer.send_columns`. Raises KafkaError."""
        self._sent.append(await self.producer.send_columns(topic, partition, values, *columns, **options))

    async def partition_count(self, topic: str) -> int:
        """Raises KafkaError."""
        return len(await self.producer.partitions_for(topic))

    async def finish(self) -> None:
        """Wait until everything is acknowledged. Raises the first KafkaError."""
        await self.producer.flush()
        await asyncio.gather(*self._sent)


class RowSender:
    """`topic` is the option, and wins over the column. Rows without a key and a partition go to one partition for each
    Arrow batch, beginning where `first_partition` says: the same ones when a task is tried again, or its batch is
    replayed. `ignores_keys` (kafka.partitioner.ignore.keys): rows with a key go there, too."""

    def __init__(self, sender: Sender, topic: str | None, task: int, batch: int, *, ignores_keys: bool = False) -> None:
        self._sender = sender
        self._topic = topic
        self._task = task
        self._batch = batch
        self._turn = 0
        self._ignores_keys = ignores_keys
        self._counts: dict[str, int] = {}

    async def send_all(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Raises BadRow, KafkaError, and what the iterator raises."""
        loop = asyncio.get_running_loop()
        # The next batch comes from the JVM when it likes; meanwhile the loop has to send those before.
        while (batch := await loop.run_in_executor(None, next, batches, None)) is not None:
            if batch.num_rows:
                await self.send(record_columns(batch))

    async def send(self, columns: RecordColumns) -> None:
        """Raises BadRow, KafkaError."""
        for topic, rows in self._by_topic(columns):
            for partition, part in self._by_partition(columns, rows, await self._count(topic)):
                chosen = columns if part is None else columns.only(part)
                options = {"headers": chosen.headers, "timestamps_ms": chosen.timestamps_ms}
                await self._sender.send_columns(topic, partition, chosen.values, chosen.keys, **options)
        self._turn += 1

    def _by_topic(self, columns: RecordColumns) -> list[tuple[str, range | list[int]]]:
        """Which rows go to which topic. Raises BadRow."""
        everything = range(len(columns.values))
        if self._topic is not None:
            return [(self._topic, everything)]
        rows: dict[str, list[int]] = {}
        for row, topic in enumerate(columns.topics or ()):
            if topic is None:
                raise BadRow('a row has a null in the column "topic", and there is no option "topic"')
            rows.setdefault(topic, []).append(row)
        return list(rows.items())

    def _by_partition(
        self, columns: RecordColumns, rows: range | list[int], count: int
    ) -> list[tuple[int, list[int] | None]]:
        """Which of these rows go to which partition; None for all rows that there are."""
        sticky = (first_partition(self._task, self._batch, count) + self._turn) % count
        is_everything = len(rows) == len(columns.values)
        keys = None if self._ignores_keys else columns.keys
        if keys is None and columns.partitions is None:
            return [(sticky, None if is_everything else list(rows))]
        found: dict[int, list[int]] = {}
        for row in rows:
            partition = None if columns.partitions is None else columns.partitions[row]
            if partition is None:
                key = None if keys is None else keys[row]
                partition = sticky if key is None else partition_for_key(key, count)
            found.setdefault(partition, []).append(row)
        if len(found) == 1 and is_everything:
            return [(next(iter(found)), None)]
        return list(found.items())

    async def _count(self, topic: str) -> int:
        """How many partitions a topic has. Raises KafkaError."""
        if topic not in self._counts:
            self._counts[topic] = await self._sender.partition_count(topic)
        return self._counts[topic]
