"""Single records inside a batch: what a consumer decodes, and the one check that a broker needs per record.

    length            varint   bytes after this field
    attributes        int8     unused (E7)
    timestamp_delta   varlong  to the batch's base timestamp
    offset_delta      varint   to the batch's base offset; gaps where a cleaner removed records
    key_length, key   varint   -1: null
    value_length, value        -1: null, a tombstone
    headers           varint count, then for each: key length, UTF-8 key, value length (-1: null), value

`read_records` is the hot loop of a consumer, hence straight-line code with one- and two-byte varints in place: a
function call for each field would double its time.
Source: Kafka's DefaultRecord.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from oncelog_protocol.records.batch import CorruptBatch, RecordBatch
from oncelog_protocol.records.compression import decompress
from oncelog_protocol.records.varint import read_varint, read_varlong

MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
"""What one batch may decompress to (reliability.md, decompression bomb)."""
MIN_RECORD_SIZE: Final = 7
"""One byte for each of the seven fields of a record with neither key, value nor headers."""

NULL_BYTE: Final = 1
"""-1 as a zig-zag varint: a null key or value."""
TIMESTAMP_AND_OFFSET: Final = range(2)
"""The two varints between attributes and key that a look at the key skips."""

Headers = list[tuple[str, bytes | None]]


@dataclass(slots=True)
class Record:
    """One record. `timestamp` is in ms since the epoch; a `value` of None is a tombstone."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def read_records(batch: RecordBatch, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """The records of `batch` in offset order; where the batch has log append time, all carry its max timestamp.

    Raises CorruptBatch, and nothing else, whatever the bytes: before the first record if they do not decompress, else
    at the first bad record, after the good ones before it.
    """
    data = _records_data(batch, max_decompressed_bytes)
    try:
        yield from _decode(batch, data)
    except IndexError:
        raise CorruptBatch("a record runs over the end of the batch") from None


def has_keyless_record(batch: RecordBatch, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES) -> bool:
    """Whether a record of `batch` has a null key, which a compacted topic refuses (T20).

    Reads the front of each record only and builds nothing. Raises CorruptBatch.
    """
    data = _records_data(batch, max_decompressed_bytes)
    position = 0
    try:
        for _ in range(batch.records_count):
            length, position = _read_length(data, position)
            record_end = position + length
            position += 1  # the attributes
            for _ in TIMESTAMP_AND_OFFSET:
                while data[position] & 0x80:
                    position += 1
                position += 1
            if data[position] & 1:  # the sign of the key length
                if data[position] == NULL_BYTE:
                    return True
                raise CorruptBatch(f"negative key length at byte {position}")
            position = record_end
    except IndexError:
        raise CorruptBatch("a record runs over the end of the batch") from None
    return False


def _records_data(batch: RecordBatch, max_bytes: int) -> bytes:
    """The records decompressed, after the checks that need the header only."""
    count, last_offset_delta = batch.records_count, batch.last_offset_delta
    if not 0 <= count <= last_offset_delta + 1:
        raise CorruptBatch(f"{count} records, but the last offset delta is {last_offset_delta}")
    data = decompress(batch.compression, batch.payload, max_bytes=max_bytes)
    if count * MIN_RECORD_SIZE > len(data):
        raise CorruptBatch(f"{count} records do not fit {len(data)} bytes")
    return data


# In `_decode`, a byte with neither of the bits 0x81 is a whole varint >= 0: bit 7 says "more follows", bit 0 is the
# sign. Every length is checked although no line seems to do it: positions only grow (`_read_length` refuses negative
# lengths), after each field a byte is indexed, and the last field must end exactly where the record's length says.
def _decode(batch: RecordBatch, data: bytes) -> Iterator[Record]:
    """Raises CorruptBatch, and IndexError where a record runs over the end of `data`."""
    base_offset, base_timestamp, last_offset_delta = batch.base_offset, batch.base_timestamp, batch.last_offset_delta
    append_time = batch.max_timestamp if batch.is_log_append_time else None
    offset_delta, position = -1, 0
    for _ in range(batch.records_count):
        byte = data[position]
        if not byte & 0x81:
            record_end = position + 1 + (byte >> 1)
            position += 2  # the length and the attributes
        else:
            length, position = _read_length(data, position)
            record_end = position + length
            position += 1

        byte = data[position]
        if not byte & 0x81:
            timestamp = base_timestamp + (byte >> 1)
            position += 1
        else:
            timestamp, position = read_varlong(data, position)
            timestamp += base_timestamp

        previous, byte = offset_delta, data[position]
        if not byte & 0x81:
            offset_delta = byte >> 1
            position += 1
        elif (high := data[position + 1]) < 0x80 and not byte & 1:
            offset_delta = (byte & 0x7F | high << 7) >> 1
            position += 2
        else:
            offset_delta, position = read_varint(data, position)
        if not previous < offset_delta <= last_offset_delta:
            raise CorruptBatch(f"offset delta {offset_delta} after {previous}, the last is {last_offset_delta}")

        byte = data[position]
        if byte == NULL_BYTE:
            key = None
            position += 1
        elif not byte & 0x81:
            start = position + 1
            position = start + (byte >> 1)
            key = data[start:position]
        else:
            key, position = _read_bytes(data, position)

        byte = data[position]
        if byte == NULL_BYTE:
            value = None
            position += 1
        elif not byte & 0x81:
            start = position + 1
            position = start + (byte >> 1)
            value = data[start:position]
        else:
            value, position = _read_bytes(data, position)

        if not data[position]:
            headers: Headers = []
            position += 1
        else:
            headers, position = _read_headers(data, position)
        if position != record_end:
            raise CorruptBatch(f"the fields of the record with offset delta {offset_delta} are not as long as it says")
        time = timestamp if append_time is None else append_time
        yield Record(base_offset + offset_delta, time, key, value, headers)
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes after the last of {batch.records_count} records")


def _read_length(data: bytes, position: int) -> tuple[int, int]:
    """A length >= 0 and the position after it. Raises CorruptBatch, and IndexError at the end of `data`."""
    byte = data[position]
    if not byte & 0x81:
        return byte >> 1, position + 1
    if (high := data[position + 1]) < 0x80 and not byte & 1:
        return (byte & 0x7F | high << 7) >> 1, position + 2
    length, end = read_varint(data, position)
    if length < 0:
        raise CorruptBatch(f"length {length} at byte {position}")
    return length, end


def _read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    """Bytes with their length >= 0 in front, cut short at the end of `data`, and the position where they should end."""
    length, start = _read_length(data, position)
    end = start + length
    return data[start:end], end


def _read_headers(data: bytes, position: int) -> tuple[Headers, int]:
    """The headers at `position` and the position after them. Raises CorruptBatch, and IndexError at the end of `data`.

    A false count or length ends at the end of the data: nothing is allocated for it.
    """
    count, position = _read_length(data, position)
    headers: Headers = []
    for _ in range(count):
        length, start = _read_length(data, position)
        position = start + length
        try:
            key = data[start:position].decode()
        except UnicodeDecodeError:
            raise CorruptBatch(f"header key at byte {start} is not UTF-8") from None
        if data[position] == NULL_BYTE:
            headers.append((key, None))
            position += 1
        else:
            value, position = _read_bytes(data, position)
            headers.append((key, value))
    if position > len(data):
        raise CorruptBatch("the headers run over the end of the batch")
    return headers, position
