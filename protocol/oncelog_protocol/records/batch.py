"""The 61-byte header of a v2 record batch, read and patched in place.

The broker treats a batch as opaque bytes: it reads this header, checks the CRC over the rest, and writes the two fields
that lie outside the CRC (base offset, partition leader epoch). This module never reads single records.

    0  base_offset            int64   assigned by the leader            ┐ outside the CRC
    8  batch_length           int32   bytes after this field            │
   12  partition_leader_epoch int32   assigned by the leader            │
   16  magic                  int8    2                                 │
   17  crc                    uint32  CRC-32C of bytes 21..end          ┘
   21  attributes             int16   bits 0-2 compression, 3 timestamp type, 4 transactional, 5 control,
                                      6 delete horizon set
   23  last_offset_delta      int32
   27  base_timestamp         int64   ms since the epoch (the delete horizon if bit 6 is set)
   35  max_timestamp          int64
   43  producer_id            int64   -1: none
   51  producer_epoch         int16   -1: none
   53  base_sequence          int32   -1: none
   57  records_count          int32
   61  the records, compressed together if the attributes name a codec

The source is Kafka's DefaultRecordBatch; see also T18.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from oncelog_protocol.crc import crc32c

Buffer = bytes | bytearray | memoryview

MAGIC_V2: Final = 2
LOG_OVERHEAD: Final = 12
"""Number of bytes of base_offset and batch_length, which batch_length does not include."""
HEADER_SIZE: Final = 61
CRC_START: Final = 21
"""The CRC covers the bytes of a batch from this position to its end."""
MIN_BATCH_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD

HEADER: Final = Struct(">qiibIhiqqqhii")
"""Format of all 13 header fields, in the order of the table in the module's docstring."""
BASE_OFFSET: Final = Struct(">q")
BATCH_LENGTH: Final = Struct(">i")
LEADER_EPOCH: Final = Struct(">i")
LAST_OFFSET_DELTA: Final = Struct(">i")
PRODUCER: Final = Struct(">qh")
"""Format of the producer id and producer epoch."""
BASE_SEQUENCE: Final = Struct(">i")

MAGIC_AT: Final = 16
BATCH_LENGTH_AT: Final = 8
LEADER_EPOCH_AT: Final = 12
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
ATTRIBUTES_LOW_BYTE_AT: Final = 22
"""Position of the byte that contains all defined attributes."""
LAST_OFFSET_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_AT: Final = 43
BASE_SEQUENCE_AT: Final = 53

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1


class CorruptBatch(ValueError):
    """Raised if bytes are not a complete, valid v2 batch. The message says which check failed."""


class RecordBatch:
    """A view of one complete batch inside a buffer, with a property for each header field. Code on the hot path unpacks
    `HEADER` instead, which is faster.

    Invariant: `buffer[start:start + size]` is a complete batch with magic 2; only `crc_is_valid` checks its CRC.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "crc",
        "last_offset_delta",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "records_count",
        "size",
        "start",
    )

    base_offset: int
    partition_leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    def __init__(self, buffer: Buffer, start: int = 0) -> None:
        """Raises CorruptBatch if no complete v2 batch lies at `start`."""
        available = len(buffer) - start
        if available < HEADER_SIZE:
            raise CorruptBatch(f"a batch header has {HEADER_SIZE} bytes, but only {available} are left")
        (
            self.base_offset,
            batch_length,
            self.partition_leader_epoch,
            magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.records_count,
        ) = HEADER.unpack_from(buffer, start)
        if magic != MAGIC_V2:
            raise CorruptBatch(f"magic {magic}: only message format v2 is supported")
        if batch_length < MIN_BATCH_LENGTH:
            raise CorruptBatch(f"batch length {batch_length} is less than a header")
        self.size = batch_length + LOG_OVERHEAD
        if self.size > available:
            raise CorruptBatch(f"batch of {self.size} bytes, but only {available} are left")
        self.buffer = buffer
        self.start = start

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """The codec id, a `compression.Compression`."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """The delete horizon (KIP-534): the time in ms from which tombstones and markers of this batch may be removed;
        None if no log cleaner has set it.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def payload(self) -> memoryview:
        """The bytes of the records, still compressed."""
        return memoryview(self.buffer)[self.start + HEADER_SIZE : self.start + self.size]

    @property
    def view(self) -> memoryview:
        """The bytes of the entire batch, including its header."""
        return memoryview(self.buffer)[self.start : self.start + self.size]

    def crc_is_valid(self) -> bool:
        return self.crc == batch_crc(self.view)

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets {self.base_offset}..{self.last_offset}, {self.size} bytes, "
            f"producer {self.producer_id}/{self.producer_epoch} seq {self.base_sequence})"
        )


def batch_crc(batch: Buffer) -> int:
    """Return the CRC-32C of a batch over its bytes from the attributes to its end; `batch` is exactly this batch."""
    return int(crc32c(memoryview(batch)[CRC_START:]))


def batches(buffer: Buffer) -> Iterator[RecordBatch]:
    """Yield the complete batches of `buffer`, in order.

    Raises CorruptBatch at the first incomplete batch. A Fetch response may end with an incomplete batch; to avoid the
    exception, its readers call `whole_batches_size` first.
    """
    position = 0
    while position < len(buffer):
        batch = RecordBatch(buffer, position)
        yield batch
        position += batch.size


def whole_batches_size(buffer: Buffer) -> int:
    """Return the number of bytes that the complete batches in `buffer` occupy, according to their length fields
    alone.
    """
    position, end = 0, len(buffer)
    while end - position >= LOG_OVERHEAD:
        (batch_length,) = BATCH_LENGTH.unpack_from(buffer, position + BATCH_LENGTH_AT)
        if batch_length < MIN_BATCH_LENGTH or position + LOG_OVERHEAD + batch_length > end:
            break
        position += LOG_OVERHEAD + batch_length
    return position
