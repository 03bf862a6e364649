"""Converts an Arrow batch of a table to the fields of records, one column for each field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from oncelog.clock import now_ms
from oncelog.producer.columns import MAX_TIMESTAMP
from oncelog_pipeline.arrow.buffers import is_valid
from oncelog_pipeline.arrow.headers import check_headers


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The fields of records, one column for each field; None if the table does not have that column."""

    values: pa.Array
    """The values of the records, an Arrow array of type binary or large binary; `keys` has the same type."""
    keys: pa.Array | None
    headers: pa.Array | None
    """For each row a list of structs with the name and value of a header. No header name is null."""
    topics: pa.Array | None
    partitions: pa.Array | None
    timestamps_ms: Any = None
    """The timestamp of each record in milliseconds, as an int64 array; None if the table has no timestamps."""

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Any) -> RecordColumns:
        """Return the columns with only these rows (an int64 array of row numbers), in this order and without topics."""
        chosen = pa.array(rows)
        return RecordColumns(
            self.values.take(chosen),
            None if self.keys is None else self.keys.take(chosen),
            None if self.headers is None else self.headers.take(chosen),
            None,
            None if self.partitions is None else self.partitions.take(chosen),
            None if self.timestamps_ms is None else self.timestamps_ms[rows],
        )


def record_columns(batch: pa.RecordBatch) -> RecordColumns:
    """Convert an Arrow batch of the table to write. Raises ValueError for a header without a name, and for a timestamp
    outside the range that a record can have.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    values, keys = _binary(columns["value"]), _binary(columns["key"]) if "key" in columns else None
    if keys is not None and keys.type != values.type:
        values, keys = values.cast(pa.large_binary()), keys.cast(pa.large_binary())
    if "headers" in columns:
        check_headers(columns["headers"])
    return RecordColumns(
        values,
        keys,
        columns.get("headers"),
        columns.get("topic"),
        columns.get("partition"),
        _milliseconds(columns["timestamp"]) if "timestamp" in columns else None,
    )


def _binary(column: pa.Array) -> pa.Array:
    """Cast a string column to binary, which keeps its UTF-8 bytes; return other columns unchanged."""
    if pa.types.is_string(column.type):
        return column.cast(pa.binary())
    return column.cast(pa.large_binary()) if pa.types.is_large_string(column.type) else column


def _milliseconds(column: pa.Array) -> Any:
    """Convert a column of timestamps to milliseconds; rows without a timestamp get the present time."""
    # Round down, as Spark does: one microsecond before 1970 becomes millisecond -1.
    found = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) // 1000
    if column.null_count:
        found = np.where(is_valid(column), found, now_ms())
    if len(found) and int(found.min()) < 0:
        raise ValueError(f"timestamp {int(found.min())}: must be from 0 to {MAX_TIMESTAMP}")
    return found
