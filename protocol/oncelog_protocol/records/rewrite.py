"""Rewrites a batch from which the log cleaner has removed records (KIP-534, S56).

Offsets, timestamps, producer and sequence stay the same. The base offset and the last offset delta are kept too, so the
batch covers the same range of offsets and of sequences. The source is Kafka's MemoryRecords.filterTo and
DefaultRecordBatch.writeEmptyHeader.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog_protocol.records.batch import (
    COMPRESSION_MASK,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_TIMESTAMP,
    RecordBatch,
    batch_crc,
)
from oncelog_protocol.records.columns import read_length
from oncelog_protocol.records.compression import Compression, compress
from oncelog_protocol.records.packing import ATTRIBUTES
from oncelog_protocol.records.record_scan import RecordSpan
from oncelog_protocol.records.varint import encode_varint, encode_varlong, read_varlong


def rewrite_batch(
    batch: RecordBatch, data: bytes, kept: Sequence[RecordSpan], *, delete_horizon_ms: int | None
) -> bytearray:
    """Return `batch` with only the records `kept` (at least one), in the same compression. `data` contains the
    decompressed records.

    The batch's tombstones or its marker may be removed from the time `delete_horizon_ms` on; None keeps the horizon of
    the batch. The function needs no event loop, so it may run in a worker thread. Raises CorruptBatch.
    """
    attributes, base_timestamp = batch.attributes, batch.base_timestamp
    max_timestamp = batch.max_timestamp
    if not batch.is_log_append_time:
        largest = base_timestamp + max(span.timestamp_delta for span in kept)
        max_timestamp = max(NO_TIMESTAMP, min(largest, max_timestamp))
    records = None if delete_horizon_ms is None else _based_on(delete_horizon_ms, batch, data, kept)
    if records is not None and delete_horizon_ms is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON_BIT, delete_horizon_ms
    else:
        records = b"".join([data[span.start : span.end] for span in kept])
    payload = compress(Compression(batch.compression), records)
    return _assemble(batch, payload, attributes, base_timestamp, max_timestamp, len(kept))


def empty_batch(batch: RecordBatch) -> bytearray:
    """Return the header of `batch` without records; it preserves the last offset and the last sequence of its
    producer."""
    attributes = batch.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    return _assemble(batch, b"", attributes, NO_TIMESTAMP, batch.max_timestamp, 0)


def _assemble(
    batch: RecordBatch, payload: bytes, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytearray:
    made = bytearray(HEADER_SIZE)
    made += payload
    HEADER.pack_into(
        made,
        0,
        batch.base_offset,
        len(made) - LOG_OVERHEAD,
        batch.partition_leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        batch.last_offset_delta,
        base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        count,
    )
    made[CRC_AT : CRC_AT + 4] = batch_crc(made).to_bytes(4, "big")
    return made


def _based_on(base_timestamp: int, batch: RecordBatch, data: bytes, kept: Sequence[RecordSpan]) -> bytes | None:
    """Return the records with timestamp deltas relative to `base_timestamp`.

    Return None if a delta does not fit into int64, which happens only with invalid timestamps; without these deltas no
    delete horizon can be set, and the tombstones are kept.
    """
    shift = batch.base_timestamp - base_timestamp
    try:
        return b"".join([_with_timestamp_delta(data, span, span.timestamp_delta + shift) for span in kept])
    except ValueError:
        return None


def _with_timestamp_delta(data: bytes, span: RecordSpan, delta: int) -> bytes:
    """Return the record with a new timestamp delta, and with its length prefix adapted."""
    _, position = read_length(data, span.start)
    _, position = read_varlong(data, position + 1)
    body = ATTRIBUTES + encode_varlong(delta) + data[position : span.end]
    return encode_varint(len(body)) + body
