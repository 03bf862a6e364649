"""Control records: the COMMIT and ABORT markers that end a transaction in a partition.

    key    int16 version 0, int16 type: ABORT 0, COMMIT 1   (S39: swapped types silently swap outcomes)
    value  int16 version 0, int32 epoch of the coordinator that wrote it

A marker is the only record in its batch, which has the transactional bit and the control bit, and base sequence -1
(S39). Additional bytes are allowed, because later versions may append fields; missing bytes are an error. The
counterparts in Kafka are ControlRecordType and EndTransactionMarker.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import Final

from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.records.batch import (
    BASE_OFFSET,
    CONTROL_BIT,
    CRC_AT,
    HEADER,
    LEADER_EPOCH,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    CorruptBatch,
    RecordBatch,
    batch_crc,
)
from oncelog_protocol.records.record import Record, read_records

CONTROL_KEY: Final = Struct(">hh")
END_TRANSACTION_VALUE: Final = Struct(">hi")
CONTROL_RECORD_VERSION: Final = 0
MAX_CONTROL_BATCH_BYTES: Final = 4096
"""Maximum bytes of a control batch: a marker needs 10 bytes for key and value, so a larger batch is no marker batch."""

MARKER_BATCH: Final = Struct(HEADER.format + "4B B4s B6s B")
"""Format of an entire batch with one marker; every transaction writes such a batch to each of its partitions. The
header is followed by the length, attributes, timestamp delta and offset delta of the record, its key and value with
their lengths, and zero headers.
"""
MARKERS_KEPT: Final = 64
"""Maximum number of cached marker batches, which are reused for all partitions of a transaction; each cached batch has
78 bytes.
"""
RECORD_LENGTH: Final = 0x20
KEY_LENGTH: Final = 0x08
VALUE_LENGTH: Final = 0x0C
"""The varints of 16, 4 and 6, the lengths of a marker's record, key and value."""


class ControlType(IntEnum):
    """The type of a control record. Kafka has further types (above 1, for raft), which readers skip."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """The outcome of a transaction in one partition, and the epoch of the coordinator that decided it (S40)."""

    control_type: ControlType
    coordinator_epoch: int

    @property
    def is_commit(self) -> bool:
        return self.control_type is ControlType.COMMIT

    def key(self) -> bytes:
        return CONTROL_KEY.pack(CONTROL_RECORD_VERSION, self.control_type)

    def value(self) -> bytes:
        return END_TRANSACTION_VALUE.pack(CONTROL_RECORD_VERSION, self.coordinator_epoch)


def parse_control_key(key: bytes | None) -> ControlType | None:
    """Return the type in a control record's key; None for an unknown type. Raises CorruptBatch."""
    if key is None or len(key) < CONTROL_KEY.size:
        raise CorruptBatch(f"the key of a control record has {CONTROL_KEY.size} bytes, not {key!r}")
    version, control_type = CONTROL_KEY.unpack_from(key)
    if version < CONTROL_RECORD_VERSION:
        raise CorruptBatch(f"control record key version {version}")
    return ControlType(control_type) if control_type in (ControlType.ABORT, ControlType.COMMIT) else None


def parse_marker(record: Record) -> EndTransactionMarker | None:
    """Parse the record of a control batch as a transaction marker; None for another type. Raises CorruptBatch."""
    control_type = parse_control_key(record.key)
    if control_type is None:
        return None
    if record.value is None or len(record.value) < END_TRANSACTION_VALUE.size:
        raise CorruptBatch(f"the value of a marker has {END_TRANSACTION_VALUE.size} bytes, not {record.value!r}")
    version, coordinator_epoch = END_TRANSACTION_VALUE.unpack_from(record.value)
    if version < CONTROL_RECORD_VERSION:
        raise CorruptBatch(f"marker value version {version}")
    return EndTransactionMarker(control_type, coordinator_epoch)


def read_marker(batch: RecordBatch) -> EndTransactionMarker | None:
    """Return the marker in the control batch `batch`; None if the batch contains another type, or nothing (a cleaner
    has emptied it).

    Raises CorruptBatch.
    """
    assert batch.is_control, "only control batches hold markers"
    for record in read_records(batch, max_decompressed_bytes=MAX_CONTROL_BATCH_BYTES):
        return parse_marker(record)
    return None


def marker_batch(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """Return the control batch with `marker` for the producer whose transaction the marker ends; `timestamp` is in
    ms."""
    batch = bytearray(_marker_bytes(marker, producer_id, producer_epoch, timestamp))
    if base_offset:
        BASE_OFFSET.pack_into(batch, 0, base_offset)
    if partition_leader_epoch != NO_PARTITION_LEADER_EPOCH:
        LEADER_EPOCH.pack_into(batch, LEADER_EPOCH_AT, partition_leader_epoch)
    return batch


@lru_cache(maxsize=MARKERS_KEPT)
def _key_and_value(marker: EndTransactionMarker) -> tuple[bytes, bytes]:
    return marker.key(), marker.value()


@lru_cache(maxsize=MARKERS_KEPT)
def _marker_bytes(marker: EndTransactionMarker, producer_id: int, producer_epoch: int, timestamp: int) -> bytes:
    """Return the batch that is the same in all partitions of a transaction; the header fields outside the CRC are not
    set.
    """
    key, value = _key_and_value(marker)
    batch = bytearray(
        MARKER_BATCH.pack(
            0, MARKER_BATCH.size - LOG_OVERHEAD, NO_PARTITION_LEADER_EPOCH, MAGIC_V2, 0,
            TRANSACTIONAL_BIT | CONTROL_BIT, 0, timestamp, timestamp, producer_id, producer_epoch, NO_SEQUENCE, 1,
            RECORD_LENGTH, 0, 0, 0,
            KEY_LENGTH, key, VALUE_LENGTH, value, 0,
        )
    )  # fmt: skip
    batch[CRC_AT : CRC_AT + 4] = batch_crc(batch).to_bytes(4, "big")
    return bytes(batch)
