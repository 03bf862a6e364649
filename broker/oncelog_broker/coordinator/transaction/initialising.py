"""What InitProducerId makes of a transactional id (S34, S35, KIP-360). Pure.

A producer that is new shows no producer id: it takes over, and whoever had the id before is fenced. One that goes on
after an error shows what it has, and gets the next epoch only while nobody else took over.
"""

from __future__ import annotations

from oncelog_broker.coordinator.transaction.metadata import NO_EPOCH, NeedsProducerId, TransactionMetadata, is_exhausted
from oncelog_broker.coordinator.transaction.states import TransactionState
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.producer_id import ProducerIdAndEpoch


def initialise(
    transactional_id: str,
    metadata: TransactionMetadata | None,
    shown: ProducerIdAndEpoch | None,
    timeout_ms: int,
    now_ms: int,
    spare_producer_id: int | None,
) -> TransactionMetadata:
    """What is to be logged; or `metadata` itself, for a producer that asks again for what it was given.

    PrepareAbort means that an open transaction is aborted first, and that the producer has to come again.
    Raises KafkaError CONCURRENT_TRANSACTIONS, PRODUCER_FENCED; NeedsProducerId.
    """
    if metadata is None:
        if spare_producer_id is None:
            raise NeedsProducerId
        created = TransactionMetadata(transactional_id, spare_producer_id, NO_EPOCH, timeout_ms)
        return created.reinitialised(timeout_ms, now_ms, None)
    if metadata.state.is_prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{metadata!r} is being completed")
    shown_epoch = NO_EPOCH if shown is None else _checked_epoch(metadata, shown)
    if metadata.state is TransactionState.ONGOING:
        return metadata.fenced(now_ms, spare_producer_id, last_epoch=shown_epoch)
    if shown is not None and shown_epoch != metadata.producer_epoch:
        return metadata  # a retry
    return metadata.reinitialised(timeout_ms, now_ms, spare_producer_id, last_epoch=shown_epoch)


def _checked_epoch(metadata: TransactionMetadata, shown: ProducerIdAndEpoch) -> int:
    """The epoch that a producer shows which may go on: the current one, or where no transaction is open the one before.

    Kafka aborts an open transaction whatever epoch is shown; a late duplicate of the request that led to the current
    epoch would abort the transaction of its own producer, so here it is refused. Raises PRODUCER_FENCED.
    """
    is_same = shown.producer_id == metadata.producer_id
    is_before_rotation = shown.producer_id == metadata.previous_producer_id and is_exhausted(shown.epoch)
    if metadata.belongs_to(shown):
        return shown.epoch
    is_retry = (is_same or is_before_rotation) and shown.epoch == metadata.last_epoch
    if is_retry and metadata.state is not TransactionState.ONGOING:
        return shown.epoch
    raise KafkaError(ErrorCode.PRODUCER_FENCED, f"{shown} is not the producer of {metadata!r}")
