"""Converts records to the columns of Spark's own Kafka connector, as Arrow batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from oncelog import ColumnBatch, UndecodedBatch
from oncelog.errors import CorruptRecords, ErrorCode
from oncelog_pipeline.arrow.without_pandas import arrow_array
from oncelog_pipeline.options.source_options import PARTITION_FETCH_BYTES
from oncelog_pipeline.spark.record_arrays import RecordArrays, record_arrays, repeated_text
from oncelog_protocol.records.batch import CorruptBatch

SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS: Final = "headers array<struct<key: string, value: binary>>"

MAX_ROWS: Final = 20_000
MAX_BYTES: Final = PARTITION_FETCH_BYTES
"""Maximum size of one Arrow batch in bytes. It equals the source's default of max.partition.fetch.bytes, so that one
fetch response becomes one Arrow batch without a copy.
"""

MAX_TIMESTAMP_MS: Final = (2**63 - 1) // 1000
"""The largest timestamp in milliseconds that Spark can represent: Spark's timestamps are 64-bit numbers of
microseconds. Brokers accept any timestamp by default, so records may have larger timestamps.
"""

MAX_VALUES_BYTES: Final = 2**31 - 1
"""The maximum total size in bytes of an Arrow column with 32-bit offsets."""

Headers = Sequence[tuple[str, bytes | None]]

_MOST: Final = 2**63 - 1
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS: Final = pa.list_(pa.field("element", _HEADER))
_FIELDS: Final = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", _TIMESTAMP),
    pa.field("timestampType", pa.int32()),
]
_PLAIN: Final = pa.schema(_FIELDS)
_WITH_HEADERS: Final = pa.schema([*_FIELDS, pa.field("headers", _HEADERS)])


def schema(*, includes_headers: bool) -> str:
    """Return the columns as DDL for Spark."""
    return f"{SCHEMA}, {HEADERS}" if includes_headers else SCHEMA


class BatchBuilder:
    """Gathers batches of one partition until there are enough records for an Arrow batch."""

    def __init__(self, topic: str, partition: int, *, includes_headers: bool) -> None:
        self._topic = topic
        self._partition = partition
        self._includes_headers = includes_headers
        self._parts: list[UndecodedBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, part: UndecodedBatch) -> None:
        self._parts.append(part)
        self._rows += part.batch.records_count
        self._bytes += len(part.data)

    @property
    def is_full(self) -> bool:
        return self._rows >= MAX_ROWS or self._bytes >= MAX_BYTES

    @property
    def is_worth_a_batch(self) -> bool:
        return self._rows >= MAX_ROWS / 4 or self._bytes >= MAX_BYTES / 4

    def take(self) -> pa.RecordBatch | None:
        """Return the gathered records and remove them from the builder; None if there are none. Raises CorruptRecords,
        and ValueError if the values exceed the size of an Arrow column.
        """
        parts, self._parts, self._rows, self._bytes = self._parts, [], 0, 0
        if not parts:
            return None
        if (arrays := record_arrays(parts)) is not None:
            return self._table(arrays, pa.nulls(len(arrays.offsets), _HEADERS)) if len(arrays.offsets) else None
        decoded = [columns for part in parts if (columns := self._decoded(part)) is not None]
        if not decoded:
            return None
        headers = pa.array([_headers(each) for part in decoded for each in part.headers], _HEADERS)
        return self._table(_arrays_of(decoded), headers)

    def _decoded(self, part: UndecodedBatch) -> ColumnBatch | None:
        """Decode one batch; None if it has no records of the range. Raises CorruptRecords."""
        try:
            return part.decoded()
        except CorruptBatch as error:
            where = f"{self._topic}-{self._partition}"
            raise CorruptRecords(
                ErrorCode.CORRUPT_MESSAGE,
                f"{where}: the batch of offsets {part.batch.base_offset} to {part.batch.last_offset} cannot be read:"
                f" {error}; a query that begins behind it (startingOffsets) leaves it out",
            ) from error

    def _table(self, arrays: RecordArrays, headers: pa.Array) -> pa.RecordBatch:
        """Return an Arrow batch whose schema is exactly the one that Spark requires. Raises CorruptRecords."""
        count = len(arrays.offsets)
        if (late := np.flatnonzero(arrays.timestamps_ms > MAX_TIMESTAMP_MS)).size:
            raise CorruptRecords(
                ErrorCode.INVALID_TIMESTAMP,
                f"{self._topic}-{self._partition}: the record at offset {arrays.offsets[late[0]]} has the timestamp"
                f" {arrays.timestamps_ms[late[0]]} ms, Spark's end at {MAX_TIMESTAMP_MS}; a query that begins behind it"
                " (startingOffsets) leaves it out",
            )
        columns = [
            arrays.keys,
            arrays.values,
            repeated_text(self._topic, count),
            arrow_array(np.full(count, self._partition, np.int32), pa.int32()),
            arrow_array(arrays.offsets, pa.int64()),
            # Kafka's timestamp -1, which means no timestamp, becomes null.
            arrow_array(arrays.timestamps_ms * 1000, _TIMESTAMP, arrays.timestamps_ms < 0),
            arrow_array(arrays.timestamp_types, pa.int32()),
        ]
        if self._includes_headers:
            return pa.RecordBatch.from_arrays([*columns, headers], schema=_WITH_HEADERS)
        return pa.RecordBatch.from_arrays(columns, schema=_PLAIN)


def _arrays_of(parts: Sequence[ColumnBatch]) -> RecordArrays:
    """Return the columns of records that were decoded batch by batch. Raises ValueError if the values exceed the size
    of an Arrow column.
    """
    values = [value for part in parts for value in part.values]
    size = sum(map(len, filter(None, values)))
    if size > MAX_VALUES_BYTES:
        raise ValueError(f"{size:,} bytes of values in one batch: an Arrow batch holds {MAX_VALUES_BYTES:,}")
    return RecordArrays(
        pa.array([key for part in parts for key in part.keys], pa.binary()),
        pa.array(values, pa.binary()),
        np.array([offset for part in parts for offset in part.offsets], np.int64),
        np.array([max(-1, min(time, _MOST)) for part in parts for time in part.timestamps_ms], np.int64),
        np.repeat(np.array([part.timestamp_type for part in parts], np.int32), [len(part.offsets) for part in parts]),
    )


def _headers(headers: Headers) -> list[dict[str, Any]] | None:
    """Return the headers of a record for Spark; null if there are none, like Spark's own connector."""
    return [{"key": name, "value": value} for name, value in headers] or None
