"""Builds the records and batches that log the state of a transactional id, from parts that stay the same. Pure.

A transaction logs its state three times or more, each time with the same key, mostly with the same partitions, and with
numbers of fixed size. So a value consists of four parts: two groups of numbers, the list of partitions between them,
and the tagged fields. The lists and the tagged fields are cached. The places and sizes of the numbers are those of the
declared message (`TransactionLogValue`): they are found by encoding the message (`oncelog_protocol.templates`).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from struct import Struct
from typing import Final

from oncelog_broker.coordinator.transaction.metadata import TopicPartition, TransactionMetadata
from oncelog_broker.coordinator.transaction.states import TransactionState
from oncelog_protocol.coordinator_records.transaction_state import (
    TRANSACTION_LOG_KEY_VERSION,
    TRANSACTION_LOG_VALUE_VERSION,
    TransactionLogKey,
    TransactionLogValue,
)
from oncelog_protocol.coordinator_records.versioned import encode_versioned
from oncelog_protocol.records.batch import BASE_TIMESTAMP_AT, CRC_AT, batch_crc
from oncelog_protocol.records.builder import single_record_batch
from oncelog_protocol.records.packing import NO_HEADERS
from oncelog_protocol.templates import changing

IDS_KEPT: Final = 4096
"""Maximum number of transactional ids whose keys are cached; a cached key has the size of the id."""
HEADS_KEPT: Final = 4096
"""Maximum number of cached heads of batches, of which a transactional id in use has two or three. A head has about 80
bytes and the transactional id.
"""
LISTS_KEPT: Final = 1024
"""Maximum number of cached lists of partitions."""
MAX_KEPT_PARTITIONS: Final = 32
"""Lists of more partitions are not cached, because the cache would take too much memory."""

TIMESTAMPS: Final = Struct(">qq")
"""The base timestamp and the maximum timestamp of a batch, which are adjacent."""
CRC: Final = Struct(">I")
PartitionsSchema = TransactionLogValue.PartitionsSchema


def declared_value(metadata: TransactionMetadata) -> TransactionLogValue:
    """Return the message that logs this state."""
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


@lru_cache(maxsize=IDS_KEPT)
def key_bytes(transactional_id: str) -> bytes:
    """Return the encoded key of a transactional id."""
    return encode_versioned(TransactionLogKey(transactional_id=transactional_id), TRANSACTION_LOG_KEY_VERSION)


def value_bytes(metadata: TransactionMetadata) -> bytes:
    """Return the encoded value that logs this state. Raises UnencodableMessage for numbers that the declared message
    cannot represent.
    """
    (
        _, producer_id, epoch, timeout_ms, state, partitions, start, last_update, previous_id, next_id, version, _,
        next_epoch, _,
    ) = metadata  # fmt: skip
    if state is TransactionState.EMPTY:
        middle = NO_LIST
    else:
        middle = _kept_list(partitions) if len(partitions) <= MAX_KEPT_PARTITIONS else _list_of(partitions)
    try:
        return (
            _HEAD.pack(VERSION, producer_id, epoch, timeout_ms, state)
            + middle
            + _TIMES.pack(last_update, start)
            + _tags(previous_id, next_id, version, next_epoch)
        )
    except struct.error:
        return encode_versioned(declared_value(metadata), TRANSACTION_LOG_VALUE_VERSION)


def state_batch(metadata: TransactionMetadata) -> bytearray:
    """Return the batch of one record that logs this state at the time of its last update; it has the bytes that
    `single_record_batch` builds.
    """
    value = value_bytes(metadata)
    batch = bytearray(_batch_head(metadata.transactional_id, len(value)) + value + NO_HEADERS)
    now_ms = metadata.last_update_timestamp
    TIMESTAMPS.pack_into(batch, BASE_TIMESTAMP_AT, now_ms, now_ms)
    CRC.pack_into(batch, CRC_AT, batch_crc(batch))
    return batch


@lru_cache(maxsize=HEADS_KEPT)
def _batch_head(transactional_id: str, value_size: int) -> bytes:
    """Return the bytes before the value in a batch with one record: the header, with timestamps and CRC 0, and the
    record's key and sizes.
    """
    batch = single_record_batch(0, key_bytes(transactional_id), bytes(value_size))
    CRC.pack_into(batch, CRC_AT, 0)
    return bytes(batch[: len(batch) - value_size - len(NO_HEADERS)])


# --- the parts of a value ---------------------------------------------------------------------------------------------


def _encode(value: TransactionLogValue) -> bytes:
    return encode_versioned(value, TRANSACTION_LOG_VALUE_VERSION)


def _layout() -> tuple[bytes, Struct, Struct, bytes]:
    """Return the version in front of the value; the formats of the numbers before and after the list of partitions
    (version, producer id, producer epoch, timeout, state; time of the last update, start time); and the tagged fields
    if all of them have their default values.
    """
    value = TransactionLogValue(
        producer_id=0,
        producer_epoch=0,
        transaction_timeout_ms=0,
        transaction_status=0,
        transaction_partitions=[],
        transaction_last_update_timestamp_ms=0,
        transaction_start_timestamp_ms=0,
    )
    names = (
        "producer_id", "producer_epoch", "transaction_timeout_ms", "transaction_status",
        "transaction_last_update_timestamp_ms", "transaction_start_timestamp_ms",
    )  # fmt: skip
    pattern = changing(lambda: _encode(value), *((value, name) for name in names))
    version, *adjacent, _, between, no_tags = pattern.kept
    assert not any([*adjacent, between]), "other fields lie between the numbers"
    codes = [field[0] for field in pattern.format.split("s")[1:-1]]
    return version, Struct(f">{len(version)}s{''.join(codes[:4])}"), Struct(f">{''.join(codes[4:])}"), no_tags


def _list_of(partitions: frozenset[TopicPartition] | None) -> bytes:
    """Return the encoded list of partitions; None is the list of the state Empty."""
    state = TransactionState.EMPTY if partitions is None else TransactionState.ONGOING
    encoded = _encode(declared_value(TransactionMetadata("", 0, 0, 0, state, partitions or frozenset())))
    return encoded[_HEAD.size : len(encoded) - _TIMES.size - len(_NO_TAGS)]


_kept_list = lru_cache(maxsize=LISTS_KEPT)(_list_of)


@lru_cache(maxsize=LISTS_KEPT)
def _tags(previous_id: int, next_id: int, version: int, next_epoch: int) -> bytes:
    """Return the encoded tagged fields, which end the value."""
    metadata = TransactionMetadata(
        "", 0, 0, 0, previous_producer_id=previous_id, next_producer_id=next_id, client_transaction_version=version,
        next_producer_epoch=next_epoch,
    )  # fmt: skip
    return _encode(declared_value(metadata))[_HEAD.size + len(NO_LIST) + _TIMES.size :]


VERSION, _HEAD, _TIMES, _NO_TAGS = _layout()
NO_LIST: Final = _list_of(None)
