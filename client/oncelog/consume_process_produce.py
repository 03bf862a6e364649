"""Consume, process, produce: commits input offsets and output records in one transaction (S60, KIP-447)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from oncelog.backoff import backoff_s
from oncelog.cluster import TopicPartition
from oncelog.consumer.consumer import Consumer
from oncelog.consumer.records import ConsumerRecord
from oncelog.errors import AbortableError, ConfigError, EndNotKnown, ErrorCode, FatalError, KafkaError
from oncelog.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from oncelog.producer.producer import Producer
from oncelog.producer.transaction import until_known
from oncelog.producer.transaction_errors import rule_of

logger = logging.getLogger(__name__)

POLL_TIMEOUT_MS: Final = 1_000

K = TypeVar("K")
V = TypeVar("V")

Polled = Mapping[TopicPartition, list[ConsumerRecord[Any, Any]]]


async def consume_process_produce(
    consumer: Consumer[K, V],
    producer: Producer[Any, Any],
    process: Callable[[list[ConsumerRecord[K, V]]], Awaitable[object]],
    *,
    max_records: int | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Process each record of `consumer` exactly once, provided that `process` only sends with `producer`.

    Each poll is one transaction: `process` gets the polled records, in order per partition, and sends the results. An
    aborted transaction is repeated from the committed offsets, if a repetition may succeed. Therefore `process` may see
    a record again, and side effects other than sending are repeated (S63).

    The committed offset is the consumer's position, which lies after markers and aborted records too. If a poll passed
    only markers and aborted records, a separate transaction commits the new positions. Without this additional commit,
    a group that has read everything would show a lag above 0 (S91).

    Runs until cancelled, until `stop` is set (checked between transactions), or until `process` raises. If `process`
    raises, the transaction is aborted, the consumer returns to the previous position, and the error propagates.

    Raises ConfigError for a consumer that commits automatically or reads uncommitted records, FatalError if this
    producer is fenced, and the errors of `Consumer.poll`.
    """
    _check(consumer, producer)
    rng = random.Random()  # noqa: S311 - jitter, not a secret
    failures = 0
    stored: dict[TopicPartition, int | None] = {}
    while stop is None or not stop.is_set():
        polled = await consumer.poll(POLL_TIMEOUT_MS, max_records)
        # Use the positions and the group metadata of this poll. If the member has been expelled from its group since
        # the poll, the coordinator must refuse the commit (S46).
        consumed, group = consumer.consumed(), consumer.group_metadata()
        try:
            offsets = await _to_commit(consumer, polled, consumed, stored)
            if offsets:
                await _transact(consumer, producer, process, polled, offsets, group)
                stored.update({partition: told.offset for partition, told in offsets.items()})
                failures = 0
        except KafkaError as error:
            if not _may_pass(error):
                raise
            failures += 1
            logger.info("a transaction was aborted, and is repeated (attempt %d): %s", failures, error)
            config = producer.config
            await asyncio.sleep(backoff_s(failures, config.retry_backoff_ms, config.retry_backoff_max_ms, rng))


async def _to_commit(
    consumer: Consumer[Any, Any],
    polled: Polled,
    consumed: Mapping[TopicPartition, OffsetAndMetadata],
    stored: dict[TopicPartition, int | None],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the positions of the polled partitions; without records, the positions that have moved since the last
    commit. `stored` contains the known committed offsets; the offsets of newly assigned partitions are requested from
    the coordinator.
    """
    if polled:
        return {partition: consumed[partition] for partition in polled}
    for partition in [each for each in stored if each not in consumed]:
        del stored[partition]  # the group may have moved the partition to another member, which commits its offset
    new = [partition for partition in consumed if partition not in stored]
    if new:
        found = await consumer.committed(new)
        stored.update({partition: None if told is None else told.offset for partition, told in found.items()})
    return {partition: told for partition, told in consumed.items() if stored[partition] != told.offset}


async def _transact(
    consumer: Consumer[Any, Any],
    producer: Producer[Any, Any],
    process: Callable[[list[ConsumerRecord[Any, Any]]], Awaitable[object]],
    polled: Polled,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group: ConsumerGroupMetadata,
) -> None:
    """Run one transaction. Raises the error of a failed transaction; the consumer then continues from the committed
    offsets.
    """
    records = [record for several in polled.values() for record in several]
    is_complete = False
    try:
        try:
            async with producer.transaction():
                if records:
                    if producer.spans is not None:
                        producer.spans.is_about(records)
                    await process(records)
                await producer.send_offsets(offsets, group)
                is_complete = True
        except EndNotKnown:
            if not is_complete:
                # this error belongs to an earlier transaction whose caller was cancelled during the commit
                raise
            await _commit_at_last(producer)
    except BaseException as error:
        rewind(consumer, polled)
        if is_complete and isinstance(error, asyncio.CancelledError):
            await _end_at_last(producer)
        raise


async def _commit_at_last(producer: Producer[Any, Any]) -> None:
    """Wait for a commit that takes longer than max.block.ms, because the producer refuses all other calls before the
    commit has ended.
    """
    try:
        await until_known(producer.commit_transaction)
    except AbortableError:
        await until_known(producer.abort_transaction)
        raise


async def _end_at_last(producer: Producer[Any, Any]) -> None:
    """Wait for the end of a commit during which the task was cancelled, because the next transaction cannot start
    before that commit has ended.
    """
    try:
        await _commit_at_last(producer)
    except KafkaError as error:
        logger.info("cancelled in a commit that has failed: %s", error)


def _may_pass(error: KafkaError) -> bool:
    """Return whether a repetition may succeed; False, for example, if a record is too large or may not be written."""
    if isinstance(error, FatalError):
        return False
    if error.code is ErrorCode.INVALID_TXN_STATE:
        # repeat only if the coordinator has aborted the transaction; otherwise a method was called in the wrong state
        return isinstance(error, AbortableError)
    return error.retriable or rule_of(error.code).is_repeated


def rewind(consumer: Consumer[Any, Any], polled: Polled) -> None:
    """Make `consumer` read the records of this poll again, starting at the committed offset.

    The committed offset is used because the group may have assigned the partition to another member meanwhile, and
    because after a cancelled or timed-out commit it is unknown whether the commit took effect. The next poll requests
    the committed offset, and the coordinator responds when all pending transactions of the group have ended. This
    function sends no request, so a failure or cancellation cannot cause records to be skipped or repeated.
    """
    for partition in consumer.assignment().intersection(polled):
        consumer.seek_to_committed(partition, polled[partition][0].offset)


def _check(consumer: Consumer[Any, Any], producer: Producer[Any, Any]) -> None:
    config = consumer.config
    if producer.config.transactional_id is None:
        raise ConfigError("transactional_id: consume-process-produce needs a producer that has one")
    if config.group_id is None or config.enable_auto_commit:
        raise ConfigError(
            "enable_auto_commit: must be False, with a group_id: the offsets are committed with the transactions"
        )
    if config.isolation_level != "read_committed":
        raise ConfigError(
            "isolation_level: must be 'read_committed', otherwise records of aborted transactions are processed"
        )
