"""Writes record batches: `RecordBatchBuilder` for the accumulator of a producer, and `build_batch` for a known list of
records.

Records are encoded once, when they are added, after a gap for the header. `close` compresses the records. `build`
writes the header with producer id, epoch, sequence and CRC, so a change of these values rewrites only the header (S21,
S26, S27).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from oncelog_protocol.records.batch import (
    CONTROL_BIT,
    CRC_AT,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    Buffer,
    batch_crc,
)
from oncelog_protocol.records.compression import Compression, compress
from oncelog_protocol.records.packing import ATTRIBUTES, NO_HEADERS, NULL, Packed, pack
from oncelog_protocol.records.record import Record
from oncelog_protocol.records.varint import encode_varint, encode_varlong

HeaderSequence = Sequence[tuple[str, Buffer | None]]

MAX_RECORD_OVERHEAD: Final = 36
"""Maximum bytes of a record besides key, value and headers: five varints, one varlong, the attributes."""
MAX_VARINT: Final = 5

MAX_BATCH_SIZE: Final = 2**31 - 1 + LOG_OVERHEAD
"""Maximum bytes of a batch, given by the int32 batch_length."""

SMALL: Final = 512
SMALL_VARINTS: Final = tuple(encode_varint(value) for value in range(SMALL))
"""Precomputed varints of small numbers, which are nearly all numbers in records."""


def record_size_upper_bound(key: Buffer | None, value: Buffer | None, headers: HeaderSequence = ()) -> int:
    """Return the maximum bytes of a batch with only this record, before compression, for an early check of
    `max.request.size`.
    """
    size = HEADER_SIZE + MAX_RECORD_OVERHEAD
    for data in (key, value):
        size += len(data) if data is not None else 0
    for name, data in headers:
        size += 2 * MAX_VARINT + len(str.encode(name)) + (len(data) if data is not None else 0)
    return size


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: HeaderSequence = (),
) -> bytes:
    """Return one encoded record with its length prefix. Raises ValueError if a number is out of range."""
    small = SMALL_VARINTS
    offset_part = small[offset_delta] if 0 <= offset_delta < SMALL else encode_varint(offset_delta)
    timestamp_part = small[timestamp_delta] if 0 <= timestamp_delta < SMALL else encode_varlong(timestamp_delta)
    headers_part = encode_headers(headers) if headers else NO_HEADERS
    length = 1 + len(timestamp_part) + len(offset_part) + len(headers_part)
    if key is None:
        key, key_part = b"", NULL
        length += 1
    else:
        size = len(key)
        key_part = small[size] if size < SMALL else encode_varint(size)
        length += len(key_part) + size
    if value is None:
        value, value_part = b"", NULL
        length += 1
    else:
        size = len(value)
        value_part = small[size] if size < SMALL else encode_varint(size)
        length += len(value_part) + size
    length_part = small[length] if length < SMALL else encode_varint(length)
    return b"".join(
        (length_part, ATTRIBUTES, timestamp_part, offset_part, key_part, key, value_part, value, headers_part)
    )


def encode_headers(headers: HeaderSequence) -> bytes:
    """Return the encoded headers of a record, which end the record: the number of headers, followed by each header."""
    small = SMALL_VARINTS
    parts: list[Buffer] = [encode_varint(len(headers))]
    for name, value in headers:
        encoded_name = str.encode(name)
        size = len(encoded_name)
        parts += (small[size] if size < SMALL else encode_varint(size), encoded_name)
        if value is None:
            parts.append(NULL)
        else:
            size = len(value)
            parts += (small[size] if size < SMALL else encode_varint(size), value)
    return b"".join(parts)


class RecordBatchBuilder:
    """A batch under construction. Call `append` until it returns None, `close` once, and `build` for each producer
    identity and sequence.

    Invariants: `_buffer`, which grows, and `_sealed`, which does not, start with HEADER_SIZE bytes for the header,
    followed by the records. `_sealed` is None until no record can be added any more; from then on it has the records,
    and `_buffer` is not used. A buffer that `build` returned is never written again, because a transport may still be
    sending its bytes.
    """

    __slots__ = (
        "_buffer",
        "_compression",
        "_handed_out",
        "_is_closed",
        "_sealed",
        "_size_limit",
        "base_timestamp",
        "max_timestamp",
        "records_count",
    )

    def __init__(self, size_limit: int) -> None:
        """`size_limit` (`batch.size`) is the maximum bytes of header and records before compression. The first record
        may exceed the limit.
        """
        self._size_limit = size_limit
        self._buffer = bytearray(HEADER_SIZE)
        self._sealed: bytearray | memoryview | None = None
        self._compression = Compression.NONE
        self._is_closed = False
        self._handed_out = False
        self.records_count = 0
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP

    @classmethod
    def whole(cls, packed: Packed) -> RecordBatchBuilder:
        """Return a builder that has all records of its batch: `close` is the next call. The first HEADER_SIZE bytes of
        `packed.data` are free for the header; the data is writable and not copied. The base timestamp of the batch is
        the timestamp of its first record.
        """
        builder = cls(len(packed.data))
        builder._sealed = memoryview(packed.data).cast("B")  # the bytes of an Arrow buffer are signed
        builder.records_count = len(packed.timestamps_ms)
        builder.base_timestamp = packed.timestamps_ms[0]
        builder.max_timestamp = packed.max_timestamp_ms
        return builder

    @property
    def size(self) -> int:
        """Bytes of header and records. Before `close` this is the size without compression; after `close`, it is the
        final size of the batch.
        """
        return len(self._buffer if self._sealed is None else self._sealed)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def append(
        self, timestamp: int, key: Buffer | None, value: Buffer | None, headers: HeaderSequence = ()
    ) -> int | None:
        """Add a record (`timestamp` in ms), and return its offset delta; None if the batch is full."""
        assert not self._is_closed, "a closed batch takes no records"
        offset_delta = self.records_count
        if not offset_delta:
            self.base_timestamp = timestamp
        record = encode_record(offset_delta, timestamp - self.base_timestamp, key, value, headers)
        buffer = self._buffer
        if offset_delta and len(buffer) + len(record) > self._size_limit:
            return None
        buffer += record
        self.records_count = offset_delta + 1
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return offset_delta

    def extend(self, timestamp: int, keys: Sequence[bytes] | None, values: Sequence[bytes]) -> int:
        """Add records to a batch that already has a record; the added records have one common timestamp and no headers.
        Returns the number of added records, 0 if the batch is full. `keys` and `values` have the same length.
        """
        assert not self._is_closed, "a closed batch takes no records"
        assert self.records_count, "the first record may be larger than the batch: append it"
        room = self._size_limit - len(self._buffer)
        packed, count = pack(self.records_count, timestamp - self.base_timestamp, keys, values, room)
        self._buffer += packed
        self.records_count += count
        if count and timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return count

    def extend_packed(self, pack_more: Callable[[int, int, int], Packed]) -> Sequence[int]:
        """Let the caller encode records into this batch, which must already have a record. Returns the timestamps of
        the added records; empty if the batch is full.

        `pack_more` is called with the offset delta of the first record, the batch's base timestamp (ms) and the number
        of free bytes, and encodes as many records as fit.
        """
        assert not self._is_closed, "a closed batch takes no records"
        assert self.records_count, "the first record may be larger than the batch: append it"
        packed = pack_more(self.records_count, self.base_timestamp, self._size_limit - len(self._buffer))
        if packed.timestamps_ms:
            self._buffer += packed.data
            self.records_count += len(packed.timestamps_ms)
            self.max_timestamp = max(self.max_timestamp, packed.max_timestamp_ms)
        return packed.timestamps_ms

    def close(self, compression: Compression = Compression.NONE, level: int | None = None) -> None:
        """Accept no more records, and compress the records. The method needs no event loop, so it may run in a worker
        thread.
        """
        assert not self._is_closed, "a batch is closed once"
        self._is_closed = True
        self._compression = compression
        if self._sealed is None:
            self._sealed = self._buffer
        if compression is not Compression.NONE:
            records = compress(compression, memoryview(self._sealed)[HEADER_SIZE:], level)
            self._sealed = bytearray(HEADER_SIZE)
            self._sealed += records
        self._buffer = bytearray()

    def build(
        self,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        base_offset: int = 0,
        partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    ) -> bytearray | memoryview:
        """Return the batch with this producer identity and sequence, and its CRC. Each call returns a new buffer."""
        assert self._is_closed, "close the batch before building it"
        assert self._sealed is not None
        batch = bytearray(self._sealed) if self._handed_out else self._sealed
        self._sealed, self._handed_out = batch, True
        attributes = int(self._compression)
        attributes |= (TRANSACTIONAL_BIT if transactional else 0) | (CONTROL_BIT if control else 0)
        HEADER.pack_into(
            batch,
            0,
            base_offset,
            len(batch) - LOG_OVERHEAD,
            partition_leader_epoch,
            MAGIC_V2,
            0,
            attributes,
            self.records_count - 1,
            self.base_timestamp,
            self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self.records_count,
        )
        batch[CRC_AT : CRC_AT + 4] = batch_crc(batch).to_bytes(4, "big")
        return batch


def build_batch(
    records: Iterable[Record],
    *,
    compression: Compression = Compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """Return all `records` in one batch, at consecutive offsets from `base_offset` (their own offsets are ignored)."""
    builder = RecordBatchBuilder(size_limit=MAX_BATCH_SIZE)
    for record in records:
        offset_delta = builder.append(record.timestamp, record.key, record.value, record.headers)
        if offset_delta is None:
            raise ValueError(f"more than {MAX_BATCH_SIZE} bytes of records do not fit a batch")
    builder.close(compression)
    batch = builder.build(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
    )
    assert isinstance(batch, bytearray)
    return batch


def single_record_batch(
    timestamp: int,
    key: Buffer | None,
    value: Buffer | None,
    *,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    transactional: bool = False,
) -> bytearray:
    """Return the uncompressed batch of one record without headers (`timestamp` in ms), as a coordinator writes it for
    nearly every request. The result has the bytes that `RecordBatchBuilder` builds.
    """
    record = encode_record(0, 0, key, value)
    batch = bytearray(HEADER_SIZE)
    batch += record
    HEADER.pack_into(
        batch, 0, 0, len(batch) - LOG_OVERHEAD, NO_PARTITION_LEADER_EPOCH, MAGIC_V2, 0,
        TRANSACTIONAL_BIT if transactional else 0, 0, timestamp, timestamp, producer_id, producer_epoch, NO_SEQUENCE, 1,
    )  # fmt: skip
    batch[CRC_AT : CRC_AT + 4] = batch_crc(batch).to_bytes(4, "big")
    return batch
