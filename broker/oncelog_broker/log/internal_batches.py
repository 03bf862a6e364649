"""Appends several batches in one operation: batches from a coordinator, or batches that a follower fetched.

`PartitionLog.append_as_leader` handles the hot path, a produce request with one batch, without this module.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from oncelog_broker.log.validation import ValidationLimits, check_batch
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import (
    ATTRIBUTES_AT,
    BASE_OFFSET,
    CRC_AT,
    HEADER,
    LEADER_EPOCH,
    LEADER_EPOCH_AT,
    MAX_TIMESTAMP_AT,
    TIMESTAMP_TYPE_BIT,
    Buffer,
    CorruptBatch,
    RecordBatch,
    batch_crc,
    batches,
)

ATTRIBUTES: Final = Struct(">h")
TIMESTAMP: Final = Struct(">q")
CRC: Final = Struct(">I")


def stamp_append_time(batch: memoryview, attributes: int, now_ms: int) -> None:
    """Give all records of `batch` the timestamp `now_ms`, by changing only the batch header and the CRC."""
    ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, attributes | TIMESTAMP_TYPE_BIT)
    TIMESTAMP.pack_into(batch, MAX_TIMESTAMP_AT, now_ms)
    CRC.pack_into(batch, CRC_AT, batch_crc(batch))


def checked_batches(records: Buffer) -> list[RecordBatch]:
    """Return all batches of `records`; each batch is complete and has a valid CRC. Raises CORRUPT_MESSAGE."""
    try:
        whole = list(batches(records))
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    for batch in whole:
        if not batch.crc_is_valid():
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the CRC of {batch!r} is wrong")
    return whole


def assign_offsets(
    records: memoryview, limits: ValidationLimits, *, base_offset: int, leader_epoch: int, now_ms: int
) -> list[RecordBatch]:
    """Check all batches in `records`, then write the offsets from `base_offset` on, the leader epoch and the append
    time into these batches.

    Raises the errors of `check_batch`, and INVALID_RECORD for a batch with a producer id; `records` is then unchanged.
    """
    whole = checked_batches(records)
    for batch in whole:
        check_batch(batch.view, HEADER.unpack_from(records, batch.start), limits)
        if batch.has_producer_id:
            raise KafkaError(ErrorCode.INVALID_RECORD, "batches with a producer id are appended one at a time")
    next_offset = base_offset
    for batch in whole:
        view = batch.view
        if limits.stamps_append_time:
            stamp_append_time(view, batch.attributes, now_ms)
            batch.max_timestamp = now_ms
        BASE_OFFSET.pack_into(view, 0, next_offset)
        LEADER_EPOCH.pack_into(view, LEADER_EPOCH_AT, leader_epoch)
        batch.base_offset, batch.partition_leader_epoch = next_offset, leader_epoch
        next_offset = batch.next_offset
    return whole


def check_offsets(whole: list[RecordBatch], next_offset: int) -> None:
    """Check that the offsets of the batches increase and that the first offset is at least `next_offset`. Raises
    OFFSET_OUT_OF_RANGE.
    """
    for batch in whole:
        if batch.base_offset < next_offset or batch.last_offset < batch.base_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{batch!r} does not come after offset {next_offset - 1}")
        next_offset = batch.next_offset
