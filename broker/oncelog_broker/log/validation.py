"""What a batch must be before a leader appends it: pure (S59, T18, T20). Every check of Kafka's LogValidator that needs
no look into compressed records; for compacted topics the keys are looked at too.

Differences from Kafka: an unknown compression id answers UNSUPPORTED_COMPRESSION_TYPE (Kafka's UNKNOWN_SERVER_ERROR
makes idempotent clients start over, E23); the bounds on timestamps look at the batch header, not at each record.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from crc32c import crc32c

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.header_fields import HeaderFields
from oncelog_protocol.errors import ErrorCode, KafkaError
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
    RecordBatch,
)
from oncelog_protocol.records.record import has_keyless_record

HIGHEST_COMPRESSION: Final = 4
"""zstd; 0 none, 1 gzip, 2 snappy, 3 lz4."""

_CONTROL_OR_TRANSACTIONAL: Final = CONTROL_BIT | TRANSACTIONAL_BIT


class AppendOrigin(Enum):
    """Who made the records: decides how much of them is believed. Source: Kafka's AppendOrigin."""

    CLIENT = "client"
    """A producer: nothing is believed."""
    COORDINATOR = "coordinator"
    """The transaction or group coordinator: may write control batches, several at once."""
    REPLICATION = "replication"
    """A leader, which has validated them."""


@dataclass(frozen=True, slots=True)
class ValidationLimits:
    """The part of a LogConfig that validation reads for each batch, made once."""

    max_batch_size: int
    max_segment_size: int
    timestamp_after_max_ms: int
    timestamp_before_max_ms: int
    stamps_append_time: bool
    requires_keys: bool

    @classmethod
    def of(cls, config: LogConfig) -> ValidationLimits:
        return cls(
            max_batch_size=config.max_message_bytes,
            max_segment_size=config.segment_bytes,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            stamps_append_time=config.stamps_append_time,
            requires_keys=config.is_compacted,
        )


def check_batch(batch: memoryview, header: HeaderFields, limits: ValidationLimits) -> None:
    """What holds for every origin: a whole v2 batch with a good CRC, no larger than the topic allows.

    `batch` has at least HEADER_SIZE bytes and begins with `header`; more may follow the batch. Raises KafkaError.
    """
    size = header[1] + LOG_OVERHEAD
    if header[3] != MAGIC_V2:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"message format v{header[3]}: only v2 is accepted")
    if size < HEADER_SIZE or size > len(batch):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"batch length {header[1]} in {len(batch)} bytes of records")
    if size > limits.max_batch_size:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes: max.message.bytes is {limits.max_batch_size}"
        )
    if crc32c(batch[CRC_START:size]) != header[4]:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the CRC of the batch does not fit its content")


def check_client_batch(batch: memoryview, header: HeaderFields, limits: ValidationLimits, now_ms: int) -> None:
    """What a producer's batch must keep to besides `check_batch`; `batch` is all records of the partition.

    Raises KafkaError.
    """
    base_offset, length, _, _, _, attributes, last_delta, base_timestamp, max_timestamp, pid, epoch, sequence, count = (
        header
    )
    if length + LOG_OVERHEAD != len(batch):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a produce request must hold one batch per partition")
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
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {attributes & COMPRESSION_MASK} is not known"
        )
    if pid >= 0 and (sequence <= NO_SEQUENCE or epoch <= NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"producer {pid} with epoch {epoch}, base sequence {sequence}")
    if attributes & TIMESTAMP_TYPE_BIT:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime")
    if not limits.stamps_append_time:
        if max_timestamp - now_ms > limits.timestamp_after_max_ms:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {max_timestamp} is more than {limits.timestamp_after_max_ms} ms after the clock",
            )
        if limits.timestamp_before_max_ms < now_ms - base_timestamp and base_timestamp != NO_TIMESTAMP:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {base_timestamp} is more than {limits.timestamp_before_max_ms} ms before the clock",
            )
    if limits.requires_keys:
        _check_keys(batch)


def _check_keys(batch: memoryview) -> None:
    try:
        keyless = has_keyless_record(RecordBatch(batch))
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if keyless:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a compacted topic does not accept a record without a key")
