"""Reads the records of one range of offsets, batch by batch; every read returns the same records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from oncelog import Consumer, TopicPartition, UndecodedBatch
from oncelog.errors import OffsetOutOfRange
from oncelog_pipeline.opening import opened
from oncelog_pipeline.source.data_loss import DataLoss
from oncelog_pipeline.source.ranges import OffsetRange

LOOK_MS: Final = 100
"""Timeout of each poll, in milliseconds. After a poll without records, the position shows whether the range has ended.
"""


class NothingRead(Exception):
    """No record of a range has arrived within kafkaConsumer.pollTimeoutMs."""


async def read_range(
    bootstrap_servers: str,
    wanted: OffsetRange,
    *,
    poll_timeout_ms: int,
    fails_on_data_loss: bool = True,
    settings: Mapping[str, Any] | None = None,
) -> AsyncGenerator[list[UndecodedBatch], None]:
    """Yield lists of undecoded batches, cut to the range; each list has all batches of one poll, and at least one
    batch.

    `settings` are keyword arguments of `oncelog.Consumer`. Reading ends when the position has passed the end of the
    range; counting records would not work, because the last offsets may belong to control batches, or to aborted or
    compacted records. Close the iterator to stop early. Raises NothingRead, KafkaError, and DataLoss if the log begins
    after the start of the range. Without `fails_on_data_loss`, DataLoss is not raised, and a range that begins before
    the log is read from the beginning of the log.
    """
    partition = TopicPartition(wanted.topic, wanted.partition)

    def make() -> Consumer:
        consumer = Consumer(bootstrap_servers, **(settings or {}), auto_offset_reset="none", enable_auto_commit=False)
        # Assign the partition before `start` is called, so that the first metadata request includes the topic; a second
        # request would have to wait for the backoff.
        consumer.assign([partition])
        consumer.seek(partition, wanted.start)
        return consumer

    consumer = await opened(make, poll_timeout_ms / 1000)
    try:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + poll_timeout_ms / 1000
        position = wanted.start
        while position < wanted.end:
            try:
                batches = (await consumer.poll_undecoded(LOOK_MS)).get(partition, ())
            except OffsetOutOfRange as error:
                earliest = (await consumer.beginning_offsets([partition]))[partition]
                if fails_on_data_loss or earliest <= position:
                    raise DataLoss(
                        f"{partition}: offset {position} is deleted, the log begins at {earliest}: {error}"
                    ) from error
                consumer.seek(partition, min(earliest, wanted.end))
                position = min(earliest, wanted.end)
                continue
            parts = [part for batch in batches if (part := _cut(batch, wanted)) is not None]
            if parts:
                yield parts
            now_at = await consumer.position(partition)
            if now_at > position or batches:
                position, deadline = now_at, loop.time() + poll_timeout_ms / 1000
            elif loop.time() >= deadline:
                raise NothingRead(
                    f"{partition}: nothing after offset {position} of {wanted.start} to {wanted.end} within"
                    f" kafkaConsumer.pollTimeoutMs={poll_timeout_ms}: is its leader up, and is no transaction open that"
                    " began before the end (oncelog txns)?"
                )
    finally:
        await consumer.close()


def _cut(batch: UndecodedBatch, wanted: OffsetRange) -> UndecodedBatch | None:
    """Cut a batch to the range; None if no offset is left. Most batches lie in the range, and are not changed."""
    if wanted.start <= batch.start and batch.end <= wanted.end:
        return batch
    return batch.cut(wanted.start, wanted.end)
