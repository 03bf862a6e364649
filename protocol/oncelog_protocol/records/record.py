"""Single records inside a batch: what a consumer decodes, and the one check that a broker needs per record.

    length            varint   bytes after this field
    attributes        int8     unused: control is a bit of the batch (S39)
    timestamp_delta   varlong  to the batch's base timestamp
    offset_delta      varint   to the batch's base offset; gaps where a cleaner removed records
    key_length, key   varint   -1: null
    value_length, value        -1: null, a tombstone
    headers           varint count, then for each: key length, UTF-8 key, value length (-1: null), value

The decoding itself is in `columns`. Source: Kafka's DefaultRecord.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from oncelog_protocol.records.batch import CorruptBatch, RecordBatch
from oncelog_protocol.records.columns import (
    MAX_DECOMPRESSED_BYTES,
    NULL_BYTE,
    read_columns,
    read_length,
    records_data,
)

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
    columns = read_columns(batch, max_decompressed_bytes=max_decompressed_bytes)
    rows = zip(columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers, strict=True)
    for offset, timestamp, key, value, headers in rows:
        yield Record(offset, timestamp, key, value, list(headers))
    if columns.error is not None:
        raise columns.error


def has_keyless_record(batch: RecordBatch, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES) -> bool:
    """Whether a record of `batch` has a null key, which a compacted topic refuses (T20).

    Reads the front of each record only and builds nothing. Raises CorruptBatch.
    """
    data = records_data(batch, max_decompressed_bytes)
    position = 0
    try:
        for _ in range(batch.records_count):
            length, position = read_length(data, position)
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
