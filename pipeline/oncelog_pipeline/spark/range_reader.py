"""Reads the range of offsets of one task, for a stream or a batch."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from oncelog_pipeline.options.source_options import SourceOptions
from oncelog_pipeline.source.ranges import OffsetRange
from oncelog_pipeline.source.reading import read_range
from oncelog_pipeline.spark.allocator import keep_freed_memory
from oncelog_pipeline.spark.connections import connections
from oncelog_pipeline.spark.garbage import freeze_modules
from oncelog_pipeline.spark.source_columns import BatchBuilder

BATCHES_AT_ONCE: Final = 2
"""The number of Arrow batches that are passed to Spark's thread together. Passing several batches saves CPU, because
each switch between threads costs CPU. A task holds at most twice as many batches: the batches that Spark's thread is
reading, and the next batches.
"""


class RangePartition(InputPartition):
    """The range of one task, as Spark sends it to the task; `value` is None if there is nothing to read."""

    value: OffsetRange | None


def read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the records of the range as Arrow batches. Raises DataLoss, NothingRead, KafkaError."""
    freeze_modules()
    keep_freed_memory()
    wanted: OffsetRange | None = partition.value
    if wanted is None:
        return
    run = connections().run
    read_ahead = _record_batches(options, OffsetRange(*wanted))
    try:
        while batches := run(anext(read_ahead, None)):
            yield from batches
    finally:
        run(read_ahead.aclose())  # close the reader here, because Spark may stop reading early, as with limit(10)


async def _record_batches(options: SourceOptions, wanted: OffsetRange) -> AsyncGenerator[list[pa.RecordBatch], None]:
    ready: list[pa.RecordBatch] = []
    gathered = BatchBuilder(wanted.topic, wanted.partition, includes_headers=options.includes_headers)
    reading = read_range(
        options.bootstrap_servers,
        wanted,
        poll_timeout_ms=options.poll_timeout_ms,
        fails_on_data_loss=options.fails_on_data_loss,
        settings=options.settings,
        consumers=connections().consumers,
    )
    try:
        async for parts in reading:
            for part in parts:
                gathered.add(part)
                if gathered.is_full and (batch := gathered.take()) is not None:
                    ready.append(batch)
            # Batches of a single fetch response are decoded in place; batches of several responses would first have to
            # be copied.
            if gathered.is_worth_a_batch and (batch := gathered.take()) is not None:
                ready.append(batch)
            if len(ready) >= BATCHES_AT_ONCE:
                yield ready
                ready = []
    finally:
        await reading.aclose()
    if (batch := gathered.take()) is not None:
        ready.append(batch)
    if ready:
        yield ready
