"""Sends the rows of a task to their topics and partitions, one Arrow batch after another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from oncelog import Producer, RecordMetadata
from oncelog.producer.packable_rows import PackableRows
from oncelog_pipeline.sink.digest import DigestedRows

if TYPE_CHECKING:
    from oncelog_pipeline.arrow.record_columns import RecordColumns

BATCH_SIZE: Final = 768 * 1024
"""The sink's default of batch.size in bytes: three quarters of the default of max.message.bytes. A large batch size is
suitable because a task has many rows at the same time and its latency does not matter, and because each batch is sent
in a request of its own. With rows of 1 KB and 16 partitions, a task takes a tenth less CPU than with batches of 512
KiB; batches of 1 MB save no more.
"""

MANY_ROWS: Final = 40_000
MANY_BYTES: Final = 8 << 20
"""Arrow batches below both limits are joined before their rows are divided among partitions. Each part of a divided
batch costs some tens of microseconds, whatever its size. With 16 partitions, rows of 100 B and Spark's Arrow batches of
10,000 rows, joining saves a fifth of a task's CPU. The values of joined batches are not copied until their rows are
divided. Larger limits save little more, and need more memory.
"""
DIVIDING_COLUMNS: Final = frozenset({"key", "partition", "topic"})
"""The columns that determine a row's topic or partition. If a table has none of them, all rows of an Arrow batch go to
one partition.
"""

TURN: Final = 1 << 32
GOLDEN_RATIO: Final = 2_654_435_769
"""The fractional part of the golden ratio, in units of 1 / TURN."""


class BadRow(ValueError):
    """A row that cannot become a record, for example because it has no topic."""


class Sender(Protocol):
    """Interface for sending rows, implemented by `cluster.RowProducer` and `PlainSender`."""

    async def partition_count(self, topic: str) -> int: ...

    def count(self, topic: str, rows: DigestedRows) -> None:
        """Add rows of one topic to the digest. Call this once for all rows, before `send_packed` sends the rows of each
        partition.
        """

    async def send_packed(self, topic: str, partition: int, rows: PackableRows) -> None: ...


def first_partition(task: int, batch: int, count: int) -> int:
    """Return the partition (below `count`) for a task's first rows without a key.

    The rows of a small batch fill only one partition's record batch, so each batch of a query begins at another
    partition. The batch number times the golden ratio determines this partition. The fractional parts of these products
    are spread evenly, also if only every second batch has rows, as in some queries with state. The tasks of a batch use
    successive partitions.
    """
    return ((batch * GOLDEN_RATIO % TURN) * count // TURN + task) % count


class PlainSender:
    """Sends rows without a transaction: at-least-once delivery."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self._sent: list[asyncio.Future[RecordMetadata]] = []

    def count(self, topic: str, rows: DigestedRows) -> None:
        """Do nothing, because this delivery needs no digest of the rows."""

    async def send_packed(self, topic: str, partition: int, rows: PackableRows) -> None:
        """Send the rows of one partition, as `Producer.send_packed` does. Raises KafkaError."""
        self._sent.append(await self.producer.send_packed(topic, partition, rows))

    async def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic. Raises KafkaError."""
        return len(await self.producer.partitions_for(topic))

    async def finish(self) -> None:
        """Wait until all sent rows are acknowledged. Raises the first KafkaError."""
        await self.producer.flush()
        await asyncio.gather(*self._sent)


class RowSender:
    """Sends the rows of a task.

    `topic` is the option, which overrides the column "topic". All rows of one Arrow batch that have neither key nor
    partition go to one partition. `first_partition` determines the first of these partitions, so that a retried task or
    a replayed batch uses the same partitions. With `ignores_keys` (kafka.partitioner.ignore.keys) rows with a key go to
    the same partition as rows without a key.
    """

    def __init__(self, sender: Sender, topic: str | None, task: int, batch: int, *, ignores_keys: bool = False) -> None:
        self._sender = sender
        self._topic = topic
        self._task = task
        self._batch = batch
        self._turn = 0
        self._ignores_keys = ignores_keys
        self._counts: dict[str, int] = {}

    async def send_all(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Send the rows of all Arrow batches of a task. Raises BadRow, KafkaError, and the errors of the iterator."""
        # Imported here, since only tasks need Arrow's functions, and importing them would take 30 ms in each process
        # that plans a query.
        from oncelog_pipeline.arrow.record_columns import record_columns

        loop = asyncio.get_running_loop()
        # The JVM may take long to deliver the next batch, and the event loop must send the previous batches in the
        # meantime.
        joined = gathered(batches)
        while (batch := await loop.run_in_executor(None, next, joined, None)) is not None:
            await self.send(record_columns(batch))

    async def send(self, columns: RecordColumns) -> None:
        """Send the rows of one Arrow batch. Raises BadRow, KafkaError."""
        from oncelog_pipeline.arrow.splitting import by_partition, partitions

        for topic, rows in self._by_topic(columns):
            count = await self._count(topic)
            sticky = (first_partition(self._task, self._batch, count) + self._turn) % count
            chosen = partitions(rows, count, sticky, ignores_keys=self._ignores_keys)
            whole, parts = by_partition(rows, chosen)
            self._sender.count(topic, whole)
            for partition, part in parts:
                await self._sender.send_packed(topic, partition, part)
        self._turn += 1

    def _by_topic(self, columns: RecordColumns) -> Iterable[tuple[str, RecordColumns]]:
        """Divide rows among their topics. Raises BadRow for a row without a topic."""
        from oncelog_pipeline.arrow.splitting import NoTopic, by_topic

        if self._topic is not None:
            return [(self._topic, columns)]
        try:
            return list(by_topic(columns))
        except NoTopic as error:
            raise BadRow('a row has a null in the column "topic", and there is no option "topic"') from error

    async def _count(self, topic: str) -> int:
        """Return how many partitions a topic has. Raises KafkaError."""
        if topic not in self._counts:
            self._counts[topic] = await self._sender.partition_count(topic)
        return self._counts[topic]


def gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | pa.Table]:
    """Join consecutive small batches whose rows may go to several partitions; leave out empty batches. The rows keep
    their order. A batch that is not small is not joined, because the joined values might exceed the size of an Arrow
    column.
    """
    small: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        is_alone = _is_large(batch.num_rows, batch.nbytes) or DIVIDING_COLUMNS.isdisjoint(batch.schema.names)
        if small and (is_alone or _is_large(rows, size)):
            yield _joined(small)
            small = []
            rows = size = 0
        if is_alone:
            if batch.num_rows:
                yield batch
        elif batch.num_rows:
            small.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
    if small:
        yield _joined(small)


def _is_large(rows: int, size: int) -> bool:
    return rows >= MANY_ROWS or size >= MANY_BYTES


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch | pa.Table:
    """Return all rows as one table, without a copy. `batches` has at least one; all have the same schema."""
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches)
