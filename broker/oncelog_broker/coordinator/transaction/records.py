"""The records of transactional ids, and how they are encoded in Kafka's log format (S32). Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from oncelog_broker.coordinator.effects import Encoded
from oncelog_broker.coordinator.transaction.metadata import TopicPartition, TransactionMetadata
from oncelog_broker.coordinator.transaction.states import TransactionState
from oncelog_protocol.coordinator_records.transaction_state import (
    TRANSACTION_LOG_KEY_VERSION,
    TRANSACTION_LOG_VALUE_VERSION,
    TransactionLogKey,
    TransactionLogValue,
)
from oncelog_protocol.coordinator_records.versioned import decode_versioned, encode_versioned, read_version

PartitionsSchema = TransactionLogValue.PartitionsSchema


class TransactionRecord(NamedTuple):
    """The record with the new state of a transactional id; a `metadata` of None is a tombstone."""

    transactional_id: str
    metadata: TransactionMetadata | None


def encode(record: TransactionRecord) -> Encoded:
    """Return the bytes (key and value) of a record. Raises UnencodableMessage for values that the record's schema
    cannot represent.
    """
    key = _key_of(record.transactional_id)
    if record.metadata is None:
        return Encoded(key, None)
    return Encoded(key, encode_versioned(_value_of(record.metadata), TRANSACTION_LOG_VALUE_VERSION))


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


@lru_cache(maxsize=4096)
def _key_of(transactional_id: str) -> bytes:
    """Return the encoded key of a transactional id. Keys are cached, because each transaction logs three or more
    records with the same key.
    """
    return encode_versioned(TransactionLogKey(transactional_id=transactional_id), TRANSACTION_LOG_KEY_VERSION)


def _value_of(metadata: TransactionMetadata) -> TransactionLogValue:
    topics: dict[str, list[int]] = {}
    for topic, partition in metadata.partitions:
        topics.setdefault(topic, []).append(partition)
    is_empty = metadata.state is TransactionState.EMPTY
    return TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=None
        if is_empty
        else [PartitionsSchema(topic=topic, partition_ids=sorted(topics[topic])) for topic in sorted(topics)],
        transaction_last_update_timestamp_ms=metadata.last_update_timestamp,
        transaction_start_timestamp_ms=metadata.start_timestamp,
        client_transaction_version=metadata.client_transaction_version,
        next_producer_epoch=metadata.next_producer_epoch,
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
