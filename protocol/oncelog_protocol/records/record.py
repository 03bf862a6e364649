"""Single records in a batch, as a consumer decodes them. A broker uses `record_scan` instead.

    length            varint   bytes after this field
    attributes        int8     unused; the control bit is an attribute of the batch (S39)
    timestamp_delta   varlong  difference to the batch's base timestamp
    offset_delta      varint   difference to the batch's base offset; gaps where a cleaner removed records
    key_length, key   varint   -1: null
    value_length, value        -1: null, a tombstone
    headers           varint count, then for each: key length, UTF-8 key, value length (-1: null), value

The module `columns` contains the decoder. The source is Kafka's DefaultRecord.
"""

from __future__ import annotations

from collections.abc import Iterator

from oncelog_protocol.light_classes import dataclass
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.columns import (
    MAX_DECOMPRESSED_BYTES,
    read_columns,
)

Headers = list[tuple[str, bytes | None]]


@dataclass(slots=True)
class Record:
    """One record. A decoded record. `timestamp` is in ms since the epoch; a `value` of None is a tombstone."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def read_records(batch: RecordBatch, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """Yield the records of `batch` in offset order; with log append time, all records have the batch's max timestamp.

    Raises no other error than CorruptBatch: at the start if the records cannot be decompressed, otherwise at the first
    invalid record, after yielding the valid records before it.
    """
    columns = read_columns(batch, max_decompressed_bytes=max_decompressed_bytes)
    rows = zip(columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers, strict=True)
    for offset, timestamp, key, value, headers in rows:
        yield Record(offset, timestamp, key, value, list(headers))
    if columns.error is not None:
        raise columns.error
