"""Consume, process, produce: what was read, what became of it and how far we are, in one transaction (S60, KIP-447)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

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

Polled = Mapping[TopicPartition, list[ConsumerRecord]]


async def consume_process_produce(
    consumer: Consumer,
    producer: Producer,
    process: Callable[[list[ConsumerRecord]], Awaitable[object]],
    *,
    max_records: int | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Have each record of `consumer` processed exactly once, as far as `process` only sends with `producer`.

    One poll is one transaction: `process` gets its records, of each partition in order, and sends what comes of them.
    A transaction that has to be aborted is repeated, if that may help: the consumer goes back to what is committed. So
    `process` may see a record again, and whatever it does besides sending happens again too (S63).

    What is committed is the consumer's position, which is behind markers and aborted records too. A poll that has
    passed only such is committed by a transaction of its own: the lag of a group that has read all is 0 (S91).

    Runs until cancelled, until `stop` is set (seen between two transactions), or until `process` raises: then its
    transaction is aborted, the consumer is where it was before, and the error goes on to the caller.

    Raises ConfigError for a consumer that commits by itself or reads what is not committed; FatalError where another
    producer has taken over, and what `Consumer.poll` raises.
    """
    _check(consumer, producer)
    rng = random.Random()  # noqa: S311 - jitter, not a secret
    failures = 0
    stored: dict[TopicPartition, int | None] = {}
    while stop is None or not stop.is_set():
        polled = await consumer.poll(POLL_TIMEOUT_MS, max_records)
        # Both as of this poll: a member that its group has lost since must not pass (S46).
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
    consumer: Consumer,
    polled: Polled,
    consumed: Mapping[TopicPartition, OffsetAndMetadata],
    stored: dict[TopicPartition, int | None],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The positions of the partitions that were polled, or else of those that have moved without records since the
    group has committed them. `stored` is what is committed, as far as it is known; what has been assigned since is
    looked up."""
    if polled:
        return {partition: consumed[partition] for partition in polled}
    for partition in stored.keys() - consumed.keys():
        del stored[partition]  # others may have it, and commit it
    new = consumed.keys() - stored.keys()
    if new:
        found = await consumer.committed(new)
        stored.update({partition: None if told is None else told.offset for partition, told in found.items()})
    return {partition: told for partition, told in consumed.items() if stored[partition] != told.offset}


async def _transact(
    consumer: Consumer,
    producer: Producer,
    process: Callable[[list[ConsumerRecord]], Awaitable[object]],
    polled: Polled,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group: ConsumerGroupMetadata,
) -> None:
    """Raises what went wrong; the consumer then goes on from what is committed."""
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
                raise  # of an earlier transaction, which was left while it committed
            await _commit_at_last(producer)
    except BaseException as error:
        rewind(consumer, polled)
        if is_complete and isinstance(error, asyncio.CancelledError):
            await _end_at_last(producer)
        raise


async def _commit_at_last(producer: Producer) -> None:
    """The commit takes longer than max.block.ms. Nothing can be said or done before it has ended."""
    try:
        await until_known(producer.commit_transaction)
    except AbortableError:
        await until_known(producer.abort_transaction)
        raise


async def _end_at_last(producer: Producer) -> None:
    """Cancelled while the transaction was ending: that goes on, and the next one cannot begin before."""
    try:
        await _commit_at_last(producer)
    except KafkaError as error:
        logger.info("cancelled in a commit that has failed: %s", error)


def _may_pass(error: KafkaError) -> bool:
    """Whether the same records may go through the next time: not where one is too large, or may not be written."""
    if isinstance(error, FatalError):
        return False
    if error.code is ErrorCode.INVALID_TXN_STATE:
        return isinstance(error, AbortableError)  # the coordinator has aborted it; else a call was wrong
    return error.retriable or rule_of(error.code).is_repeated


def rewind(consumer: Consumer, polled: Polled) -> None:
    """Have `consumer` read again what it got by this poll and did not commit.

    To the committed offset: the group may have given the partition to somebody else meanwhile, and who is cancelled in
    a commit, or gives up waiting for it, does not know whether it counts. The next poll looks it up, once all is
    decided: so there is nothing here that could fail or be cancelled, and have records passed over or seen twice.
    """
    for partition in consumer.assignment().intersection(polled):
        consumer.seek_to_committed(partition, polled[partition][0].offset)


def _check(consumer: Consumer, producer: Producer) -> None:
    config = consumer.config
    if producer.config.transactional_id is None:
        raise ConfigError("transactional_id: consume-process-produce needs a producer that has one")
    if config.group_id is None or config.enable_auto_commit:
        raise ConfigError(
            "enable_auto_commit: must be False, with a group_id: the offsets are committed with the transactions"
        )
    if config.isolation_level != "read_committed":
        raise ConfigError(
            "isolation_level: must be 'read_committed', or what a transaction before this one has aborted is processed"
        )
