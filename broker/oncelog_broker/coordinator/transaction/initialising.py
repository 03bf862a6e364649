"""Decides the effect of InitProducerId on a transactional id (S34, S35, S120, KIP-360, KIP-939). Pure.

A new producer sends no producer id: the new producer becomes the owner of the transactional id, and the previous
producer is fenced. A producer that continues after an error sends its producer id and epoch, and gets the next epoch
only if no other producer has become the owner since.

An open transaction is aborted first, unless the request demands to keep the transaction. If the request keeps the open
transaction, the new producer can only commit or abort this transaction.
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
    *,
    keeps_open: bool = False,
) -> TransactionMetadata:
    """Returns the metadata to log, or `metadata` itself for a repeated request that changes nothing.

    If the result has the state PrepareAbort, an open transaction is aborted first, and the producer must repeat the
    request. If the result has the state Ongoing, the open transaction is kept (`keeps_open`), and the field `client`
    has the new owner's producer id and epoch. Raises KafkaError CONCURRENT_TRANSACTIONS, PRODUCER_FENCED;
    NeedsProducerId.
    """
    if metadata is None:
        if spare_producer_id is None:
            raise NeedsProducerId
        created = TransactionMetadata(transactional_id, spare_producer_id, NO_EPOCH, timeout_ms)
        return created.reinitialised(timeout_ms, now_ms, None)
    if metadata.state.is_prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{metadata!r} is being completed")
    shown_epoch = NO_EPOCH if shown is None else _checked_epoch(metadata, shown)
    if metadata.state is TransactionState.ONGOING and keeps_open:
        return metadata.taken_over(timeout_ms, now_ms, spare_producer_id)
    if metadata.state is TransactionState.ONGOING:
        return metadata.fenced(now_ms, spare_producer_id, last_epoch=shown_epoch)
    if shown is not None and shown_epoch != metadata.producer_epoch:
        # The owner already has its next epoch: this request repeats a request whose response was lost, or the request
        # that has aborted the owner's open transaction.
        is_done = metadata.state is TransactionState.EMPTY and metadata.timeout_ms == timeout_ms
        return metadata if is_done else metadata.granted_again(timeout_ms, now_ms)
    return metadata.reinitialised(timeout_ms, now_ms, spare_producer_id, last_epoch=shown_epoch)


def _checked_epoch(metadata: TransactionMetadata, shown: ProducerIdAndEpoch) -> int:
    """Return the epoch of `shown` (the producer id and epoch in the request) if the producer may continue. The current
    epoch is valid; the previous epoch is valid only until a transaction begins with the current epoch.

    Kafka also accepts the previous epoch after that, and aborts a transaction that is open. This broker refuses such a
    request, because a producer that has begun a transaction knows its epoch. The request may be a late duplicate of the
    InitProducerId that created the current epoch, and would abort the transaction of its own producer, or hide the
    outcome of an ended transaction from an EndTxn that the producer repeats. Raises PRODUCER_FENCED.
    """
    is_same = shown.producer_id == metadata.producer_id
    is_before_rotation = shown.producer_id == metadata.previous_producer_id and is_exhausted(shown.epoch)
    if metadata.belongs_to(shown):
        return shown.epoch
    if (is_same or is_before_rotation) and shown.epoch == metadata.last_epoch:
        return shown.epoch
    raise KafkaError(ErrorCode.PRODUCER_FENCED, f"{shown} is not the producer of {metadata!r}")
