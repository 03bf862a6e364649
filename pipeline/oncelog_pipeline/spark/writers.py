"""Writes streams and batches: the work of each task, and what the driver does with the messages of the tasks.

Spark creates a writer for each batch, sends a copy to each task, and calls `commit` or `abort` on yet another copy, in
another process. All shared state is therefore passed in the messages. Spark also calls `abort` after a `commit` that
raised an error; if that `commit` had written the decision to commit the batch, `abort` finishes the commit.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from oncelog import Producer
from oncelog_pipeline.arrow.without_pandas import patch_next_pa_array
from oncelog_pipeline.opening import opened
from oncelog_pipeline.options.sink_options import Delivery, SinkOptions
from oncelog_pipeline.sink import exactly_once, per_task, unnamed
from oncelog_pipeline.sink.cluster import KafkaCluster, RowProducer
from oncelog_pipeline.sink.digest import RowCounter
from oncelog_pipeline.sink.orphans import finish_unnamed
from oncelog_pipeline.sink.state import Batch, TaskMessage
from oncelog_pipeline.spark.allocator import keep_freed_memory
from oncelog_pipeline.spark.connections import connections
from oncelog_pipeline.spark.garbage import freeze_modules
from oncelog_pipeline.spark.identity import Attempt, BatchWrite, batch_of, stream_batch, this_attempt, this_batch_number
from oncelog_pipeline.spark.pyspark_api import StreamArrowWriter
from oncelog_pipeline.spark.quick_start import QuickStart
from oncelog_pipeline.spark.row_sender import BATCH_SIZE, PlainSender, RowSender, Sender

if TYPE_CHECKING:
    import pyarrow as pa


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """A task's message to the driver; None if the driver has nothing to decide, because each task
    commits its own rows.
    """

    message: TaskMessage | None


class Writer(QuickStart):
    """The base class of the writers of streams and of batches."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def batch(self) -> Batch:
        """Return the batch that a task writes. Raises UnknownQuery, OptionError."""
        raise NotImplementedError

    async def cluster(self) -> KafkaCluster:
        """Return the connected cluster to which the tasks write. Raises KafkaError."""
        return await connections().cluster(self._options)

    async def send(self, sender: Sender, rows: Iterator[pa.RecordBatch], task: int, batch: int) -> None:
        """Send all rows of one task of a batch. Raises BadRow, KafkaError."""
        ignores_keys = self._options.producer_settings.get("partitioner_ignore_keys", False)
        await RowSender(sender, self._options.topic, task, batch, ignores_keys=ignores_keys).send_all(rows)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Run one attempt of a task, and return the message to the driver. Raises TakenOver, BadRow, KafkaError."""
        freeze_modules()
        keep_freed_memory()
        attempt = this_attempt()
        if self._options.delivery is Delivery.AT_LEAST_ONCE:
            connections().run(self._write_at_least_once(iterator, attempt, this_batch_number()))
            told = TaskCommit(None)
        else:
            told = TaskCommit(connections().run(self._write(self.batch(), attempt, iterator)))
        freeze_modules()
        patch_next_pa_array()  # PySpark's next call packs the returned message
        return told

    async def _write(self, batch: Batch, attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> TaskMessage:
        async def write(producer: RowProducer | RowCounter) -> None:
            await self.send(producer, rows, attempt.partition, batch.number)

        cluster = await self.cluster()
        if self._options.delivery is Delivery.EXACTLY_ONCE_PER_TASK:
            return await per_task.write_task(cluster, batch, attempt.partition, write)
        return await exactly_once.write_task(cluster, batch, *attempt, write)

    async def _write_at_least_once(self, rows: Iterator[pa.RecordBatch], attempt: Attempt, batch: int) -> None:
        make = partial(Producer, self._options.bootstrap_servers, **self._options.producer_settings)
        producer = await opened(make, self._options.patience_seconds)
        try:
            sender = PlainSender(producer)
            await self.send(sender, rows, attempt.partition, batch)
            await sender.finish()
        finally:
            await producer.close()

    def _decide(self, messages: Sequence[TaskCommit | None]) -> None:
        """Write the decision to commit the batch of these tasks, and commit their transactions. Raises SinkError,
        KafkaError.
        """
        told = _told(messages)
        if told and self._options.delivery is Delivery.EXACTLY_ONCE:
            connections().run(self._commit(told))

    async def _commit(self, told: Sequence[TaskMessage]) -> None:
        await exactly_once.commit(await self.cluster(), told[0].batch, told)

    def _undo(self, messages: Sequence[TaskCommit | None]) -> None:
        """Abort the batch of these tasks; if no task has sent a message, the next run finds and aborts their open
        transactions. Raises KafkaError.
        """
        told = _told(messages)
        if told and self._options.delivery is Delivery.EXACTLY_ONCE:
            connections().run(self._abort(told))

    async def _abort(self, told: Sequence[TaskMessage]) -> None:
        await exactly_once.abort(await self.cluster(), told[0].batch, told)


class StreamWriter(Writer, StreamArrowWriter):
    """The writer of `df.writeStream.format("oncelog")`."""

    def batch(self) -> Batch:
        return stream_batch()

    def commit(self, messages: Sequence[TaskCommit | None], batchId: int) -> None:  # noqa: N803
        """Decide and commit a batch of the stream. Raises SinkError, KafkaError."""
        self._decide(messages)

    def abort(self, messages: Sequence[TaskCommit | None], batchId: int) -> None:  # noqa: N803
        """Abort a batch of the stream. Raises KafkaError."""
        self._undo(messages)


class BatchWriter(Writer, DataSourceArrowWriter):
    """The writer of `df.write`."""

    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options)
        self._write_of = BatchWrite(options.write_id, str(uuid.uuid4()))

    def batch(self) -> Batch:
        return batch_of(self._write_of)

    def plan(self) -> None:
        """Log a warning that explains what a write without a writeId means, and commit decided transactions of other
        such writes, before these transactions time out. Spark calls this method once, before the tasks. Raises
        KafkaError.
        """
        if self._write_of.write_id is not None or self._options.delivery is Delivery.AT_LEAST_ONCE:
            return
        logger.warning(
            "this write has no writeId: if the job is started again, its rows may be written again, as a write that"
            ' was done is not known any more; .option("writeId", "a name of this load") makes it once'
        )
        if self._is_unnamed_decision:
            connections().run(self._finish_others())

    @property
    def _is_unnamed_decision(self) -> bool:
        return self._write_of.write_id is None and self._options.delivery is Delivery.EXACTLY_ONCE

    async def _finish_others(self) -> None:
        await finish_unnamed(await self.cluster())

    def commit(self, messages: Sequence[TaskCommit | None]) -> None:
        """Decide and commit the write. Raises SinkError, KafkaError."""
        self._decide(messages)

    async def _commit(self, told: Sequence[TaskMessage]) -> None:
        if self._is_unnamed_decision:
            await unnamed.commit(await self.cluster(), told[0].batch, told, self._options.topic)
        else:
            await super()._commit(told)

    def abort(self, messages: Sequence[TaskCommit | None]) -> None:
        """Abort the write. Raises KafkaError."""
        self._undo(messages)

    async def _abort(self, told: Sequence[TaskMessage]) -> None:
        if self._is_unnamed_decision:
            await unnamed.abort(await self.cluster(), told[0].batch, told)
        else:
            await super()._abort(told)


def _told(messages: Sequence[TaskCommit | None]) -> list[TaskMessage]:
    """Return the messages of the tasks that have not failed."""
    return [each.message for each in messages if each is not None and each.message is not None]


def with_larger_batches(options: SinkOptions) -> SinkOptions:
    """Set a larger batch.size for a task's producer, unless the user has set it."""
    return replace(options, producer_settings={"batch_size": BATCH_SIZE} | dict(options.producer_settings))
