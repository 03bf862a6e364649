"""Checks the header of a batch, and the lengths of its records, before a leader appends the batch. The checks have no
side effects (S59, T18, T20).

Every batch is checked for all header fields, the CRC, and whether the number of records fits into the number of bytes.
Unless `record.validation=header` is set, the lengths of the first records of an uncompressed batch are checked, too:
each record must begin where the previous record ends. `record_validation` makes the checks that read all records:
timestamps, keys, compressed records.

In contrast to Kafka, the error for an unknown compression id is UNSUPPORTED_COMPRESSION_TYPE. Kafka's response,
UNKNOWN_SERVER_ERROR, makes idempotent clients reset their state (E23).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from oncelog_broker.log.config import FULL, HEADER, LogConfig
from oncelog_broker.log.header_fields import BATCH_LENGTH, CRC, MAGIC, HeaderFields
from oncelog_protocol.crc import crc32c
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.light_classes import dataclass
from oncelog_protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    CorruptBatch,
)
from oncelog_protocol.records.columns import MIN_RECORD_SIZE
from oncelog_protocol.records.compression import MAX_EXPANSION
from oncelog_protocol.records.record_scan import records_end

HIGHEST_COMPRESSION: Final = 4
"""The compression ids: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""

FRAMES_WALKED: Final = 8
"""The number of records at the start of an uncompressed batch whose lengths are checked; this takes about a
microsecond. A few records are enough, because a defective producer writes wrong lengths from the first record on.
"""

_CONTROL_OR_TRANSACTIONAL: Final = CONTROL_BIT | TRANSACTIONAL_BIT


class AppendOrigin(Enum):
    """The source of the records, which decides how thoroughly they are validated. Kafka's counterpart is
    AppendOrigin.
    """

    CLIENT = "client"
    """Origin: a producer, whose batches are validated completely."""
    COORDINATOR = "coordinator"
    """Origin: the transaction or group coordinator, which may write control batches, and several batches in one append.
    """


@dataclass(frozen=True, slots=True)
class ValidationLimits:
    """Values that validation needs for each batch, computed once from a LogConfig."""

    max_batch_size: int
    max_segment_size: int
    timestamp_after_max_ms: int
    timestamp_before_max_ms: int
    stamps_append_time: bool
    requires_keys: bool
    walks_frames: bool
    walks_records: bool
    max_decompressed_size: int

    @classmethod
    def of(cls, config: LogConfig) -> ValidationLimits:
        return cls(
            max_batch_size=config.max_message_bytes,
            max_segment_size=config.segment_bytes,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            stamps_append_time=config.stamps_append_time,
            requires_keys=config.is_compacted,
            walks_frames=config.record_validation != HEADER,
            walks_records=config.record_validation == FULL,
            max_decompressed_size=config.message_max_decompressed_bytes,
        )


def check_batch(batch: memoryview, header: HeaderFields, limits: ValidationLimits) -> None:
    """Check a batch of any origin: it must be a complete v2 batch with a valid CRC, no larger than the topic allows.

    `batch` has at least HEADER_SIZE bytes and begins with `header`; more bytes may follow the batch. Raises KafkaError.
    """
    size = header[BATCH_LENGTH] + LOG_OVERHEAD
    if header[MAGIC] != MAGIC_V2:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"message format v{header[MAGIC]}: only v2 is accepted")
    if size < HEADER_SIZE or size > len(batch):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"batch length {header[BATCH_LENGTH]} in {len(batch)} bytes of records"
        )
    if size > limits.max_batch_size:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes is too large: max.message.bytes is {limits.max_batch_size}",
        )
    if crc32c(batch[CRC_START:size]) != header[CRC]:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the CRC of the batch does not match its content")


def check_client_batch(batch: memoryview, header: HeaderFields, *, walks_frames: bool) -> None:
    """Check a producer's batch after `check_batch`, except its timestamps (`record_validation` checks the timestamps).

    `batch` must contain all records that the request has for the partition. Raises KafkaError.
    """
    base_offset, length, _, _, _, attributes, last_delta, _, _, pid, epoch, sequence, count = header
    if length + LOG_OVERHEAD != len(batch):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a Produce request must contain one batch per partition")
    if count <= 0 or last_delta != count - 1:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{count} records, but the last offset delta is {last_delta}")
    if base_offset != 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the base offset of a producer's batch is 0, not {base_offset}")
    if attributes & _CONTROL_OR_TRANSACTIONAL:
        if attributes & CONTROL_BIT:
            raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
        if pid < 0:
            raise KafkaError(ErrorCode.INVALID_RECORD, "a transactional batch without a producer id")
    if attributes & COMPRESSION_MASK > HIGHEST_COMPRESSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {attributes & COMPRESSION_MASK} is unknown"
        )
    if pid >= 0 and (sequence <= NO_SEQUENCE or epoch <= NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"producer {pid} with epoch {epoch}, base sequence {sequence}")
    if attributes & TIMESTAMP_TYPE_BIT:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime")
    expanded = (length + LOG_OVERHEAD - HEADER_SIZE) * MAX_EXPANSION[attributes & COMPRESSION_MASK]
    if count * MIN_RECORD_SIZE > expanded:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"a batch of {length} bytes cannot contain {count} records")
    if walks_frames and not attributes & COMPRESSION_MASK:
        try:
            end = records_end(batch, HEADER_SIZE, min(count, FRAMES_WALKED))
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
        if end != len(batch) and count <= FRAMES_WALKED:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"{count} records end at byte {end} of {len(batch)}")


def why_wrong_timestamp(timestamp: int, limits: ValidationLimits, now_ms: int) -> str | None:
    """Return the error message for the timestamp of a record; None if the timestamp is valid."""
    if timestamp - now_ms > limits.timestamp_after_max_ms:
        return f"timestamp {timestamp} is more than {limits.timestamp_after_max_ms} ms after the clock"
    if limits.timestamp_before_max_ms < now_ms - timestamp and timestamp != NO_TIMESTAMP:
        return f"timestamp {timestamp} is more than {limits.timestamp_before_max_ms} ms before the clock"
    return None
