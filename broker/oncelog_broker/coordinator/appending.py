"""Appends the records of one step (one call of a coordinator's state machine) as one batch, and translates append
errors into coordinator error codes.
"""

from __future__ import annotations

import logging
from typing import Final

from oncelog_broker.coordinator.effects import Effects, Encoded
from oncelog_broker.log.validation import AppendOrigin
from oncelog_broker.replication.partition import Partition
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import HEADER_SIZE, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from oncelog_protocol.records.builder import MAX_BATCH_SIZE, RecordBatchBuilder, single_record_batch
from oncelog_protocol.records.compression import Compression

logger = logging.getLogger(__name__)

ACKS_ALL: Final = -1
APPEND_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.CORRUPT_MESSAGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Error code with which an append to the log fails -> the error code that the coordinator's client gets."""
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""Error codes of appends whose records are too large. The coordinator's client gets the error code in the field
`too_large` of `Effects` instead.
"""
RECORD_OVERHEAD: Final = 32
"""Maximum size in bytes of a coordinator's record, not counting its key and value."""


def append_records(
    partition: Partition, encoded: list[Encoded], effects: Effects, now_ms: int, compression: Compression
) -> int:
    """Append one batch with the records of a step (one call of the state machine); returns the base offset of the
    batch. Raises KafkaError with an error code for the coordinator's client (see `APPEND_ERRORS`); after an error
    nothing has been appended."""
    producer_id, producer_epoch = effects.producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    is_transactional = producer_id != NO_PRODUCER_ID
    batch: bytearray | memoryview
    if len(encoded) == 1 and compression is Compression.NONE:  # the usual case
        ((key, value),) = encoded
        batch = single_record_batch(
            now_ms, key, value,
            producer_id=producer_id, producer_epoch=producer_epoch, transactional=is_transactional,
        )  # fmt: skip
    else:
        builder = RecordBatchBuilder(MAX_BATCH_SIZE)
        for key, value in encoded:
            if builder.append(now_ms, key, value) is None:
                raise ValueError(f"more than {MAX_BATCH_SIZE} bytes of records do not fit a batch")
        builder.close(compression)
        batch = builder.build(producer_id=producer_id, producer_epoch=producer_epoch, transactional=is_transactional)
    return append_batch(partition, batch, effects.too_large)


def append_batch(partition: Partition, batch: bytearray | memoryview, too_large: ErrorCode) -> int:
    """Append a batch of a coordinator's records; returns its base offset. `too_large` is the error code for records
    that are too large for the log. Raises KafkaError as `append_records`.
    """
    try:
        base_offset, _ = partition.append(memoryview(batch), required_acks=ACKS_ALL, origin=AppendOrigin.COORDINATOR)
    except KafkaError as error:
        logger.warning("append failed", extra={"partition": partition.log.name, "reason": error})
        code = too_large if error.code in TOO_LARGE else APPEND_ERRORS.get(error.code, error.code)
        raise KafkaError(code, error.message) from error
    return base_offset


def divided(records: list[Encoded], max_bytes: int) -> list[int]:
    """Divide the records into batches; returns the number of records of each batch. No batch is larger than
    `max_bytes`, except a batch with a single record that is larger.
    """
    sizes: list[int] = []
    left = 0
    for key, value in records:
        size = RECORD_OVERHEAD + len(key) + len(value or b"")
        if size > left or not sizes:
            sizes.append(0)
            left = max_bytes - HEADER_SIZE
        sizes[-1] += 1
        left -= size
    return sizes
