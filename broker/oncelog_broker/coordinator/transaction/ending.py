"""Decides the effect of EndTxn on a transactional id (S38, S120, T7). Pure.

Before transactions V2 the epoch does not change between transactions. A repeated EndTxn then looks the same as an
EndTxn for a next transaction that was never begun. Only the state of the transactional id decides between these two
cases. Under V2 the epoch rises with every transaction: a request with the previous epoch is a retry, and a request with
the current epoch ends the present transaction (KIP-890).

Only a request with the owner's producer id and epoch (`TransactionMetadata.client`) may end a transaction. After a new
producer has taken over an open transaction (KIP-939), the producer that wrote its records is fenced.
"""

from __future__ import annotations

from oncelog_broker.coordinator.transaction.metadata import (
    EXHAUSTED_EPOCH,
    TransactionMetadata,
)
from oncelog_broker.coordinator.transaction.states import TransactionState
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V1, TRANSACTIONS_V2
from oncelog_protocol.producer_id import ProducerIdAndEpoch


def end_v1(
    metadata: TransactionMetadata, asking: ProducerIdAndEpoch, commits: bool, now_ms: int
) -> TransactionMetadata:
    """Returns the metadata to log, or `metadata` itself if the transaction has already ended with the requested
    outcome.

    Raises KafkaError INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
    """
    _check_producer_id(metadata, asking)
    if not metadata.belongs_to(asking):
        raise _fenced(metadata, asking)
    if metadata.state is TransactionState.ONGOING:
        return metadata.prepared(commits, now_ms, TRANSACTIONS_V1)
    if metadata.state.is_prepared:
        raise _concurrent(metadata)
    if metadata.state is completed_state(commits):
        return metadata
    raise _invalid(metadata, commits)


def end_v2(
    metadata: TransactionMetadata, asking: ProducerIdAndEpoch, commits: bool, now_ms: int, spare_producer_id: int | None
) -> TransactionMetadata:
    """Return the metadata to log after an EndTxn under transactions V2; the epoch identifies the transaction, and an
    abort is also valid if no transaction is open. Raises the same KafkaErrors as `end_v1`, and NeedsProducerId.
    """
    if _is_retry(metadata, asking):
        if metadata.state.is_prepared:
            raise _concurrent(metadata)
        if not metadata.belongs_to(metadata.producer):
            raise _fenced(metadata, asking)
        if metadata.state is completed_state(commits):
            return metadata
        raise _invalid(metadata, commits)
    if metadata.state.is_prepared and asking == metadata.producer_when_complete:
        raise _concurrent(metadata)
    _check_producer_id(metadata, asking)
    if not metadata.belongs_to(asking):
        raise _fenced(metadata, asking)
    if commits and metadata.state is not TransactionState.ONGOING:
        raise _invalid(metadata, commits)
    return metadata.prepared(commits, now_ms, TRANSACTIONS_V2, spare_producer_id)


def completed_state(commits: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT


def _is_retry(metadata: TransactionMetadata, asking: ProducerIdAndEpoch) -> bool:
    """Whether a request with this producer id and epoch has already ended the last transaction, so that this request
    repeats it after a lost response."""
    has_ended = metadata.state.is_prepared or metadata.state in (
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    )
    if not metadata.is_v2 or not has_ended:
        return False
    client = metadata.client
    before_bump = ProducerIdAndEpoch(client.producer_id, client.epoch - 1)
    before_rotation = ProducerIdAndEpoch(metadata.previous_producer_id, EXHAUSTED_EPOCH)
    return asking == before_bump or (client.epoch == 0 and asking == before_rotation)


def _check_producer_id(metadata: TransactionMetadata, asking: ProducerIdAndEpoch) -> None:
    if asking.producer_id not in (metadata.producer_id, metadata.client.producer_id):
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{asking} is not the producer of {metadata!r}")


def _fenced(metadata: TransactionMetadata, asking: ProducerIdAndEpoch) -> KafkaError:
    return KafkaError(ErrorCode.PRODUCER_FENCED, f"{asking} is not the producer of {metadata!r}")


def _concurrent(metadata: TransactionMetadata) -> KafkaError:
    return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{metadata!r} is being completed")


def _invalid(metadata: TransactionMetadata, commits: bool) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TXN_STATE, f"{'commit' if commits else 'abort'} of {metadata!r}")
