"""The records of transactional ids, and how they are encoded in Kafka's log format (S32). Pure."""

from __future__ import annotations

from typing import NamedTuple

from oncelog_broker.coordinator.effects import Encoded
from oncelog_broker.coordinator.transaction.metadata import TopicPartition, TransactionMetadata
from oncelog_broker.coordinator.transaction.state_batch import key_bytes, value_bytes
from oncelog_broker.coordinator.transaction.states import TransactionState
from oncelog_protocol.coordinator_records.transaction_state import (
    TRANSACTION_LOG_KEY_VERSION,
    TransactionLogKey,
    TransactionLogValue,
)
from oncelog_protocol.coordinator_records.versioned import decode_versioned, read_version


class TransactionRecord(NamedTuple):
    """The record with the new state of a transactional id; a `metadata` of None is a tombstone."""

    transactional_id: str
    metadata: TransactionMetadata | None


def encode(record: TransactionRecord) -> Encoded:
    """Return the bytes (key and value) of a record. Raises UnencodableMessage for values that the record's schema
    cannot represent.
    """
    transactional_id, metadata = record
    return Encoded(key_bytes(transactional_id), None if metadata is None else value_bytes(metadata))


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Decode a record; returns None for an unknown kind of a later version. Raises MalformedMessage."""
    if read_version(key) != TRANSACTION_LOG_KEY_VERSION:
        return None
    transactional_id = decode_versioned(TransactionLogKey, key).transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    return TransactionRecord(
        transactional_id, _metadata_of(transactional_id, decode_versioned(TransactionLogValue, value))
    )


def _metadata_of(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),  # type: ignore[call-arg]
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_timestamp=value.transaction_start_timestamp_ms,
        last_update_timestamp=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_transaction_version=value.client_transaction_version,
        next_producer_epoch=value.next_producer_epoch,
    )
