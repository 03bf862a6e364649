"""Reads the records of one range of offsets, batch by batch; every read returns the same records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from oncelog import TopicPartition, UndecodedBatch
from oncelog.errors import OffsetOutOfRange
from oncelog_pipeline.source.data_loss import DataLoss
from oncelog_pipeline.source.kept_consumers import KeptConsumers
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
    consumers: KeptConsumers | None = None,
) -> AsyncGenerator[list[UndecodedBatch], None]:
    """Yield lists of undecoded batches, cut to the range; each list has all batches of one poll, and at least one
    batch.

    `settings` are keyword arguments of `oncelog.Consumer`; `consumers` has consumers of earlier ranges, and gets that
    of this range back. Reading ends when the position has passed the end of the range; counting records would not work,
    because the last offsets may belong to control batches, or to aborted or compacted records. Close the iterator to
    stop early. Raises NothingRead, KafkaError, and DataLoss if the log begins after the start of the range. Without
    `fails_on_data_loss`, DataLoss is not raised, and a range that begins before the log is read from the beginning of
    the log.
    """
    partition, settings = TopicPartition(wanted.topic, wanted.partition), settings or {}
    kept = KeptConsumers() if consumers is None else consumers
    patience_seconds = poll_timeout_ms / 1000
    consumer = await kept.take(bootstrap_servers, settings, partition, wanted.start, patience_seconds)
    is_read = False
    try:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_seconds
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
            now_at = await consumer.position(partition)
            if now_at >= wanted.end:
                # Give the consumer back before the last batches are yielded, because it would fetch what follows the
                # range while Spark takes them.
                is_read = True
                await kept.give_back(bootstrap_servers, settings, consumer)
            if parts := [part for batch in batches if (part := _cut(batch, wanted)) is not None]:
                yield parts
            if now_at > position or batches:
                position, deadline = now_at, loop.time() + patience_seconds
            elif loop.time() >= deadline:
                raise NothingRead(
                    f"{partition}: nothing after offset {position} of {wanted.start} to {wanted.end} within"
                    f" kafkaConsumer.pollTimeoutMs={poll_timeout_ms}: is its leader up, and is no transaction open that"
                    " began before the end (oncelog txns)?"
                )
    finally:
        if not is_read:  # the task has failed or ends early, and the consumer may have any state
            await consumer.close()
        if consumers is None:
            await kept.close()


def _cut(batch: UndecodedBatch, wanted: OffsetRange) -> UndecodedBatch | None:
    """Cut a batch to the range; None if no offset is left. Most batches lie in the range, and are not changed."""
    if wanted.start <= batch.start and batch.end <= wanted.end:
        return batch
    return batch.cut(wanted.start, wanted.end)
